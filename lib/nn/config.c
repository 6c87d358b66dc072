/* SPDX-License-Identifier: Apache-2.0
 *
 * Both spellings are read: rope_theta and rope_scaling of transformers 4,
 * rope_parameters of transformers 5.
 */
#include "nn/config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/path.h"
#include "rec/json.h"

#define CONFIG_MAX ((size_t)1 << 20)

static const struct kind {
	const char *model_type, *lm, *value;
	enum nn_family family;
} kinds[] = {
	{ "llama", "LlamaForCausalLM", "LlamaForTokenClassification",
	  NN_LLAMA },
	{ "qwen2", "Qwen2ForCausalLM", "Qwen2ForTokenClassification",
	  NN_QWEN2 },
	{ "qwen3", "Qwen3ForCausalLM", "Qwen3ForTokenClassification",
	  NN_QWEN3 },
};

static int is_mixture(const struct json *j, const char *type)
{
	return strstr(type, "moe") || strstr(type, "mixtral") ||
	       json_get_int(j, "num_experts", 0) > 0 ||
	       json_get_int(j, "num_local_experts", 0) > 0;
}

static int read_kind(struct nn_config *c, const struct json *j, struct err *e)
{
	const char *type = json_get_str(j, "model_type", "");
	const char *arch = json_str(json_first(json_get(j, "architectures")),
				    "");

	if (is_mixture(j, type))
		return err_set(e, CA_CONFIG, "'%s' is a mixture of experts: "
			       "only dense models are computed here", type);
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		const struct kind *k = &kinds[i];

		if (strcmp(type, k->model_type))
			continue;
		c->family = k->family;
		c->head = NN_HEAD_LM;
		if (!strcmp(arch, k->value))
			c->head = NN_HEAD_VALUE;
		else if (*arch && strcmp(arch, k->lm))
			return err_set(e, CA_CONFIG, "architecture '%s' is "
				       "not known; %s and %s are", arch,
				       k->lm, k->value);
		return 0;
	}
	return err_set(e, CA_CONFIG, "model type '%s' is not known; llama, "
		       "qwen2 and qwen3 are", type);
}

/* An integer member in [1, max]; `dflt` 0: it has to be there. */
static int size_of(const struct json *j, const char *key, int dflt, int max,
		   int *out, struct err *e)
{
	const struct json *v = json_get(j, key);
	int64_t n;

	if (json_type(v) == JSON_NONE || json_type(v) == JSON_NULL)
		n = dflt;
	else
		n = json_int(v, -1);
	if (n < 1 || n > max)
		return err_set(e, CA_DATAERR, "'%s' has to be an integer "
			       "from 1 to %d", key, max);
	*out = (int)n;
	return 0;
}

static int read_sizes(struct nn_config *c, const struct json *j,
		      struct err *e)
{
	if (size_of(j, "num_hidden_layers", 0, 1024, &c->layers, e) ||
	    size_of(j, "hidden_size", 0, 1 << 16, &c->hidden, e) ||
	    size_of(j, "num_attention_heads", 0, 1024, &c->heads, e) ||
	    size_of(j, "num_key_value_heads", c->heads, 1024, &c->kv_heads,
		    e) ||
	    size_of(j, "head_dim", c->hidden / c->heads, 256, &c->head_dim,
		    e) ||
	    size_of(j, "intermediate_size", 0, 1 << 18, &c->inter, e) ||
	    size_of(j, "vocab_size", 0, 1 << 21, &c->vocab, e) ||
	    size_of(j, "max_position_embeddings", 2048, 1 << 24, &c->max_pos,
		    e))
		return -1;
	if (c->heads % c->kv_heads)
		return err_set(e, CA_DATAERR, "%d heads do not divide into "
			       "%d groups", c->heads, c->kv_heads);
	if (c->head_dim % 2)
		return err_set(e, CA_DATAERR, "head_dim %d is odd",
			       c->head_dim);
	return 0;
}

static int read_details(struct nn_config *c, const struct json *j,
			struct err *e)
{
	const char *act = json_get_str(j, "hidden_act", "silu");
	int bias = json_get_bool(j, "attention_bias", 0);

