/* SPDX-License-Identifier: Apache-2.0
 *
 * lib/nn: readers of config.json, safetensors and tokenizer.json, on small
 * texts made here.  test/models compares them with the real libraries.
 */
#include "tests.h"

#include <math.h>
#include <stdio.h>

#include "gpu/type.h"
#include "nn/config.h"
#include "nn/keep.h"
#include "nn/safetensors.h"
#include "nn/tok.h"

static void half_types_round_to_even(void **state)
{
	static const struct { float in; uint16_t bf16, fp16; } row[] = {
		{ 1, 0x3f80, 0x3c00 }, { -2.5f, 0xc020, 0xc100 },
		{ 1.00390625f, 0x3f80, 0x3c04 },	/* tie for bf16 */
		{ 1.01171875f, 0x3f82, 0x3c0c },
		{ 65504, 0x4780, 0x7bff }, { 65520, 0x4780, 0x7c00 },
		{ 0x1p-24f, 0x3380, 0x0001 }, { 0x1p-25f, 0x3300, 0x0000 },
		{ 0x1.8p-25f, 0x3340, 0x0001 }, { 0x1p-14f, 0x3880, 0x0400 },
		{ INFINITY, 0x7f80, 0x7c00 }, { -0.0f, 0x8000, 0x8000 },
	};
	uint16_t h;
	float back;

	(void)state;
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		gpu_narrow(&h, &row[i].in, GPU_BF16, 1);
		assert_int_equal(h, row[i].bf16);
		gpu_narrow(&h, &row[i].in, GPU_F16, 1);
		assert_int_equal(h, row[i].fp16);
	}
	for (unsigned bits = 0; bits < 0x10000; bits++) {
		uint16_t in = (uint16_t)bits;

		for (enum gpu_type t = GPU_BF16; t <= GPU_F16; t++) {
			gpu_widen(&back, &in, t, 1);
			if (isnan(back))
				continue;
			gpu_narrow(&h, &back, t, 1);
			assert_int_equal(h, in);
		}
	}
}

static int parse_config(struct nn_config *c, const char *extra,
			struct err *e)
{
	char text[2048];

	snprintf(text, sizeof text, "{\"num_hidden_layers\":2,"
		 "\"hidden_size\":64,\"num_attention_heads\":4,"
		 "\"intermediate_size\":128,\"vocab_size\":100,%s}", extra);
	return nn_config_parse(c, text, strlen(text), e);
}

static void configs_are_read(void **state)
{
	struct nn_config c;
	struct err e = ERR_INIT;
	double freq[8];

	(void)state;
	assert_int_equal(parse_config(&c, "\"model_type\":\"llama\","
		"\"rope_theta\":500000,\"num_key_value_heads\":2,"
		"\"eos_token_id\":[3,7,3,100],\"tie_word_embeddings\":true",
		&e), 0);
	assert_int_equal(c.head_dim, 16);
	assert_int_equal(c.kv_heads, 2);
	assert_int_equal(c.neos, 2);
	assert_int_equal(c.eos[1], 7);
	assert_false(c.qkv_bias);
	/* 2 x (qkv 64x128 + o 64x64 + 3 x 64x128 + norms) + embedding + norm */
	assert_int_equal(nn_config_params(&c),
			 2 * (64 * 128 + 64 * 64 + 3 * 64 * 128 + 128) +
			 6400 + 64);
	assert_true(nn_config_freqs(&c, freq) == 1);
	assert_true(freq[0] == 1);
	assert_true(fabs(freq[4] - pow(500000, -0.5)) < 1e-12);
	assert_int_equal(parse_config(&c, "\"model_type\":\"qwen2\","
		"\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":4,"
		"\"rope_theta\":1e6}", &e), 0);
	assert_true(c.qkv_bias && !c.o_bias && !c.qk_norm);
	nn_config_freqs(&c, freq);
	assert_true(freq[0] == 0.25);
	assert_int_equal(parse_config(&c, "\"model_type\":\"qwen3\","
		"\"head_dim\":32,\"architectures\":"
		"[\"Qwen3ForTokenClassification\"],\"num_labels\":1", &e), 0);
	assert_int_equal(c.head, NN_HEAD_VALUE);
	assert_true(c.qk_norm);
}

