/* SPDX-License-Identifier: Apache-2.0
 *
 * Building a candidate: from its record's `files` to the field `build` and an
 * object in the cache.
 */
#ifndef CA_BUILD_BUILD_H
#define CA_BUILD_BUILD_H

#include "base/path.h"
#include "rec/mac.h"
#include "rec/rec.h"
#include "rec/status.h"

#define BUILD_OBJECT_MAX ((size_t)256 << 20)

struct build_opts {
	const char *device;	/* "cpu", "cuda" or "cuda:N" */
	const char *arch;	/* "sm_90a"; NULL: of the device, else sm_90a;
				 * not used for "cpu" */
	double timeout;		/* seconds a compiler may run; 0: 120, or 300
				 * in the forms that bind with torch */
	const char *headers;	/* in those forms "slim" or "real": only
				 * these; "auto" or NULL: the first that do */
	int jobs;		/* compilers at once; 0: what the machine has */
	int no_jail;		/* never a silent choice: the record says so */
	int no_prov;
};

/*
 * Sets `build` on a candidate record (ARCHITECTURE.md, ca-record(5)), unless
 * one with a right mac, the same options, toolchain and version is there
 * already (its object is then only rebuilt if the cache has lost it).  A
 * candidate that cannot be built is data: build.status says why and 0 is
 * returned.  -1 is this machine's failure, the record is then unchanged:
 * CA_UNAVAILABLE (no compiler, no headers, no jail), CA_IOERR and
 * CA_CANTCREAT (disk), CA_TEMPFAIL (interrupted), CA_USAGE (no such
 * architecture).  Callers that go on to read the field call rec_refresh.
 * Thread safe.
 */
int build_candidate(struct rec *r, const struct build_opts *o,
		    const struct mac_key *key, struct err *e);

/* The status of the record's `build` as it will be written; ST_NONE when
 * there is none. */
enum status build_status(const struct rec *r);

/*
 * The path of the object of a record whose `build` is ok: in the cache, built
 * again (from the same files under the same options) where it is gone.  Fails
 * with CA_DATAERR when the record has no such build or the rebuilt object has
 * another key.
 */
int build_object_path(const struct rec *r, const struct build_opts *o,
		      char path[CA_PATH_MAX], struct err *e);

#endif