	if (strcmp(act, "silu") && strcmp(act, "swish"))
		return err_set(e, CA_CONFIG, "hidden_act '%s' is not computed "
			       "here", act);
	if (json_get_bool(j, "use_sliding_window", 0))
		return err_set(e, CA_CONFIG, "sliding windows are not computed "
			       "here");
	if (json_type(json_get(j, "quantization_config")) == JSON_OBJECT)
		return err_set(e, CA_CONFIG, "quantised weights are not read "
			       "here");
	c->eps = (float)json_get_num(j, "rms_norm_eps", 1e-6);
	if (!(c->eps > 0 && c->eps < 1))
		return err_set(e, CA_DATAERR, "'rms_norm_eps' is out of "
			       "range");
	c->tied = json_get_bool(j, "tie_word_embeddings", 0);
	c->qkv_bias = c->family == NN_QWEN2 || bias;
	c->o_bias = c->family != NN_QWEN2 && bias;
	c->mlp_bias = c->family == NN_LLAMA &&
		      json_get_bool(j, "mlp_bias", 0);
	c->qk_norm = c->family == NN_QWEN3;
	c->init_range = json_get_num(j, "initializer_range", 0.02);
	if (c->head == NN_HEAD_VALUE &&
	    json_get_int(j, "num_labels",
			 (int64_t)json_len(json_get(j, "id2label"))) != 1)
		return err_set(e, CA_CONFIG, "a value model has num_labels 1");
	return 0;
}

static const char *rope_type(const struct json *r)
{
	return json_get_str(r, "rope_type", json_get_str(r, "type",
							 "default"));
}

static int read_yarn(struct nn_config *c, const struct json *r,
		     struct err *e)
{
	double f = c->rope_factor;

	c->rope = NN_ROPE_YARN;
	c->rope_fast = json_get_num(r, "beta_fast", 32);
	c->rope_slow = json_get_num(r, "beta_slow", 1);
	c->rope_mscale = json_get_num(r, "attention_factor",
				      f > 1 ? 0.1 * log(f) + 1 : 1);
	if (json_get(r, "mscale") || json_get(r, "mscale_all_dim"))
		return err_set(e, CA_CONFIG, "rope with mscale is not "
			       "computed here");
	if (!json_get_bool(r, "truncate", 1))
		return err_set(e, CA_CONFIG, "rope without truncation is not "
			       "computed here");
	return 0;
}

static int read_rope(struct nn_config *c, const struct json *j, struct err *e)
{
	const struct json *r = json_get(j, "rope_parameters");
	const char *type;

	if (json_type(r) != JSON_OBJECT)
		r = json_get(j, "rope_scaling");
	type = rope_type(r);
	c->rope_theta = json_get_num(r, "rope_theta",
				     json_get_num(j, "rope_theta", 10000));
	c->rope_factor = json_get_num(r, "factor", 1);
	c->rope_low = json_get_num(r, "low_freq_factor", 1);
	c->rope_high = json_get_num(r, "high_freq_factor", 4);
	c->rope_orig = (int)json_get_int(r, "original_max_position_embeddings",
					 c->max_pos);
	c->rope_mscale = 1;
	if (!(c->rope_theta > 1 && c->rope_theta < 1e12) ||
	    !(c->rope_factor >= 1 && c->rope_factor < 1e6) ||
	    !(c->rope_low > 0 && c->rope_high > c->rope_low) ||
	    c->rope_orig < 1)
		return err_set(e, CA_DATAERR, "rope parameters are out of "
			       "range");
	if (json_get_num(j, "partial_rotary_factor", 1) != 1 ||
	    json_get_num(r, "partial_rotary_factor", 1) != 1)
		return err_set(e, CA_CONFIG, "partial rotary embeddings are "
			       "not computed here");
	if (!strcmp(type, "default"))
		c->rope = NN_ROPE_PLAIN;
	else if (!strcmp(type, "linear"))
		c->rope = NN_ROPE_LINEAR;
	else if (!strcmp(type, "llama3"))
		c->rope = NN_ROPE_LLAMA3;
	else if (!strcmp(type, "yarn"))
		return read_yarn(c, r, e);
	else
		return err_set(e, CA_CONFIG, "rope type '%s' is not computed "
			       "here", type);
	return 0;
}

