/* SPDX-License-Identifier: Apache-2.0
 *
 * lib/rec: records, lines, identities, macs, status words.
 */
#include "tests.h"

#include <stdio.h>
#include <unistd.h>

#include <sys/stat.h>

#include "base/hash.h"
#include "base/io.h"
#include "rec/json.h"
#include "rec/mac.h"
#include "rec/reader.h"
#include "rec/rec.h"
#include "rec/status.h"

static void parse(struct rec *r, const char *line)
{
	struct err e = ERR_INIT;
	size_t at;

	rec_init(r);
	if (rec_parse(r, line, strlen(line), &at, &e))
		fail_msg("%s: byte %zu: %s", line, at, e.msg);
}

static void assert_writes(const struct rec *r, const char *want)
{
	struct str s = STR_INIT;

	assert_int_equal(rec_write(r, &s), 0);
	assert_string_equal(s.buf, want);
	str_release(&s);
}

static int set(struct rec *r, const char *key, const char *json)
{
	return rec_set(r, key, json, strlen(json));
}

static void envelopes_are_checked(void **state)
{
	static const struct {
		const char *line, *what;
		size_t at;
	} t[] = {
		{ "[1]", "not an object", 1 }, { "{}", "no member 'kind'", 1 },
		{ "{\"kind\":1,\"v\":1}", "not a string", 9 },
		{ "{\"kind\":\"task\"}", "no member 'v'", 1 },
		{ "{\"kind\":\"task\",\"v\":\"1\"}", "positive integer", 20 },
		{ "{\"kind\":\"task\",\"v\":0}", "positive integer", 20 },
		{ "{\"kind\":\"task\",\"v\":-1}", "positive integer", 20 },
		{ "{\"kind\":\"task\",\"v\":1.0}", "positive integer", 20 },
		{ "{\"kind\":\"task\",\"v\":2}", "newer", 20 },
		{ "{\"kind\":\"task\",\"v\":99999999999999999999}", "newer",
		  20 },
		{ "{\"kind\":\"task\",\"v\":1", "expected ','", 21 },
	};
	size_t i, at;

	(void)state;
	for (i = 0; i < sizeof t / sizeof *t; i++) {
		struct err e = ERR_INIT;
		struct rec r;

		rec_init(&r);
		assert_int_equal(rec_parse(&r, t[i].line, strlen(t[i].line),
					   &at, &e), -1);
		assert_int_equal(e.code, CA_DATAERR);
		if (!strstr(e.msg, t[i].what) || at != t[i].at)
			fail_msg("%s: byte %zu: %s", t[i].line, at, e.msg);
		rec_release(&r);
	}
}

static void kinds_have_names(void **state)
{
	static const char *const name[] = { "task", "candidate", "trajectory",
		"metric", "prompt", "completion", "error", "other" };
	static const enum rec_kind kind[] = { REC_TASK, REC_CANDIDATE,
		REC_TRAJECTORY, REC_METRIC, REC_PROMPT, REC_COMPLETION,
		REC_ERROR, REC_OTHER };
	char line[80];
	size_t i;

	(void)state;
	for (i = 0; i < sizeof kind / sizeof *kind; i++) {
		struct rec r;

		snprintf(line, sizeof line, "{\"v\":1,\"kind\":\"%s\"}",
			 name[i]);
		parse(&r, line);
		assert_int_equal(r.kind, kind[i]);
		assert_string_equal(rec_kind_name(kind[i]), name[i]);
		rec_release(&r);
	}
}

static const char odd_line[] =
	" {  \"kind\" :\"candidate\", \"v\":1 ,\t\"x\" : 1.50e+01,"
	"\"b\\u0075ild\":{ \"a\":1 } , \"z\":\"\\u00e9\" }\r";

static void untouched_bytes_stay(void **state)
{
	struct rec r;

	(void)state;
	parse(&r, odd_line);
	assert_writes(&r, odd_line);
	assert_int_equal(set(&r, "build", "{\"b\":2}"), 0);
	assert_int_equal(set(&r, "new", "[]"), 0);
	assert_writes(&r, " {  \"kind\" :\"candidate\", \"v\":1 ,\t\"x\" : "
		      "1.50e+01,\"b\\u0075ild\":{\"b\":2} , \"z\":\"\\u00e9\""
		      ",\"new\":[] }\r");
	assert_int_equal(rec_drop(&r, "x"), 0);
	assert_int_equal(rec_drop(&r, "absent"), 0);
	assert_int_equal(set(&r, "new", "3"), 0);
	assert_writes(&r, " {  \"kind\" :\"candidate\", \"v\":1,"
		      "\"b\\u0075ild\":{\"b\":2} , \"z\":\"\\u00e9\",\"new\":3"
		      " }\r");
	rec_release(&r);
}

