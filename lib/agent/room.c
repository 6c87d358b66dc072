/* SPDX-License-Identifier: Apache-2.0
 *
 * What a work directory holds, counted.
 */
#define _GNU_SOURCE
#include "agent/room.h"

#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/io.h"

#define BEYOND_MAX 3
#define CHECK_NS 1000000000

static int64_t free_bytes(const struct room *r)
{
	struct statvfs fs;

	return fstatvfs(r->place->fd, &fs) ? 0 :
	       (int64_t)fs.f_bavail * (int64_t)fs.f_frsize;
}

void room_init(struct room *r, const struct place *place, int64_t limit)
{
	struct stat st;

	memset(r, 0, sizeof(*r));
	r->place = place;
	r->limit = limit;
	if (!fstat(place->fd, &st))
		r->dev = st.st_dev;
}

int room_due(const struct room *r)
{
	int64_t more = r->bytes < r->limit ? r->limit - r->bytes : 0;

	return now_ns() - r->checked >= CHECK_NS ||
	       r->left - free_bytes(r) > more;
}

int64_t room_count(struct room *r, int64_t held)
{
	int64_t bytes = 0;

	r->checked = now_ns();
	r->left = free_bytes(r);
	if (!place_digest(r->place, NULL, &bytes, NULL))
		r->bytes = bytes < PLACE_BEYOND - held ? bytes + held :
			   PLACE_BEYOND;
	return r->bytes;
}

int room_begin(struct room *r, int64_t bytes)
{
	r->beyond = bytes <= r->limit ? 0 : bytes < r->before ? 1 :
		    r->beyond + 1;
	r->before = bytes;
	return r->beyond <= BEYOND_MAX;
}

void room_text(const struct room *r, const char *prefix, struct str *out)
{
	str_addf(out, "[%sthe work directory has grown beyond %lld MiB, or "
		 "more than can be counted; remove what is not needed]",
		 prefix, (long long)(r->limit >> 20));
}
