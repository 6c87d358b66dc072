/* SPDX-License-Identifier: Apache-2.0
 *
 * What compilers say (a candidate can make them say anything): the first
 * error and the log are short, valid and safe.
 */
#include <stdlib.h>
#include <string.h>

#include "build/log.h"
#include "rec/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int yes)
{
	if (!yes)
		abort();
}

static void check_text(const char *s)
{
	struct str out = STR_INIT;
	struct jw w;

	jw_init(&w, &out);
	jw_str(&w, s);
	require(json_check(out.buf, out.len, out.len, NULL, NULL) == 0);
	/* nothing had to be replaced */
	require(!strstr(out.buf, "\xef\xbf\xbd") ||
		strstr(s, "\xef\xbf\xbd"));
	str_release(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct arena a = ARENA_INIT;
	struct str s = STR_INIT, log = STR_INIT;
	struct first_error e;

	str_add(&s, data, size);
	log_settle(&s);
	require(s.len <= size);
	log_first_error(s.buf, s.len, &a, &e);
	require(e.message && strlen(e.message) <= 4000 && e.line >= 0);
	check_text(e.message);
	if (e.file)
		check_text(e.file);
	log_says_oom(s.buf, s.len);
	log_add(&log, s.buf, s.len);
	require(!log.failed && log.len <= LOG_MAX);
	if (log.len)
		check_text(log.buf);
	str_release(&s);
	str_release(&log);
	arena_release(&a);
	return 0;
}