static void members_drop_anywhere(void **state)
{
	static const char line[] = "{\"a\":1, \"kind\":\"x\",\"v\":1,\"z\":2}";
	struct rec r;

	(void)state;
	parse(&r, line);
	rec_drop(&r, "a");
	assert_writes(&r, "{\"kind\":\"x\",\"v\":1,\"z\":2}");
	rec_drop(&r, "z");
	assert_writes(&r, "{\"kind\":\"x\",\"v\":1}");
	rec_drop(&r, "kind");
	rec_drop(&r, "v");
	assert_writes(&r, "{}");
	set(&r, "q", "1");
	assert_writes(&r, "{\"q\":1}");
	rec_release(&r);
}

static void only_json_can_be_set(void **state)
{
	struct rec r;

	(void)state;
	parse(&r, "{\"kind\":\"x\",\"v\":1}");
	assert_int_equal(set(&r, "a", "nan"), -1);
	assert_int_equal(set(&r, "a", "1,\"b\":2"), -1);
	assert_int_equal(set(&r, "a", ""), -1);
	assert_writes(&r, "{\"kind\":\"x\",\"v\":1}");
	assert_int_equal(set(&r, "a\"b", "1"), 0);
	assert_writes(&r, "{\"kind\":\"x\",\"v\":1,\"a\\\"b\":1}");
	rec_release(&r);
}

static void refresh_shows_what_was_set(void **state)
{
	struct err e = ERR_INIT;
	struct rec r;
	size_t len;

	(void)state;
	parse(&r, "{\"kind\":\"candidate\",\"v\":1,\"a\":1}");
	set(&r, "a", "22");
	assert_int_equal(json_int(rec_get(&r, "a"), 0), 1);
	assert_memory_equal(rec_text(&r, "a", &len), "22", 2);
	assert_null(rec_text(&r, "none", &len));
	assert_int_equal(rec_refresh(&r, &e), 0);
	assert_int_equal(json_int(rec_get(&r, "a"), 0), 22);
	assert_writes(&r, "{\"kind\":\"candidate\",\"v\":1,\"a\":22}");
	rec_drop(&r, "a");
	assert_null(rec_text(&r, "a", &len));
	rec_release(&r);
	rec_init(&r);
	assert_int_equal(rec_refresh(&r, &e), -1);
	set(&r, "kind", "\"task\"");
	set(&r, "v", "1");
	assert_int_equal(rec_refresh(&r, &e), 0);
	assert_int_equal(r.kind, REC_TASK);
	rec_release(&r);
}

static void records_do_not_outgrow_a_line(void **state)
{
	size_t n = JSON_MAX_LINE;
	char *big = malloc(n);
	struct str s = STR_INIT;
	struct rec r;

	(void)state;
	memset(big, 'x', n);
	big[0] = big[n - 1] = '"';
	parse(&r, "{\"kind\":\"x\",\"v\":1}");
	assert_int_equal(rec_set(&r, "a", big, n), 0);
	assert_int_equal(rec_write(&r, &s), -1);
	str_release(&s);
	rec_release(&r);
	free(big);
}

/* Known values: they are part of the schema. */
static void identities_are_stable(void **state)
{
	static const char a[] = "{\"b.cu\":\"y\",\"a.cu\":\"x\"}";
	static const char b[] = "{\"a.cu\":\"x\",\"b.cu\":\"y\"}";
	static const char c[] = "{\"a.cu\":\"xb.cuy\"}";
	struct json *ja = json_parse(a, strlen(a), 99, NULL, NULL);
	struct json *jb = json_parse(b, strlen(b), 99, NULL, NULL);
	struct json *jc = json_parse(c, strlen(c), 99, NULL, NULL);
	char x[REC_ID_LEN], y[REC_ID_LEN], z[REC_ID_LEN];

	(void)state;
	task_id("abc", 3, x);
	assert_string_equal(x, "ba7816bf8f01cfea414140de5dae2223");
	assert_int_equal(candidate_id(x, ja, y), 0);
	assert_int_equal(candidate_id(x, jb, z), 0);
	assert_string_equal(y, z);
	assert_string_equal(y, "5cac2a4a9e2b57d5a07b22894dd9e1d5");
	assert_int_equal(candidate_id(x, jc, z), 0);
	assert_string_not_equal(y, z);
	assert_int_equal(candidate_id("other", ja, z), 0);
	assert_string_not_equal(y, z);
	assert_int_equal(candidate_id(x, NULL, z), -1);
	json_free(ja);
	json_free(jb);
	json_free(jc);
}

