/* SPDX-License-Identifier: Apache-2.0
 *
 * Message authentication codes of result fields.
 */
#define _GNU_SOURCE
#include "rec/mac.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/stat.h>

#include "base/hash.h"
#include "base/io.h"
#include "base/path.h"
#include "base/rand.h"

#define KEY_TEXT (2 * sizeof ((struct mac_key *)0)->bytes)

static int hex_value(char c)
{
	const char *digits = "0123456789abcdef", *at = c ? strchr(digits, c) :
							   NULL;

	return at ? (int)(at - digits) : -1;
}

static int parse_key(struct mac_key *k, const struct str *s)
{
	size_t i;

	if (s->len != KEY_TEXT && !(s->len == KEY_TEXT + 1 &&
				    s->buf[KEY_TEXT] == '\n'))
		return -1;
	for (i = 0; i < sizeof k->bytes; i++) {
		int hi = hex_value(s->buf[2 * i]);
		int lo = hex_value(s->buf[2 * i + 1]);

		if (hi < 0 || lo < 0)
			return -1;
		k->bytes[i] = (uint8_t)(hi << 4 | lo);
	}
	k->have = 1;
	return 0;
}

static int read_key(struct mac_key *k, const char *path, struct err *e)
{
	struct str s = STR_INIT;
	struct stat st;
	int rc = -1;

	if (stat(path, &st))
		return err_sys(e, CA_NOINPUT, "cannot open '%s'", path);
	if (st.st_mode & 077)
		return err_set(e, CA_CONFIG, "key '%s' can be read by others: "
			       "chmod 600 it", path);
	if (read_file(path, 4096, &s, e) == 0) {
		rc = parse_key(k, &s);
		if (rc)
			err_set(e, CA_CONFIG, "key '%s' is not %zu lower-case "
				"hexadecimal digits", path, KEY_TEXT);
	}
	if (s.buf)
		explicit_bzero(s.buf, s.alloc);
	str_release(&s);
	return rc;
}

/* A new key appears whole or not at all, and where two programs make one at
 * once, both end up with the same. */
static int make_key(const char *path, struct err *e)
{
	char text[KEY_TEXT + 2], temp[CA_PATH_MAX];
	uint8_t raw[sizeof ((struct mac_key *)0)->bytes];
	struct rng r;
	int fd, rc;

	rng_fresh(&r);
	rng_fill(&r, raw, sizeof raw);
	hex(raw, sizeof raw, text);
	strcpy(text + KEY_TEXT, "\n");
	if (strlen(path) + 8 > sizeof temp)
		return err_set(e, CA_CONFIG, "'%s' is too long a name", path);
	strcpy(temp, path);
	strcat(temp, ".XXXXXX");
	fd = mkostemp(temp, O_CLOEXEC);
	if (fd < 0)
		return err_sys(e, CA_CANTCREAT, "cannot create '%s'", temp);
	rc = write_full(fd, text, KEY_TEXT + 1, e);
	if (rc < 0)
		err_wrap(e, "'%s'", temp);
	if (close(fd) && rc == 0)
		rc = err_sys(e, CA_IOERR, "cannot write '%s'", temp);
	if (rc == 0 && link(temp, path) && errno != EEXIST)
		rc = err_sys(e, CA_CANTCREAT, "cannot create '%s'", path);
	unlink(temp);
	return rc;
}

int mac_key_load(struct mac_key *k, const char *path, struct err *e)
{
	char own[CA_PATH_MAX];

	k->have = 0;
	if (path)
		return read_key(k, path, e);
	if (path_config(own, "key", e))
		return -1;
	if (access(own, F_OK) && make_key(own, e))
		return -1;
	return read_key(k, own, e);
}

/* Adds a part with its length in front, so that parts cannot run together. */
static void add_part(struct str *s, const void *p, size_t len)
{
	uint8_t n[8];
	int i;

	for (i = 0; i < 8; i++)
		n[i] = (uint8_t)((uint64_t)len >> 8 * i);
	str_add(s, n, sizeof n);
	str_add(s, p, len);
}

static void add_text(struct str *s, const char *text)
{
	add_part(s, text, strlen(text));
}

static int add_canon(struct str *s, const char *json, size_t len,
		     const char *without, struct err *e)
{
	struct str c = STR_INIT;
	int rc = json_canon_without(json, len, without, &c, e);

	if (rc == 0)
		add_part(s, c.buf, c.len);
	str_release(&c);
	return rc;
}

