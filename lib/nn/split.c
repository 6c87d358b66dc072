/* SPDX-License-Identifier: Apache-2.0
 *
 * The patterns run on Oniguruma, which `tokenizers` uses too, so that every
 * class and every look-ahead means the same.
 */
#include "nn/split.h"

#include <stdlib.h>
#include <string.h>

#include <oniguruma.h>
#include <utf8proc.h>

#include "base/utf8.h"

#define STEPS_MAX   8
#define PATTERN_MAX 65536
#define RETRIES     10000000	/* in one match */

/* What ByteLevel itself splits by (GPT-2's pattern). */
static const char byte_level[] =
	"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+|"
	" ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

struct step {
	regex_t *re;			/* NULL: digits, one by one */
	OnigRegion *region;
};

struct split {
	int nfc, prefix_space;
	struct step step[STEPS_MAX];
	int steps;
	OnigMatchParam *limits;
};

static int nfc_only(const struct json *j, int *nfc, struct err *e)
{
	const char *type = json_get_str(j, "type", "");
	const struct json *all = json_get(j, "normalizers");

	if (json_type(j) == JSON_NULL || json_type(j) == JSON_NONE)
		return 0;
	if (!strcmp(type, "NFC")) {
		*nfc = 1;
		return 0;
	}
	if (strcmp(type, "Sequence"))
		return err_set(e, CA_CONFIG, "normalizer '%s' is not computed "
			       "here; NFC is", type);
	for (j = json_first(all); j; j = json_next(j)) {
		type = json_get_str(j, "type", "");
		if (strcmp(type, "NFC"))
			return err_set(e, CA_CONFIG, "normalizer '%s' is not "
				       "computed here; NFC is", type);
		*nfc = 1;
	}
	return 0;
}

static struct step *new_step(struct split *s, struct err *e)
{
	if (s->steps == STEPS_MAX) {
		err_set(e, CA_CONFIG, "more than %d pre-tokenizers",
			STEPS_MAX);
		return NULL;
	}
	return &s->step[s->steps++];
}

static int add_pattern(struct split *s, const char *pattern, struct err *e)
{
	const OnigUChar *p = (const OnigUChar *)pattern;
	struct step *step = new_step(s, e);
	OnigUChar text[ONIG_MAX_ERROR_MESSAGE_LEN];
	OnigErrorInfo info;
	size_t len = strlen(pattern);
	int rc;

	if (!step)
		return -1;
	if (len > PATTERN_MAX)
		return err_set(e, CA_DATAERR, "pattern is too long");
	rc = onig_new(&step->re, p, p + len, ONIG_OPTION_NONE,
		      ONIG_ENCODING_UTF8, ONIG_SYNTAX_DEFAULT, &info);
	if (rc != ONIG_NORMAL) {
		step->re = NULL;
		s->steps--;
		onig_error_code_to_str(text, rc, &info);
		return err_set(e, CA_DATAERR, "pattern '%.200s': %s", pattern,
			       (char *)text);
	}
	step->region = onig_region_new();
	return step->region ? 0 : err_set(e, CA_SOFTWARE, "no memory");
}

static int add_split(struct split *s, const struct json *j, struct err *e)
{
	const char *behavior = json_get_str(j, "behavior", "");
	const char *regex = json_str(json_path(j, "pattern.Regex"), NULL);

	if (strcmp(behavior, "Isolated") || json_get_bool(j, "invert", 0))
		return err_set(e, CA_CONFIG, "pre-tokenizer Split with "
			       "behavior '%s'%s is not computed here; "
			       "Isolated is", behavior,
			       json_get_bool(j, "invert", 0) ? " inverted" :
			       "");
	if (!regex)
		return err_set(e, CA_CONFIG, "pre-tokenizer Split has no "
			       "Regex");
	return add_pattern(s, regex, e);
}

/* One pre-tokeniser that is no sequence; *bytes is set by ByteLevel. */
static int add_one(struct split *s, const struct json *j, int *bytes,
		   struct err *e)
{
	const char *type = json_get_str(j, "type", "");

	if (*bytes)
		return err_set(e, CA_CONFIG, "pre-tokenizer '%s' after "
			       "ByteLevel", type);
	if (!strcmp(type, "Split"))
		return add_split(s, j, e);
	if (!strcmp(type, "Digits")) {
		if (!json_get_bool(j, "individual_digits", 0))
			return add_pattern(s, "\\p{N}+", e);
		return new_step(s, e) ? 0 : -1;
	}
	if (strcmp(type, "ByteLevel"))
		return err_set(e, CA_CONFIG, "pre-tokenizer '%s' is not "
			       "computed here; Split, Digits and ByteLevel "
			       "are", type);
	*bytes = 1;
	if (json_get_bool(j, "add_prefix_space", 1)) {
		if (s->steps)
			return err_set(e, CA_CONFIG, "ByteLevel with "
				       "add_prefix_space after another "
				       "pre-tokenizer");
		s->prefix_space = 1;
	}
	return json_get_bool(j, "use_regex", 1) ?
	       add_pattern(s, byte_level, e) : 0;
}

static int add_all(struct split *s, const struct json *pre, struct err *e)
{
	const struct json *j;
	int bytes = 0;

	if (!strcmp(json_get_str(pre, "type", ""), "Sequence")) {
		j = json_first(json_get(pre, "pretokenizers"));
		for (; j; j = json_next(j))
			if (add_one(s, j, &bytes, e))
				return -1;
	} else if (json_type(pre) == JSON_OBJECT) {
		if (add_one(s, pre, &bytes, e))
			return -1;
	}
	if (!bytes)
		return err_set(e, CA_CONFIG, "pre-tokenizer is not ByteLevel: "
			       "only byte-level BPE is computed here");
	return 0;
}