/* What the ids of a candidate say when it leaves again. */
static void leaves_as(const char *in, const char *want)
{
	struct rec r;

	parse(&r, in);
	assert_int_equal(rec_true_ids(&r), 0);
	assert_writes(&r, want);
	rec_release(&r);
}

#define HEAD "{\"kind\":\"candidate\",\"v\":1"
#define ABC "\"task\":{\"id\":\"ba7816bf8f01cfea414140de5dae2223\"," \
	"\"code\":\"abc\",\"n\":[1]}"
#define AB "\"files\":{\"b.cu\":\"y\",\"a.cu\":\"x\"}}"

static void false_ids_are_put_right(void **state)
{
	(void)state;
	leaves_as(HEAD ",\"id\":7,\"task\":{\"id\":\"t\",\"code\":\"abc\","
		  "\"n\":[1]}, " AB,
		  HEAD ",\"id\":\"5cac2a4a9e2b57d5a07b22894dd9e1d5\"," ABC
		  ", " AB);
	leaves_as(HEAD "," ABC "," AB, HEAD "," ABC "," AB);
	/* nothing is added, and nothing is known without code */
	leaves_as(HEAD ",\"task\":{\"code\":\"abc\"}," AB,
		  HEAD ",\"task\":{\"code\":\"abc\"}," AB);
	leaves_as(HEAD ",\"id\":\"x\",\"task\":{\"id\":\"t\"}}",
		  HEAD ",\"id\":\"x\",\"task\":{\"id\":\"t\"}}");
}

static const char judged[] =
	"{\"kind\":\"candidate\",\"v\":1,\"task\":{\"id\":\"t\",\"code\":\"c\"}"
	",\"files\":{\"a\":\"1\"},\"build\":{\"status\":\"ok\",\"mac\":\"q\"}}";

static const char verdict[] = "{\"status\": \"wrong_value\",\"n\":1}";

static const char *const uses[] = { "build", NULL };

/* The record above with its verify field signed, and `from` replaced by `to`
 * afterwards. */
static int still_right(const struct mac_key *k, const char *from,
		       const char *to)
{
	struct str s = STR_INIT, t = STR_INIT;
	struct err e = ERR_INIT;
	struct rec r;
	char *at;
	int right;

	parse(&r, judged);
	assert_int_equal(mac_set(k, &r, "verify", verdict, strlen(verdict),
				 uses, &e), 0);
	rec_write(&r, &s);
	rec_release(&r);
	at = strstr(s.buf, from);
	assert_non_null(at);
	str_add(&t, s.buf, (size_t)(at - s.buf));
	str_adds(&t, to);
	str_adds(&t, at + strlen(from));
	parse(&r, t.buf);
	right = mac_check(k, &r, "verify", uses);
	rec_release(&r);
	str_release(&s);
	str_release(&t);
	return right;
}

static void macs_cover_what_decides(void **state)
{
	struct mac_key k = { { 1, 2, 3 }, 1 }, other = { { 9 }, 1 };
	struct rec r;

	(void)state;
	assert_true(still_right(&k, "", ""));
	assert_true(still_right(&k, "\"status\": \"wr", "\"status\":\"wr"));
	assert_true(still_right(&k, "\"v\":1,", "\"v\":1,\"name\":\"n\","));
	assert_false(still_right(&k, "wrong_value", "ok"));
	assert_false(still_right(&k, "\"n\":1", "\"n\":2"));
	assert_false(still_right(&k, "\"n\":1", "\"n\":1,\"m\":0"));
	assert_false(still_right(&k, "\"code\":\"c\"", "\"code\":\"d\""));
	assert_false(still_right(&k, "\"a\":\"1\"", "\"a\":\"2\""));
	assert_false(still_right(&k, "\"mac\":\"q\"", "\"mac\":\"r\""));
	assert_false(still_right(&k, "\"verify\"", "\"profile\""));
	assert_false(still_right(&k, "candidate", "task"));
	/* The identity written down is not what counts. */
	assert_true(still_right(&k, "\"id\":\"t\"", "\"id\":\"u\""));
	parse(&r, judged);
	assert_false(mac_check(&k, &r, "build", NULL));
	assert_false(mac_check(&k, &r, "verify", NULL));
	assert_int_equal(mac_set(&k, &r, "verify", "{}", 2, NULL, NULL), 0);
	assert_true(mac_check(&k, &r, "verify", NULL));
	assert_false(mac_check(&k, &r, "verify", uses));
	assert_false(mac_check(&other, &r, "verify", NULL));
	other.have = 0;
	assert_false(mac_check(&other, &r, "verify", NULL));
	assert_int_equal(mac_set(&k, &r, "verify", "[1]", 3, NULL, NULL), -1);
	rec_release(&r);
}