static void configs_are_refused_by_name(void **state)
{
	static const struct { const char *extra, *why; int code; } row[] = {
		{ "\"model_type\":\"qwen3_moe\"", "mixture", CA_CONFIG },
		{ "\"model_type\":\"llama\",\"num_local_experts\":8",
		  "mixture", CA_CONFIG },
		{ "\"model_type\":\"gemma3\"", "'gemma3'", CA_CONFIG },
		{ "\"model_type\":\"llama\",\"architectures\":[\"XForY\"]",
		  "'XForY'", CA_CONFIG },
		{ "\"model_type\":\"llama\",\"hidden_act\":\"gelu\"",
		  "'gelu'", CA_CONFIG },
		{ "\"model_type\":\"qwen2\",\"use_sliding_window\":true",
		  "sliding", CA_CONFIG },
		{ "\"model_type\":\"llama\",\"rope_scaling\":"
		  "{\"type\":\"dynamic\",\"factor\":2}", "'dynamic'",
		  CA_CONFIG },
		{ "\"model_type\":\"llama\",\"num_key_value_heads\":3",
		  "groups", CA_DATAERR },
		{ "\"model_type\":\"llama\",\"head_dim\":15", "odd",
		  CA_DATAERR },
		{ "\"model_type\":\"llama\",\"head_dim\":1e9", "head_dim",
		  CA_DATAERR },
		{ "\"model_type\":\"llama\",\"rms_norm_eps\":0", "eps",
		  CA_DATAERR },
	};
	struct nn_config c;

	(void)state;
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		struct err e = ERR_INIT;

		assert_int_equal(parse_config(&c, row[i].extra, &e), -1);
		assert_int_equal(e.code, row[i].code);
		assert_non_null(strstr(e.msg, row[i].why));
	}
}

/* A file with this header and so many bytes of data. */
static struct st *weights(const char *header, size_t data, struct err *e)
{
	static char file[4096];
	size_t n = strlen(header);

	memset(file, 0, sizeof file);
	file[0] = (char)(n & 255);
	file[1] = (char)(n >> 8);
	memcpy(file + 8, header, n);
	return st_parse(file, 8 + n + data, e);
}

static void safetensors_are_read(void **state)
{
	struct err e = ERR_INIT;
	struct st *s = weights("{\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],"
		"\"data_offsets\":[4,16]},\"a\":{\"dtype\":\"F32\","
		"\"shape\":[],\"data_offsets\":[0,4]},"
		"\"__metadata__\":{\"format\":\"pt\"}}", 16, &e);
	const struct st_tensor *t;

	(void)state;
	assert_non_null(s);
	assert_int_equal(st_count(s), 2);
	t = st_get(s, "b");
	assert_int_equal(t->ndim, 2);
	assert_int_equal(t->shape[1], 3);
	assert_int_equal(t->type, GPU_BF16);
	assert_null(st_get(s, "c"));
	st_close(s);
}

static void safetensors_that_lie_are_refused(void **state)
{
#define T(dtype, shape, from, to) "{\"t\":{\"dtype\":\"" dtype "\"," \
	"\"shape\":" shape ",\"data_offsets\":[" from "," to "]}}"
	static const struct { const char *header, *why; } row[] = {
		{ T("F32", "[2]", "0", "16"), "another size" },
		{ T("F32", "[4]", "0", "32"), "outside" },
		{ T("F32", "[4]", "16", "0"), "outside" },
		{ T("F32", "[-4]", "0", "16"), "bad shape" },
		{ T("F32", "[4.5]", "0", "16"), "bad shape" },
		{ T("F32", "[4294967296,4294967296,4]", "0", "16"), "shape" },
		{ T("F33", "[4]", "0", "16"), "dtype 'F33'" },
		{ T("F32", "[2]", "8", "16"), "does not follow" },
		{ T("F32", "[2]", "0", "8"), "no tensor" },
		{ "[]", "no object" }, { "{", "header" },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":"
		  "[0,12]},\"b\":{\"dtype\":\"F32\",\"shape\":[2],"
		  "\"data_offsets\":[8,16]}}", "overlaps" },
	};
#undef T
	struct err e = ERR_INIT;

	(void)state;
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		assert_null(weights(row[i].header, 16, &e));
		assert_int_equal(e.code, CA_DATAERR);
		assert_non_null(strstr(e.msg, row[i].why));
	}
	assert_null(st_parse("\xff\xff\xff\xff\xff\xff\xff\x7f", 8, &e));
	assert_null(st_parse("abc", 3, &e));
	assert_null(st_open("/nonexistent", &e));
	assert_int_equal(e.code, CA_NOINPUT);
}

/* Letters, a space (spelt U+0120), "ab", "abc" and added tokens. */
static struct tok *small_tok(const char *added, const char *pre,
			     struct err *e)
{
	char text[2048];

	snprintf(text, sizeof text, "{\"model\":{\"type\":\"BPE\",\"vocab\":"
		 "{\"a\":0,\"b\":1,\"c\":2,\"\u0120\":3,\"ab\":4,\"abc\":5,"
		 "\"\u0120a\":6},\"merges\":[\"a b\",[\"ab\",\"c\"],"
		 "\"\u0120 a\"]},\"added_tokens\":[%s],\"pre_tokenizer\":%s,"
		 "\"normalizer\":null}", added, pre);
	return tok_parse(text, strlen(text), e);
}

