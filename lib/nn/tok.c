/* SPDX-License-Identifier: Apache-2.0
 *
 * In tokenizer.json every byte of a token is spelt as a printable character
 * (0x20 as U+0120).  They are read back to bytes here once, so that nothing
 * has to be spelt for each text.
 */
#include "nn/tok.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/io.h"
#include "base/path.h"
#include "base/utf8.h"
#include "nn/added.h"
#include "nn/bpe.h"
#include "nn/keep.h"
#include "nn/split.h"
#include "rec/json.h"

#define ID_MAX	   ((int64_t)1 << 22)
#define TEMPLATE_MAX 16
#define KNOWN_LEAST  256		/* bytes of a text worth keeping */
#define KNOWN_MOST   ((size_t)64 << 20)

struct entry {
	const char *p;			/* NULL: no such token */
	size_t len;
	int special, added;
};

struct tok {
	struct arena arena;
	short byte_of[0x800];		/* by character of a token; -1 */
	struct entry *entry;		/* by id */
	int32_t count;
	struct bpe *bpe;
	struct split *split;
	struct added *raw, *normalized;
	struct keep *known;		/* texts between added tokens */
	int32_t before[TEMPLATE_MAX], after[TEMPLATE_MAX];
	int nbefore, nafter;
};

void tok_ids_release(struct tok_ids *ids)
{
	free(ids->id);
	*ids = (struct tok_ids)TOK_IDS_INIT;
}

/* Room for n more. */
static int grow(struct tok_ids *ids, size_t n)
{
	size_t want = ids->alloc ? ids->alloc : 256;
	int32_t *p;

	if (n <= ids->alloc - ids->n)
		return 0;
	while (want < ids->n + n)
		want *= 2;
	p = realloc(ids->id, want * sizeof *p);
	if (!p)
		return -1;
	ids->id = p;
	ids->alloc = want;
	return 0;
}

int tok_ids_add(struct tok_ids *ids, int32_t id)
{
	if (grow(ids, 1))
		return -1;
	ids->id[ids->n++] = id;
	return 0;
}

int tok_ids_join(struct tok_ids *ids, const int32_t *id, size_t n)
{
	if (grow(ids, n))
		return -1;
	if (n)
		memcpy(ids->id + ids->n, id, n * sizeof *id);
	ids->n += n;
	return 0;
}

static int no_memory(struct err *e)
{
	return err_set(e, CA_SOFTWARE, "no memory");
}

/* The byte that a character of a token stands for; -1: none. */
static int spelt_byte(unsigned cp)
{
	static const struct { unsigned char from, to; } plain[] = {
		{ '!', '~' }, { 0xa1, 0xac }, { 0xae, 0xff }
	};
	unsigned next = 0x100;

	for (size_t i = 0; i < 3; i++)
		if (cp >= plain[i].from && cp <= plain[i].to)
			return (int)cp;
	/* The others follow U+0100 in order. */
	for (unsigned b = 0; b < 256; b++) {
		int is_plain = (b >= '!' && b <= '~') ||
			       (b >= 0xa1 && b != 0xad);

		if (!is_plain && next++ == cp)
			return (int)b;
	}
	return -1;
}

/* Spelt text back to bytes, in the arena; 0 when it is not all spelt.  Only
 * characters of one or two bytes can be. */
static int unspell(struct tok *t, const char *text, struct entry *out)
{
	size_t len = strlen(text), n = 0;
	char *p = arena_alloc(&t->arena, len + 1, 1);

	for (size_t i = 0; p && i < len; ) {
		unsigned c = (unsigned char)text[i++];

		if (c >= 0xe0)
			return 0;
		if (c >= 0x80)
			c = (c & 31) << 6 | ((unsigned char)text[i++] & 63);
		if (t->byte_of[c] < 0)
			return 0;
		p[n++] = (char)t->byte_of[c];
	}
	out->p = p;
	out->len = n;
	return p ? 1 : -1;
}

static int set_entry(struct tok *t, int64_t id, const char *text, int spelt,
		     struct err *e)
{
	struct entry *x;
	int rc = 0;

	if (id < 0 || id >= t->count)
		return err_set(e, CA_DATAERR, "token '%s' has a bad id",
			       text);
	x = &t->entry[id];
	if (spelt)
		rc = unspell(t, text, x);
	if (!rc) {			/* as it stands */
		x->len = strlen(text);
		x->p = arena_strndup(&t->arena, text, x->len);
	}
	return x->p ? rc : no_memory(e);
}