static void keys_are_made_once_and_kept_private(void **state)
{
	char dir[256], path[300];
	struct mac_key a, b;
	struct err e = ERR_INIT;
	struct stat st;

	(void)state;
	assert_int_equal(make_temp_dir("rec_test", dir, sizeof dir, &e), 0);
	setenv("CA_CONFIG", dir, 1);
	snprintf(path, sizeof path, "%s/key", dir);
	assert_int_equal(mac_key_load(&a, NULL, &e), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(mac_key_load(&b, path, &e), 0);
	assert_memory_equal(a.bytes, b.bytes, sizeof a.bytes);
	chmod(path, 0640);
	assert_int_equal(mac_key_load(&b, NULL, &e), -1);
	assert_int_equal(e.code, CA_CONFIG);
	assert_false(b.have);
	chmod(path, 0600);
	write_file_atomic(path, "0123\n", 5, 0600, &e);
	assert_int_equal(mac_key_load(&b, path, &e), -1);
	assert_int_equal(e.code, CA_CONFIG);
	unlink(path);
	assert_int_equal(mac_key_load(&b, path, &e), -1);
	assert_int_equal(e.code, CA_NOINPUT);
	remove_tree(dir, &e);
}

static void status_words_are_an_enum(void **state)
{
	int i;

	(void)state;
	for (i = 0; i < ST_COUNT; i++) {
		const char *name = status_name((enum status)i);

		assert_int_equal(status_parse(name), i);
		assert_true(strlen(status_meaning((enum status)i)) > 5);
	}
	assert_int_equal(status_parse("OK"), ST_NONE);
	assert_int_equal(status_parse(NULL), ST_NONE);
	assert_string_equal(status_name(ST_NONE), "unknown");
	assert_string_equal(status_name(ST_COUNT), "unknown");
}

static void put(int fd, const char *text)
{
	assert_int_equal(write_full(fd, text, strlen(text), NULL), 0);
}

static void nobody_waits_for_half_a_line(void **state)
{
	struct err e = ERR_INIT;
	static char block[65536];
	struct reader r;
	size_t len, sent;
	char *line;
	int fd[2];

	(void)state;
	assert_int_equal(pipe(fd), 0);
	reader_init(&r, fd[0], -1);
	assert_int_equal(reader_ready(&r), 0);
	put(fd[1], "one\ntwo\nthr");
	assert_int_equal(reader_ready(&r), 1);
	assert_int_equal(reader_next(&r, &line, &len, &e), LINE_OK);
	assert_int_equal(reader_next(&r, &line, &len, &e), LINE_OK);
	assert_memory_equal(line, "two", 3);
	assert_int_equal(reader_ready(&r), 0);
	put(fd[1], "ee\nfour");
	assert_int_equal(reader_ready(&r), 1);
	assert_int_equal(reader_next(&r, &line, &len, &e), LINE_OK);
	assert_memory_equal(line, "three", 5);
	/* One that is too long takes no memory while it comes. */
	memset(block, 'x', sizeof(block));
	for (sent = 0; sent <= JSON_MAX_LINE; sent += sizeof(block)) {
		assert_int_equal(write_full(fd[1], block, sizeof(block),
					    NULL), 0);
		assert_int_equal(reader_ready(&r), 0);
	}
	put(fd[1], "\nfive");
	assert_int_equal(reader_ready(&r), 1);
	assert_int_equal(reader_next(&r, &line, &len, &e), LINE_LONG);
	assert_int_equal(r.lineno, 4);
	close(fd[1]);
	assert_int_equal(reader_ready(&r), 1);
	assert_int_equal(reader_next(&r, &line, &len, &e), LINE_TRUNCATED);
	assert_memory_equal(line, "five", 4);
	assert_int_equal(reader_next(&r, &line, &len, &e), LINE_END);
	reader_release(&r);
	close(fd[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(envelopes_are_checked),
		cmocka_unit_test(kinds_have_names),
		cmocka_unit_test(untouched_bytes_stay),
		cmocka_unit_test(members_drop_anywhere),
		cmocka_unit_test(only_json_can_be_set),
		cmocka_unit_test(refresh_shows_what_was_set),
		cmocka_unit_test(records_do_not_outgrow_a_line),
		cmocka_unit_test(identities_are_stable),
		cmocka_unit_test(false_ids_are_put_right),
		cmocka_unit_test(macs_cover_what_decides),
		cmocka_unit_test(keys_are_made_once_and_kept_private),
		cmocka_unit_test(status_words_are_an_enum),
		cmocka_unit_test(nobody_waits_for_half_a_line),
	};

	return RUN_TESTS(tests);
}