#define PLAIN_PRE "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}"

static void assert_ids(struct tok *t, const char *text, unsigned flags,
		       const char *want)
{
	struct tok_ids ids = TOK_IDS_INIT;
	struct err e = ERR_INIT;
	char got[256] = "";
	size_t n = 0;

	assert_int_equal(tok_encode(t, text, strlen(text), flags, &ids, &e),
			 0);
	for (size_t i = 0; i < ids.n; i++)
		n += (size_t)snprintf(got + n, sizeof got - n, " %d",
				      ids.id[i]);
	assert_string_equal(got, want);
	tok_ids_release(&ids);
}

static int kept(struct keep *k, const char *key, int32_t first)
{
	struct tok_ids ids = TOK_IDS_INIT;
	int tag = -1, rc = keep_get(k, key, strlen(key), &ids, &tag);

	if (rc == 1) {
		assert_int_equal(ids.n, 50);
		assert_int_equal(ids.id[0], first);
		assert_int_equal(tag, first + 1);
	}
	tok_ids_release(&ids);
	return rc;
}

static void keep_some(struct keep *k, const char *key, int32_t first)
{
	int32_t id[50] = { first };

	keep_put(k, key, strlen(key), id, 50, first + 1);
}

static void ids_are_kept_until_others_are_wanted(void **state)
{
	struct keep *k = keep_new(1000);	/* three of them */
	int32_t many[300] = { 0 };

	(void)state;
	assert_non_null(k);
	keep_some(k, "a", 1);
	keep_some(k, "b", 2);
	keep_some(k, "b", 3);
	keep_some(k, "", 4);
	assert_int_equal(kept(k, "a", 1), 1);
	assert_int_equal(kept(k, "b", 3), 1);
	assert_int_equal(kept(k, "", 4), 1);
	assert_int_equal(kept(k, "a", 1), 1);
	keep_some(k, "c", 5);
	assert_int_equal(kept(k, "b", 3), 0);
	assert_int_equal(kept(k, "a", 1), 1);
	assert_int_equal(kept(k, "c", 5), 1);
	/* What is more than all forgets nothing. */
	keep_put(k, "d", 1, many, 300, 0);
	assert_int_equal(kept(k, "d", 0), 0);
	assert_int_equal(kept(k, "c", 5), 1);
	keep_free(k);
}

/* A long text has the same ids the second time, behind whatever. */
static void long_texts_are_known(void **state)
{
	struct err e = ERR_INIT;
	struct tok *t = small_tok("{\"id\":7,\"content\":\"<x>\","
				  "\"special\":true}", PLAIN_PRE, &e);
	struct tok_ids ids = TOK_IDS_INIT;
	struct str s = STR_INIT;
	size_t n;

	(void)state;
	assert_non_null(t);
	str_adds(&s, "b<x>");
	for (int i = 0; i < 100; i++)
		str_adds(&s, i % 3 ? "abc a" : "cab");
	assert_int_equal(tok_encode(t, s.buf + 4, s.len - 4, 0, &ids, &e), 0);
	n = ids.n;
	assert_int_equal(tok_encode(t, s.buf, s.len, 0, &ids, &e), 0);
	assert_int_equal(ids.n, 2 * n + 2);
	assert_int_equal(ids.id[n], 1);
	assert_int_equal(ids.id[n + 1], 7);
	assert_memory_equal(ids.id, ids.id + n + 2, n * sizeof *ids.id);
	/* One byte more is another text. */
	str_adds(&s, "b");
	assert_int_equal(tok_encode(t, s.buf + 4, s.len - 4, 0, &ids, &e), 0);
	assert_int_equal(ids.n, 3 * n + 3);
	tok_ids_release(&ids);
	str_release(&s);
	tok_free(t);
}

static uint64_t sum_of(const char *header, size_t flip)
{
	static char file[512];
	size_t n = strlen(header);
	struct err e = ERR_INIT;
	struct st *s;
	uint64_t sum;

	memset(file, 0, sizeof file);
	file[0] = (char)n;
	memcpy(file + 8, header, n);
	for (size_t i = 0; i < 120; i++)
		file[8 + n + i] = (char)(i % 60 ^ (i == flip));
	s = st_parse(file, 8 + n + 120, &e);
	assert_non_null(s);
	sum = st_sum(s);
	st_close(s);
	return sum;
}