static int count_ids(struct tok *t, const struct json *vocab,
		     const struct json *added, struct err *e)
{
	int64_t top = -1, id;

	for (const struct json *j = json_first(vocab); j; j = json_next(j))
		if ((id = json_int(j, -1)) > top)
			top = id;
	for (const struct json *j = json_first(added); j; j = json_next(j))
		if ((id = json_get_int(j, "id", -1)) > top)
			top = id;
	if (top < 0 || top >= ID_MAX)
		return err_set(e, CA_DATAERR, "vocabulary is empty or too "
			       "large");
	t->count = (int32_t)(top + 1);
	t->entry = calloc((size_t)t->count, sizeof *t->entry);
	return t->entry ? 0 : no_memory(e);
}

static int load_vocab(struct tok *t, const struct json *vocab, struct err *e)
{
	for (const struct json *j = json_first(vocab); j; j = json_next(j)) {
		int64_t id = json_int(j, -1);
		int rc = set_entry(t, id, json_key(j), 1, e);

		if (rc < 0)
			return -1;
		if (rc && bpe_token(t->bpe, t->entry[id].p, t->entry[id].len,
				    (int32_t)id))
			return err_set(e, CA_DATAERR, "token '%s' is there "
				       "twice", json_key(j));
	}
	return 0;
}

/* Both spellings of a merge: "a b" and ["a", "b"]. */
static int read_merge(const struct json *j, const char **left,
		      size_t *leftlen, const char **right)
{
	const char *text = json_str(j, NULL), *space;

	if (text) {
		space = strchr(text, ' ');
		if (!space || strchr(space + 1, ' '))
			return -1;
		*left = text;
		*leftlen = (size_t)(space - text);
		*right = space + 1;
		return 0;
	}
	if (json_len(j) != 2)
		return -1;
	*left = json_str(json_first(j), NULL);
	*right = json_str(json_next(json_first(j)), NULL);
	if (!*left || !*right)
		return -1;
	*leftlen = strlen(*left);
	return 0;
}

static int find_spelt(struct tok *t, const char *text, size_t len,
		      struct str *bytes, int32_t *id)
{
	struct entry x = { NULL, 0, 0, 0 };
	char *copy = arena_strndup(&t->arena, text, len);

	if (!copy || unspell(t, copy, &x) <= 0 ||
	    str_add(bytes, x.p, x.len))
		return -1;
	*id = bpe_find(t->bpe, x.p, x.len);
	return *id < 0 ? -1 : 0;
}

static int load_merge(struct tok *t, const struct json *j, struct str *both)
{
	const char *left, *right;
	int32_t a, b, id;
	size_t n;

	str_reset(both);
	if (read_merge(j, &left, &n, &right) ||
	    find_spelt(t, left, n, both, &a) ||
	    find_spelt(t, right, strlen(right), both, &b))
		return -1;
	id = bpe_find(t->bpe, both->buf, both->len);
	if (id < 0)
		return -1;
	bpe_merge(t->bpe, a, b, id);
	return 0;
}

static int load_merges(struct tok *t, const struct json *merges,
		       struct err *e)
{
	struct str both = STR_INIT;
	size_t line = 0;
	int rc = 0;

	for (const struct json *j = json_first(merges); j && !rc;
	     j = json_next(j)) {
		line++;
		if (load_merge(t, j, &both))
			rc = err_set(e, CA_DATAERR, "merge %zu is broken or "
				     "makes no token", line);
	}
	str_release(&both);
	return rc;
}

static int load_added(struct tok *t, const struct json *added, struct err *e)
{
	for (const struct json *j = json_first(added); j; j = json_next(j)) {
		const char *text = json_get_str(j, "content", "");
		int64_t id = json_get_int(j, "id", -1);
		struct added_token a = {
			.id = (int32_t)id,
			.special = json_get_bool(j, "special", 0),
			.normalized = json_get_bool(j, "normalized", 0),
			.single_word = json_get_bool(j, "single_word", 0),
			.lstrip = json_get_bool(j, "lstrip", 0),
			.rstrip = json_get_bool(j, "rstrip", 0),
		};

		if (!*text)
			return err_set(e, CA_DATAERR, "an added token is "
				       "empty");
		if (set_entry(t, id, text, 0, e))
			return -1;
		t->entry[id].special = a.special;
		t->entry[id].added = 1;
		a.p = t->entry[id].p;
		a.len = t->entry[id].len;
		if (added_add(a.normalized ? t->normalized : t->raw, &a))
			return no_memory(e);
	}
	return 0;
}

/* {"single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": ...}]} */
static int load_template(struct tok *t, const struct json *post,
			 struct err *e)
{
	const struct json *j = json_first(json_get(post, "single"));
	int behind = 0;

