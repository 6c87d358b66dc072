/* SPDX-License-Identifier: Apache-2.0
 *
 * config.json (and generation_config.json) of a Hugging Face folder: what
 * kind of transformer the weights are for.
 */
#ifndef CA_NN_CONFIG_H
#define CA_NN_CONFIG_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

enum nn_family { NN_LLAMA, NN_QWEN2, NN_QWEN3 };

enum nn_head {
	NN_HEAD_LM,		/* logits over the vocabulary */
	NN_HEAD_VALUE,		/* *ForTokenClassification, one label */
};

enum nn_rope { NN_ROPE_PLAIN, NN_ROPE_LINEAR, NN_ROPE_LLAMA3, NN_ROPE_YARN };

#define NN_EOS_MAX 8

struct nn_config {
	enum nn_family family;
	enum nn_head head;
	int layers, hidden, heads, kv_heads, head_dim, inter, vocab;
	int max_pos;			/* max_position_embeddings */
	float eps;			/* of RMSNorm */
	int tied;			/* lm_head is the embedding */
	int qkv_bias, o_bias, mlp_bias;
	int qk_norm;			/* RMSNorm on each head of q and k */
	double rope_theta;
	enum nn_rope rope;
	double rope_factor, rope_low, rope_high;	/* llama3, linear */
	double rope_fast, rope_slow, rope_mscale;	/* yarn */
	int rope_orig;			/* original_max_position_embeddings */
	int32_t eos[NN_EOS_MAX];	/* ends a generation */
	int neos;
	double init_range;		/* initializer_range */
};

/* Parses the text of a config.json.  Families other than Llama, Qwen2 and
 * Qwen3, mixtures of experts and variants that we do not compute are refused
 * by name (CA_CONFIG), as are sizes that cannot be (CA_DATAERR). */
int nn_config_parse(struct nn_config *c, const char *text, size_t len,
		    struct err *e);

/* Reads dir/config.json, and dir/generation_config.json where it exists (for
 * eos_token_id). */
int nn_config_load(struct nn_config *c, const char *dir, struct err *e);

/* From the text of a language model's config.json that of a critic of its
 * family: *ForTokenClassification with one label. */
int nn_config_critic(const char *text, size_t len, struct str *out,
		     struct err *e);

/* Number of weights; tied ones once. */
int64_t nn_config_params(const struct nn_config *c);

/*
 * Angular frequencies of rope, head_dim / 2 of them: dimension i of a head
 * turns by pos * freq[i].  Returns the factor on cos and sin (1 but for
 * yarn).
 */
double nn_config_freqs(const struct nn_config *c, double *freq);

/* Factor on the scores of attention: 1 / sqrt(head_dim). */
float nn_config_scale(const struct nn_config *c);

/* Whether both compute the same from the same weights. */
int nn_config_alike(const struct nn_config *a, const struct nn_config *b);

#endif
