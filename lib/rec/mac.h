/* SPDX-License-Identifier: Apache-2.0
 *
 * Trust in result fields.  A field carries `mac`: HMAC-SHA256 with the user's
 * key over the canonical JSON of everything that decides it, the field
 * itself included.  A field without a right mac is recomputed, never
 * believed.
 */
#ifndef CA_REC_MAC_H
#define CA_REC_MAC_H

#include <stdint.h>

#include "rec/rec.h"

struct mac_key {
	uint8_t bytes[32];
	int have;
};

/* Reads the key file, or makes it (32 random bytes as hex, 0600) when path is
 * NULL and the user's default one does not exist yet.  Refuses a file that
 * others can read. */
int mac_key_load(struct mac_key *k, const char *path, struct err *e);

/*
 * Sets member `field` of r to `json` (an object text without a `mac` member)
 * with the mac appended as its last member.  It covers: the kind, the task's
 * id as recomputed from its code (from `task.id` where only that is there),
 * the candidate's id as recomputed from that and its files, the field's name
 * and its canonical JSON (which must itself hold rules, options, jail level,
 * device, toolchain and judge version), and the fields named in `uses`
 * (NULL-terminated), as they stand in r.  r needs its tree (rec_refresh after
 * making a new one).
 */
int mac_set(const struct mac_key *k, struct rec *r, const char *field,
	    const char *json, size_t len, const char *const *uses,
	    struct err *e);

/* 1 when the field is present and its mac is right, else 0. */
int mac_check(const struct mac_key *k, const struct rec *r, const char *field,
	      const char *const *uses);

#endif