struct split *split_new(const struct json *normalizer,
			const struct json *pre, struct err *e)
{
	struct split *s = calloc(1, sizeof *s);

	if (s)
		s->limits = onig_new_match_param();
	if (!s || !s->limits) {
		free(s);
		err_set(e, CA_SOFTWARE, "no memory");
		return NULL;
	}
	onig_initialize_match_param(s->limits);
	if (nfc_only(normalizer, &s->nfc, e) || add_all(s, pre, e)) {
		split_free(s);
		return NULL;
	}
	return s;
}

void split_free(struct split *s)
{
	if (!s)
		return;
	for (int i = 0; i < s->steps; i++) {
		if (s->step[i].re)
			onig_free(s->step[i].re);
		if (s->step[i].region)
			onig_region_free(s->step[i].region, 1);
	}
	onig_free_match_param(s->limits);
	free(s);
}

int split_normalizes(const struct split *s, const char *p, size_t len)
{
	if (!s->nfc)
		return 0;
	for (size_t i = 0; i < len; i++)
		if (p[i] & 0x80)
			return 1;
	return 0;
}

char *split_normalize(const char *p, size_t len, size_t *outlen,
		      struct err *e)
{
	utf8proc_uint8_t *out = NULL;
	utf8proc_ssize_t n;

	n = utf8proc_map((const utf8proc_uint8_t *)p, (utf8proc_ssize_t)len,
			 &out, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
	if (n < 0) {
		err_set(e, CA_DATAERR, "NFC: %s", utf8proc_errmsg(n));
		return NULL;
	}
	*outlen = (size_t)n;
	return (char *)out;
}

static int run_from(struct split *s, int at, const char *p, size_t len,
		    split_piece *piece, void *ctx, struct err *e);

/* Hands on what lies between matches, and the matches. */
static int run_pattern(struct split *s, int at, const char *p, size_t len,
		       split_piece *piece, void *ctx, struct err *e)
{
	struct step *step = &s->step[at];
	const OnigUChar *text = (const OnigUChar *)p, *end = text + len;
	size_t done = 0, from, to, look = 0;
	int rc;

	while (look < len) {
		rc = onig_search_with_param(step->re, text, end, text + look,
					    end, step->region,
					    ONIG_OPTION_NONE, s->limits);
		if (rc == ONIG_MISMATCH)
			break;
		if (rc < 0)
			return err_set(e, CA_DATAERR, "pattern of the "
				       "pre-tokenizer takes too long (%d)",
				       rc);
		from = (size_t)step->region->beg[0];
		to = (size_t)step->region->end[0];
		look = to;
		if (to == from) {	/* nothing: look behind next letter */
			look += utf8_len(p + to, len - to);
			if (look == to)
				break;
			continue;
		}
		rc = from > done ? run_from(s, at + 1, p + done, from - done,
					    piece, ctx, e) : 0;
		if (!rc)
			rc = run_from(s, at + 1, p + from, to - from, piece,
				      ctx, e);
		if (rc)
			return rc;
		done = to;
	}
	return done < len ? run_from(s, at + 1, p + done, len - done, piece,
				     ctx, e) : 0;
}

static int is_digit(const char *p, size_t n)
{
	utf8proc_int32_t c;

	if (n == 1)
		return *p >= '0' && *p <= '9';
	utf8proc_iterate((const utf8proc_uint8_t *)p, (utf8proc_ssize_t)n,
			 &c);
	switch (utf8proc_category(c)) {
	case UTF8PROC_CATEGORY_ND:
	case UTF8PROC_CATEGORY_NL:
	case UTF8PROC_CATEGORY_NO:
		return 1;
	default:
		return 0;
	}
}

static int run_digits(struct split *s, int at, const char *p, size_t len,
		      split_piece *piece, void *ctx, struct err *e)
{
	size_t done = 0, n;
	int rc = 0;

	for (size_t i = 0; i < len && !rc; i += n) {
		n = utf8_len(p + i, len - i);
		if (!n)
			return err_set(e, CA_DATAERR, "text is not UTF-8");
		if (!is_digit(p + i, n))
			continue;
		if (i > done)
			rc = run_from(s, at + 1, p + done, i - done, piece,
				      ctx, e);
		if (!rc)
			rc = run_from(s, at + 1, p + i, n, piece, ctx, e);
		done = i + n;
	}
	if (!rc && done < len)
		rc = run_from(s, at + 1, p + done, len - done, piece, ctx, e);
	return rc;
}

static int run_from(struct split *s, int at, const char *p, size_t len,
		    split_piece *piece, void *ctx, struct err *e)
{
	if (at == s->steps)
		return piece(ctx, p, len);
	if (s->step[at].re)
		return run_pattern(s, at, p, len, piece, ctx, e);
	return run_digits(s, at, p, len, piece, ctx, e);
}

int split_run(struct split *s, const char *p, size_t len, split_piece *piece,
	      void *ctx, struct err *e)
{
	char *spaced;
	int rc;

	if (!len)
		return 0;
	/* A megabyte of spaces takes some retries for each. */
	onig_set_retry_limit_in_match_of_match_param(s->limits,
						     RETRIES + 64 * len);
	if (!s->prefix_space || *p == ' ')
		return run_from(s, 0, p, len, piece, ctx, e);
	spaced = malloc(len + 1);
	if (!spaced)
		return err_set(e, CA_SOFTWARE, "no memory");
	spaced[0] = ' ';
	memcpy(spaced + 1, p, len);
	rc = run_from(s, 0, spaced, len + 1, piece, ctx, e);
	free(spaced);
	return rc;
}