	for (; j; j = json_next(j)) {
		const char *name = json_str(json_path(j, "SpecialToken.id"),
					    NULL);
		int *n = behind ? &t->nafter : &t->nbefore;
		int32_t id;

		if (!name) {
			behind = 1;
			continue;
		}
		id = tok_id(t, name, strlen(name));
		if (id < 0 || *n == TEMPLATE_MAX)
			return err_set(e, CA_DATAERR, "template names '%s'",
				       name);
		(behind ? t->after : t->before)[(*n)++] = id;
	}
	return 0;
}

static int load_post(struct tok *t, const struct json *post, struct err *e)
{
	const char *type = json_get_str(post, "type", "ByteLevel");

	if (!strcmp(type, "TemplateProcessing"))
		return load_template(t, post, e);
	if (!strcmp(type, "Sequence")) {
		const struct json *j = json_first(json_get(post,
							   "processors"));

		for (; j; j = json_next(j))
			if (!strcmp(json_get_str(j, "type", ""),
				    "TemplateProcessing") &&
			    load_template(t, j, e))
				return -1;
		return 0;
	}
	if (strcmp(type, "ByteLevel"))
		return err_set(e, CA_CONFIG, "post-processor '%s' is not "
			       "computed here", type);
	return 0;
}

static int check_model(const struct json *m, struct err *e)
{
	static const char *const empty[] = {
		"continuing_subword_prefix", "end_of_word_suffix"
	};
	const char *type = json_get_str(m, "type", "BPE");

	if (strcmp(type, "BPE"))
		return err_set(e, CA_CONFIG, "tokenizer model '%s' is not "
			       "computed here; byte-level BPE is", type);
	for (size_t i = 0; i < 2; i++)
		if (*json_get_str(m, empty[i], ""))
			return err_set(e, CA_CONFIG, "BPE with '%s' is not "
				       "computed here", empty[i]);
	if (json_get_bool(m, "byte_fallback", 0) ||
	    json_get_num(m, "dropout", 0) > 0)
		return err_set(e, CA_CONFIG, "BPE with byte_fallback or "
			       "dropout is not computed here");
	if (json_type(json_get(m, "vocab")) != JSON_OBJECT ||
	    json_type(json_get(m, "merges")) != JSON_ARRAY)
		return err_set(e, CA_DATAERR, "no vocab or no merges");
	return 0;
}

static int load(struct tok *t, const struct json *root, struct err *e)
{
	const struct json *m = json_get(root, "model");
	const struct json *vocab = json_get(m, "vocab");
	const struct json *merges = json_get(m, "merges");
	const struct json *added = json_get(root, "added_tokens");

	if (check_model(m, e) || count_ids(t, vocab, added, e))
		return -1;
	t->bpe = bpe_new(json_len(vocab), json_len(merges));
	t->raw = added_new();
	t->normalized = added_new();
	t->known = keep_new(KNOWN_MOST);
	if (!t->bpe || !t->raw || !t->normalized || !t->known)
		return no_memory(e);
	bpe_ignore_merges(t->bpe, json_get_bool(m, "ignore_merges", 0));
	t->split = split_new(json_get(root, "normalizer"),
			     json_get(root, "pre_tokenizer"), e);
	if (!t->split || load_vocab(t, vocab, e) ||
	    load_merges(t, merges, e) || load_added(t, added, e))
		return -1;
	return load_post(t, json_get(root, "post_processor"), e);
}

struct tok *tok_parse(const char *text, size_t len, struct err *e)
{
	struct json *root = json_parse(text, len, JSON_MAX_FILE, NULL, e);
	struct tok *t = root ? calloc(1, sizeof *t) : NULL;

	if (root && !t)
		no_memory(e);
	for (unsigned c = 0; t && c < 0x800; c++)
		t->byte_of[c] = (short)spelt_byte(c);
	if (t && load(t, root, e)) {
		tok_free(t);
		t = NULL;
	}
	json_free(root);
	return t;
}

struct tok *tok_open(const char *dir, struct err *e)
{
	char path[CA_PATH_MAX];
	struct str text = STR_INIT;
	struct tok *t = NULL;

	snprintf(path, sizeof path, "%s/tokenizer.json", dir);
	if (!read_file(path, JSON_MAX_FILE, &text, e)) {
		t = tok_parse(text.buf, text.len, e);
		if (!t)
			err_wrap(e, "'%s'", path);
	}
	str_release(&text);
	return t;
}

void tok_free(struct tok *t)
{
	if (!t)
		return;
	bpe_free(t->bpe);
	split_free(t->split);
	added_free(t->raw);
	added_free(t->normalized);
	arena_release(&t->arena);
	keep_free(t->known);
	free(t->entry);
	free(t);
}

struct encoding {
	struct tok *t;
	struct tok_ids *out;
	int plain;
	const char *text;		/* that the spans are of */
	const struct tok_span *span;
	size_t nspans;
};