/* By values and names, wherever in a file they are. */
static void sums_tell_weights_apart(void **state)
{
#define T(name, type, at) "\"" name "\":{\"dtype\":\"" type \
	"\",\"shape\":[15],\"data_offsets\":[" at "]}"
	const char *plain = "{" T("a", "F32", "0,60") ","
			    T("b", "F32", "60,120") "}";
	uint64_t sum = sum_of(plain, 120);

	(void)state;
	assert_true(sum == sum_of("{" T("b", "F32", "60,120") ","
				  T("a", "F32", "0,60") "}", 120));
	assert_true(sum == sum_of("{" T("a", "F32", "60,120") ","
				  T("b", "F32", "0,60") "}", 120));
	assert_true(sum != sum_of("{" T("a", "I32", "0,60") ","
				  T("b", "F32", "60,120") "}", 120));
	assert_true(sum != sum_of("{" T("a", "F32", "0,60") ","
				  T("c", "F32", "60,120") "}", 120));
	for (size_t i = 0; i < 120; i++)
		assert_true(sum != sum_of(plain, i));
#undef T
}

static void merges_go_by_rank(void **state)
{
	struct err e = ERR_INIT;
	struct tok *t = small_tok("", PLAIN_PRE, &e);
	static const int32_t ids[] = { 5, 6, 99, -1, 1 };
	struct str s = STR_INIT;

	(void)state;
	assert_non_null(t);
	assert_ids(t, "abc", 0, " 5");
	assert_ids(t, "abcab ab", 0, " 5 4 3 4");
	assert_ids(t, "aabb acz", 0, " 0 4 1 6 2");
	assert_ids(t, "", 0, "");
	assert_int_equal(tok_decode(t, ids, 5, 0, &s), 0);
	assert_string_equal(s.buf, "abc ab");
	assert_int_equal(tok_count(t), 7);
	str_release(&s);
	tok_free(t);
}

static void added_tokens_are_cut_out_first(void **state)
{
	struct err e = ERR_INIT;
	struct tok *t = small_tok(
		"{\"id\":7,\"content\":\"<a>\",\"special\":true},"
		"{\"id\":8,\"content\":\"<a>b\",\"special\":false},"
		"{\"id\":9,\"content\":\"ca\",\"single_word\":true},"
		"{\"id\":10,\"content\":\"<l>\",\"lstrip\":true,"
		"\"rstrip\":true}", PLAIN_PRE, &e);
	static const int32_t ids[] = { 7, 4, 8 };
	struct str s = STR_INIT;

	(void)state;
	assert_non_null(t);
	assert_ids(t, "a<a>c<a>b", 0, " 0 7 2 8");
	assert_ids(t, "<a>c<a>b", TOK_PLAIN, " 0 2 8");
	assert_ids(t, "ca aca", 0, " 9 6 2 0");
	assert_ids(t, "a  <l> \xc2\xa0 b", 0, " 0 10 1");
	assert_ids(t, " <l><l>", 0, " 10 10");
	assert_true(tok_special(t, 7) && !tok_special(t, 8));
	assert_int_equal(tok_id(t, "<a>b", 4), 8);
	assert_int_equal(tok_decode(t, ids, 3, 1, &s), 0);
	assert_string_equal(s.buf, "ab<a>b");
	str_release(&s);
	tok_free(t);
}

static void other_tokenizers_are_refused_by_name(void **state)
{
	static const struct { const char *pre, *why; } row[] = {
		{ "{\"type\":\"Metaspace\"}", "'Metaspace'" },
		{ "null", "not ByteLevel" },
		{ "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":"
		  "\"Split\",\"behavior\":\"Removed\"}]}", "'Removed'" },
		{ "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":"
		  "\"Split\",\"behavior\":\"Isolated\",\"pattern\":"
		  "{\"Regex\":\"(a\"}}]}", "pattern '(a'" },
	};
	static const char unigram[] = "{\"model\":{\"type\":\"Unigram\"}}";
	struct err e = ERR_INIT;

	(void)state;
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		assert_null(small_tok("", row[i].pre, &e));
		assert_non_null(strstr(e.msg, row[i].why));
	}
	assert_null(tok_parse(unigram, strlen(unigram), &e));
	assert_non_null(strstr(e.msg, "'Unigram'"));
	assert_null(small_tok("{\"id\":-1,\"content\":\"x\"}", PLAIN_PRE,
			      &e));
	assert_int_equal(e.code, CA_DATAERR);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(half_types_round_to_even),
		cmocka_unit_test(configs_are_read),
		cmocka_unit_test(configs_are_refused_by_name),
		cmocka_unit_test(safetensors_are_read),
		cmocka_unit_test(safetensors_that_lie_are_refused),
		cmocka_unit_test(sums_tell_weights_apart),
		cmocka_unit_test(ids_are_kept_until_others_are_wanted),
		cmocka_unit_test(long_texts_are_known),
		cmocka_unit_test(merges_go_by_rank),
		cmocka_unit_test(added_tokens_are_cut_out_first),
		cmocka_unit_test(other_tokenizers_are_refused_by_name),
	};

	return RUN_TESTS(tests);
}