static void add_eos(struct nn_config *c, const struct json *v)
{
	int64_t id = json_int(v, -1);

	for (int i = 0; i < c->neos; i++)
		if (c->eos[i] == id)
			return;
	if (id >= 0 && id < c->vocab && c->neos < NN_EOS_MAX)
		c->eos[c->neos++] = (int32_t)id;
}

static void read_eos(struct nn_config *c, const struct json *j)
{
	const struct json *eos = json_get(j, "eos_token_id");

	if (json_type(eos) != JSON_ARRAY) {
		add_eos(c, eos);
		return;
	}
	for (const struct json *v = json_first(eos); v; v = json_next(v))
		add_eos(c, v);
}

static int check_total(const struct nn_config *c, struct err *e)
{
	if (nn_config_params(c) > (int64_t)1 << 42)
		return err_set(e, CA_DATAERR, "a model of that size cannot "
			       "be");
	return 0;
}

int nn_config_parse(struct nn_config *c, const char *text, size_t len,
		    struct err *e)
{
	struct json *j = json_parse(text, len, CONFIG_MAX, NULL, e);
	int rc = -1;

	memset(c, 0, sizeof *c);
	if (!j)
		return -1;
	if (json_type(j) != JSON_OBJECT)
		err_set(e, CA_DATAERR, "is no object");
	else if (!read_kind(c, j, e) && !read_sizes(c, j, e) &&
		 !read_details(c, j, e) && !read_rope(c, j, e))
		rc = check_total(c, e);
	if (!rc)
		read_eos(c, j);
	json_free(j);
	return rc;
}

static int replaced(const char *key)
{
	static const char *const name[] = {
		"architectures", "num_labels", "classifier_dropout",
		"id2label", "label2id",
	};

	for (size_t i = 0; i < sizeof name / sizeof *name; i++)
		if (!strcmp(key, name[i]))
			return 1;
	return 0;
}

int nn_config_critic(const char *text, size_t len, struct str *out,
		     struct err *e)
{
	struct json *j = json_parse(text, len, CONFIG_MAX, NULL, e);
	struct nn_config c;
	struct jw w;
	int rc = j ? nn_config_parse(&c, text, len, e) : -1;

	jw_init(&w, out);
	jw_obj(&w);
	for (const struct json *m = json_first(j); m && !rc; m = json_next(m))
		if (!replaced(json_key(m))) {
			jw_key(&w, json_key(m));
			jw_node(&w, m);
		}
	if (!rc) {
		jw_key(&w, "architectures");
		jw_arr(&w);
		jw_str(&w, kinds[c.family].value);
		jw_end_arr(&w);
		jw_kint(&w, "num_labels", 1);
		jw_knum(&w, "classifier_dropout", 0);
	}
	jw_end_obj(&w);
	json_free(j);
	return !rc && out->failed ? err_set(e, CA_SOFTWARE, "no memory") : rc;
}

/* Ends of generation are often stated here only. */
static int read_generation(struct nn_config *c, const char *path,
			   struct err *e)
{
	struct str text = STR_INIT;
	struct json *j = NULL;
	int rc = -1;

	if (access(path, F_OK))
		return 0;
	if (!read_file(path, CONFIG_MAX, &text, e))
		j = json_parse(text.buf, text.len, CONFIG_MAX, NULL, e);
	if (j) {
		read_eos(c, j);
		rc = 0;
	}
	json_free(j);
	str_release(&text);
	return rc;
}

int nn_config_load(struct nn_config *c, const char *dir, struct err *e)
{
	char path[CA_PATH_MAX];
	struct str text = STR_INIT;
	int rc = -1;

	snprintf(path, sizeof path, "%s/config.json", dir);
	if (read_file(path, CONFIG_MAX, &text, e))
		goto out;
	rc = nn_config_parse(c, text.buf, text.len, e);
	if (!rc) {
		snprintf(path, sizeof path, "%s/generation_config.json", dir);
		rc = read_generation(c, path, e);
	}
	if (rc)
		err_wrap(e, "'%s'", path);
out:
	str_release(&text);
	return rc;
}