/* Task and candidate, by identities made anew from what they name. */
static int add_identity(struct str *s, const struct rec *r, struct err *e)
{
	const struct json *files = rec_get(r, "files");
	const char *code = json_str(json_path(r->root, "task.code"), NULL);
	char task[REC_ID_LEN] = "", cand[REC_ID_LEN] = "";
	const char *name;

	if (!code)
		code = json_str(rec_get(r, "code"), NULL);
	if (code)
		task_id(code, strlen(code), task);
	name = code ? task : json_str(json_path(r->root, "task.id"), "");
	add_text(s, name);
	/* Anything else can't be judged, and is no more than nothing. */
	if (json_type(files) == JSON_OBJECT &&
	    candidate_id(name, files, cand))
		return err_set(e, CA_SOFTWARE, "no memory for a mac");
	add_text(s, cand);
	return 0;
}

static int compute(const struct mac_key *k, const struct rec *r,
		   const char *field, const char *json, size_t len,
		   const char *const *uses, char out[HASH_HEX], struct err *e)
{
	struct str s = STR_INIT;
	uint8_t sum[HASH_LEN];
	int rc = -1;

	add_text(&s, "cuda-agent mac 1");
	add_text(&s, rec_kind_name(r->kind));
	if (add_identity(&s, r, e))
		goto out;
	add_text(&s, field);
	if (add_canon(&s, json, len, "mac", e))
		goto out;
	for (; uses && *uses; uses++) {
		size_t n = 0;
		const char *text = rec_text(r, *uses, &n);

		add_text(&s, *uses);
		if (!text)
			add_text(&s, "");
		else if (add_canon(&s, text, n, NULL, e))
			goto out;
	}
	if (s.failed) {
		err_set(e, CA_SOFTWARE, "no memory for a mac");
		goto out;
	}
	hmac_sha256(k->bytes, sizeof k->bytes, s.buf, s.len, sum);
	hex(sum, sizeof sum, out);
	rc = 0;
out:
	str_release(&s);
	return rc;
}

/* The object's text with one more member. */
static int splice_mac(struct str *s, const char *json, size_t len,
		      const char *mac)
{
	const char *inside = scan_space(json, json + len) + 1;

	while (len && json[len - 1] != '}')
		len--;
	str_add(s, json, len - 1);
	if (*scan_space(inside, json + len) != '}')
		str_addc(s, ',');
	return str_addf(s, "\"mac\":\"%s\"}", mac);
}

int mac_set(const struct mac_key *k, struct rec *r, const char *field,
	    const char *json, size_t len, const char *const *uses,
	    struct err *e)
{
	struct str s = STR_INIT;
	char mac[HASH_HEX];
	int rc = -1;

	if (!k->have || !r->root) {
		err_set(e, CA_SOFTWARE, "no %s for the mac of '%s'",
			k->have ? "tree" : "key", field);
		goto out;
	}
	if (json_check(json, len, JSON_MAX_LINE, NULL, e) ||
	    *scan_space(json, json + len) != '{') {
		err_set(e, CA_SOFTWARE, "'%s' is not a JSON object", field);
		goto out;
	}
	if (compute(k, r, field, json, len, uses, mac, e))
		goto out;
	if (splice_mac(&s, json, len, mac) || rec_set(r, field, s.buf, s.len)) {
		err_set(e, CA_SOFTWARE, "no memory for '%s'", field);
		goto out;
	}
	rc = 0;
out:
	str_release(&s);
	return rc;
}

/* The mac that the field's text carries, in a tree that the caller frees. */
static struct json *carried(const char *json, size_t len, const char **mac)
{
	struct json *j = json_parse(json, len, JSON_MAX_LINE, NULL, NULL);

	*mac = json_get_str(j, "mac", NULL);
	return j;
}

int mac_check(const struct mac_key *k, const struct rec *r, const char *field,
	      const char *const *uses)
{
	char want[HASH_HEX];
	const char *text, *mac;
	struct json *j;
	size_t len = 0;
	int right = 0;

	text = rec_text(r, field, &len);
	if (!text || !k->have || !r->root)
		return 0;
	j = carried(text, len, &mac);
	if (mac && strlen(mac) == HASH_HEX - 1 &&
	    compute(k, r, field, text, len, uses, want, NULL) == 0)
		right = hash_equal(mac, want, HASH_HEX - 1);
	json_free(j);
	return right;
}
