/* SPDX-License-Identifier: Apache-2.0
 *
 * One token through a model as one kernel (step.cuh): whether it can be, and
 * how its products are shared out.
 */
#include "gpu/cuda.h"
#include "gpu/cuda/args.h"

_Static_assert(sizeof(struct step_layer) == sizeof(struct gpu_layer),
	       "one text for both sides");

#define WARPS	8			/* step.cuh's, that compute */
#define PIECE	1024
#define SLOT	(4 * PIECE)
/* More pieces on their way would stand in front of what blocks wait for. */
#define WINDOW	2
#define LEAST_SLOTS 3
#define MOST_BLOCKS 1024

static int at_least(int a, int b)
{
	return a > b ? a : b;
}

static int pieces_of(int n, int piece)
{
	return (n + piece - 1) / piece;
}

/* 2^share warps for a pair of rows leave the least to be read by one; `turns`
 * gets how many pairs each then takes. */
static int share_of(int pairs, int pieces, int *turns)
{
	int best = 0, least = 0;

	for (int share = 0; 1 << share <= WARPS && 1 << share <= pieces;
	     share++) {
		int t = pieces_of(pairs, WARPS >> share);
		int steps = t * pieces_of(pieces, 1 << share);

		if (!least || steps < least) {
			least = steps;
			best = share;
			*turns = t;
		}
	}
	return best;
}

/* Fills in shares and places in shared memory; its bytes, 0: too little. */
static int share_out(struct step *s, int blocks)
{
	const int q = s->heads * s->dim, h = s->hidden;
	const int n[] = { (s->heads + 2 * s->kv_heads) * s->dim, h,
			  2 * s->inter, h, s->vocab };
	const int k[] = { h, q, h, s->inter, h };
	int most = 0, fixed;

	/* Attention lies where rows do. */
	s->row = WARPS * (s->dim + 2) + 3 * s->dim;
	for (int i = 0; i < 5; i++) {
		int pairs = pieces_of((n[i] + 1) / 2, blocks), turns = 0;

		s->share[i] = share_of(pairs, pieces_of(k[i], PIECE), &turns);
		most = at_least(most, turns);
		s->row = at_least(s->row, pieces_of(k[i], PIECE) * PIECE);
	}
	fixed = s->row * 4 + most * WARPS * 8 + s->dim * 4 +
		s->layers * (int)sizeof(struct step_layer);
	s->slots = fixed < CUDA_STEP_BYTES ?
		   (CUDA_STEP_BYTES - fixed) / (WARPS * (SLOT + 8)) : 0;
	s->window = WINDOW;
	return s->slots < LEAST_SLOTS ? 0 :
	       fixed + s->slots * WARPS * (SLOT + 8);
}

/* Where blocks' words lie, behind the counters; -1: too little room. */
static int share_words(struct step *s, unsigned *met, int blocks)
{
	const size_t wide = (size_t)(s->heads + 2 * s->kv_heads) *
			    (size_t)s->dim;
	const size_t units = (size_t)at_least(blocks, s->heads);
	const size_t h = ((size_t)s->hidden + 3) / 4 * 4;
	const size_t f = ((size_t)s->inter + 3) / 4 * 4;

	s->met = met;
	s->told.x = met + MOST_BLOCKS;
	s->told.mid = s->told.x + h;
	s->told.qkv = s->told.mid + h;
	s->told.act = s->told.qkv + wide;
	s->told.att = (unsigned long long *)(s->told.act + f);
	return MOST_BLOCKS + 2 * h + wide + f +
	       2 * units * ((size_t)s->dim + 2) <= GPU_MEET ? 0 : -1;
}

static int suits(const struct cuda *c, const struct gpu_token *a)
{
	return c->hopper && c->g.act == GPU_BF16 &&
	       a->wtype == GPU_BF16 && !(c->g.flags & GPU_EXACT) &&
	       !(a->hidden % 8) && !(a->inter % 8) &&
	       (a->dim == 64 || a->dim == 128) &&
	       a->heads <= c->dev->info.sms && c->dev->info.sms <= MOST_BLOCKS;
}

int cuda_token(struct gpu *g, const struct gpu_token *a)
{
	struct cuda *c = (struct cuda *)g;
	struct step s = {
		.layer = a->layers, .layers = a->nlayers, .hidden = a->hidden,
		.heads = a->heads, .kv_heads = a->kv_heads, .dim = a->dim,
		.inter = a->inter, .vocab = a->vocab, .eps = a->eps,
		.scale = a->scale, .embed = a->embed, .head = a->head,
		.norm = a->norm, .table = a->table, .ids = a->ids,
		.pos = a->pos, .slot = a->slot, .len = a->len,
		.pages = a->pages, .logits = a->logits
	};
	int sms = c->dev->info.sms, bytes;
	void *args[] = { &s };

	if (!suits(c, a))
		return 0;
	bytes = share_out(&s, sms);
	if (!bytes || share_words(&s, a->met, sms))
		return 0;
	cuda_launch_together(c, c->step, (unsigned)sms, 32 * (WARPS + 1),
			     (unsigned)bytes, args);
	return 1;
}