int64_t nn_config_params(const struct nn_config *c)
{
	int64_t h = c->hidden, q = (int64_t)c->heads * c->head_dim;
	int64_t kv = (int64_t)c->kv_heads * c->head_dim, f = c->inter;
	int64_t layer = h * (q + 2 * kv) + q * h + 3 * h * f + 2 * h;
	int64_t head = c->head == NN_HEAD_VALUE ? h + 1 :
		       c->tied ? 0 : h * c->vocab;

	if (c->qkv_bias)
		layer += q + 2 * kv;
	if (c->o_bias)
		layer += h;
	if (c->mlp_bias)
		layer += 2 * f + h;
	if (c->qk_norm)
		layer += 2 * c->head_dim;
	return layer * c->layers + h * c->vocab + h + head;
}

static double llama3(const struct nn_config *c, double freq)
{
	double wave = 2 * 3.14159265358979323846 / freq;
	double low = c->rope_orig / c->rope_low;
	double high = c->rope_orig / c->rope_high, smooth;

	if (wave < high)
		return freq;
	if (wave > low)
		return freq / c->rope_factor;
	smooth = (c->rope_orig / wave - c->rope_low) /
		 (c->rope_high - c->rope_low);
	return (1 - smooth) * freq / c->rope_factor + smooth * freq;
}

/* The dimension that makes `turns` turns over the original context. */
static double yarn_dim(const struct nn_config *c, double turns)
{
	return c->head_dim *
	       log(c->rope_orig / (turns * 2 * 3.14159265358979323846)) /
	       (2 * log(c->rope_theta));
}

static double yarn(const struct nn_config *c, double freq, int i)
{
	double low = fmax(floor(yarn_dim(c, c->rope_fast)), 0);
	double high = fmin(ceil(yarn_dim(c, c->rope_slow)), c->head_dim - 1);
	double ramp = (i - low) / (high == low ? 0.001 : high - low);

	ramp = fmin(fmax(ramp, 0), 1);
	return freq / c->rope_factor * ramp + freq * (1 - ramp);
}

double nn_config_freqs(const struct nn_config *c, double *freq)
{
	for (int i = 0; i < c->head_dim / 2; i++) {
		double f = pow(c->rope_theta, -2.0 * i / c->head_dim);

		if (c->rope == NN_ROPE_LINEAR)
			f /= c->rope_factor;
		else if (c->rope == NN_ROPE_LLAMA3)
			f = llama3(c, f);
		else if (c->rope == NN_ROPE_YARN)
			f = yarn(c, f, i);
		freq[i] = f;
	}
	return c->rope_mscale;
}

float nn_config_scale(const struct nn_config *c)
{
	return (float)(1 / sqrt((double)c->head_dim));
}

int nn_config_alike(const struct nn_config *a, const struct nn_config *b)
{
	const int x[] = { (int)a->family - (int)b->family,
		(int)a->head - (int)b->head, a->layers - b->layers,
		a->hidden - b->hidden, a->heads - b->heads,
		a->kv_heads - b->kv_heads, a->head_dim - b->head_dim,
		a->inter - b->inter, a->vocab - b->vocab, a->tied - b->tied,
		a->qkv_bias - b->qkv_bias, a->o_bias - b->o_bias,
		a->mlp_bias - b->mlp_bias, a->qk_norm - b->qk_norm,
		(int)a->rope - (int)b->rope, a->rope_orig - b->rope_orig };
	const double y[] = { (double)a->eps - (double)b->eps,
		a->rope_theta - b->rope_theta, a->rope_low - b->rope_low,
		a->rope_factor - b->rope_factor, a->rope_high - b->rope_high,
		a->rope_fast - b->rope_fast, a->rope_slow - b->rope_slow,
		a->rope_mscale - b->rope_mscale };

	for (size_t i = 0; i < sizeof x / sizeof x[0]; i++)
		if (x[i])
			return 0;
	for (size_t i = 0; i < sizeof y / sizeof y[0]; i++)
		if (fabs(y[i]) > 0)
			return 0;
	return 1;
}