/* Whether p[0, len) of the text touches a span. */
static int touches(const struct encoding *x, const char *p, size_t len)
{
	size_t from = (size_t)(p - x->text), lo = 0, hi = x->nspans;

	/* The first span that ends behind `from`. */
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (x->span[mid].to <= from)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < x->nspans && x->span[lo].from < from + len;
}

static int encode_piece(void *ctx, const char *p, size_t len)
{
	struct encoding *x = ctx;

	return bpe_encode(x->t->bpe, p, len, x->out) ? -2 : 0;
}

typedef int between(struct encoding *x, const char *p, size_t len,
		    struct err *e);

/* A text without added tokens.  What conversations begin with comes again and
 * again, and to split it takes far longer than to find it. */
static int merge_text(struct encoding *x, const char *p, size_t len,
		      struct err *e)
{
	size_t from = x->out->n;
	int rc = len < KNOWN_LEAST ? 0 :
		 keep_get(x->t->known, p, len, x->out, NULL);

	if (rc)
		return rc < 0 ? no_memory(e) : 0;
	rc = split_run(x->t->split, p, len, encode_piece, x, e);
	if (rc == 0 && len >= KNOWN_LEAST)
		keep_put(x->t->known, p, len, x->out->id + from,
			 x->out->n - from, 0);
	return rc == -2 ? no_memory(e) : rc;
}

/* Cuts out the tokens of one set; what lies between goes to `rest`. */
static int cut(struct encoding *x, const struct added *set, const char *p,
	       size_t len, between *rest, struct err *e)
{
	struct added_hit hit;
	size_t at = 0, look = 0;

	while (added_find(set, p, len, look, x->plain, &hit)) {
		if (hit.token->special && x->nspans &&
		    touches(x, p + hit.from, hit.to - hit.from)) {
			look = hit.from + 1;
			continue;
		}
		if (hit.from > at && rest(x, p + at, hit.from - at, e))
			return -1;
		if (tok_ids_add(x->out, hit.token->id))
			return no_memory(e);
		at = look = hit.to;
	}
	return at < len ? rest(x, p + at, len - at, e) : 0;
}

static int normalized_text(struct encoding *x, const char *p, size_t len,
			   struct err *e)
{
	struct encoding y = *x;
	char *nfc;
	int rc;

	if (!split_normalizes(x->t->split, p, len))
		return cut(x, x->t->normalized, p, len, merge_text, e);
	/* Spans are of the text as it was. */
	y.plain = x->plain || (x->nspans && touches(x, p, len));
	y.nspans = 0;
	nfc = split_normalize(p, len, &len, e);
	if (!nfc)
		return -1;
	rc = cut(&y, x->t->normalized, nfc, len, merge_text, e);
	free(nfc);
	return rc;
}

static int add_ids(struct tok_ids *out, const int32_t *id, int n,
		   struct err *e)
{
	return tok_ids_join(out, id, (size_t)n) ? no_memory(e) : 0;
}

int tok_encode(struct tok *t, const char *text, size_t len, unsigned flags,
	       struct tok_ids *out, struct err *e)
{
	return tok_encode_spans(t, text, len, NULL, 0, flags, out, e);
}

int tok_encode_spans(struct tok *t, const char *text, size_t len,
		     const struct tok_span *span, size_t nspans,
		     unsigned flags, struct tok_ids *out, struct err *e)
{
	struct encoding x = { t, out, (flags & TOK_PLAIN) != 0, text, span,
			      nspans };
	int template = (flags & TOK_TEMPLATE) != 0;

	if (template && add_ids(out, t->before, t->nbefore, e))
		return -1;
	if (cut(&x, t->raw, text, len, normalized_text, e))
		return -1;
	return template ? add_ids(out, t->after, t->nafter, e) : 0;
}

int tok_decode(const struct tok *t, const int32_t *id, size_t n,
	       int skip_special, struct str *out)
{
	for (size_t i = 0; i < n; i++) {
		const struct entry *x;

		if (id[i] < 0 || id[i] >= t->count)
			continue;
		x = &t->entry[id[i]];
		if (x->p && !(skip_special && x->special) &&
		    str_add(out, x->p, x->len))
			return -1;
	}
	return 0;
}

int32_t tok_id(const struct tok *t, const char *text, size_t len)
{
	for (int32_t i = t->count - 1; i >= 0; i--)
		if (t->entry[i].p && t->entry[i].len == len &&
		    !memcmp(t->entry[i].p, text, len))
			return i;
	return -1;
}

int tok_special(const struct tok *t, int32_t id)
{
	return id >= 0 && id < t->count && t->entry[id].special;
}

int tok_added(const struct tok *t, int32_t id)
{
	return id >= 0 && id < t->count && t->entry[id].added;
}

int32_t tok_count(const struct tok *t)
{
	return t->count;
}
