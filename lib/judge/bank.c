/* SPDX-License-Identifier: Apache-2.0
 *
 * Inputs and expected results, kept for the baselines.
 */
#include "judge/bank.h"

#include "judge/rules.h"

#include <string.h>

void bank_init(struct bank *b, struct judge *j, const struct oracle *o,
	       size_t n)
{
	size_t each = o->input_bytes + o->expect_bytes +
		(j->rules->rewrites ? o->param_bytes : 0);

	memset(b, 0, sizeof(*b));
	b->j = j;
	for (size_t i = 0; i < BANK_MAX; i++)
		b->s[i].inputs = b->s[i].expect = b->s[i].params =
			(struct mem)MEM_NONE;
	if (n <= BANK_MAX && !o->first.modified && each < BANK_BYTES / n)
		b->n = n;
}

void bank_release(struct bank *b)
{
	for (size_t i = 0; b->j && i < BANK_MAX; i++) {
		judge_free(b->j, &b->s[i].inputs);
		judge_free(b->j, &b->s[i].expect);
		judge_free(b->j, &b->s[i].params);
	}
}

struct sample *bank_at(struct bank *b, size_t i)
{
	return i < b->n ? &b->s[i] : NULL;
}

static int hold(struct judge *j, struct mem *to, const struct mem *from,
		size_t n)
{
	const struct device_ops *d = j->dev->ops;

	if (!to->p && d->private_mem(j->dev, n, to, NULL))
		return -1;
	return d->copy(j->dev, to, 0, from, 0, n, NULL);
}

void sample_keep(struct judge *j, struct sample *s, const struct oracle *o,
		 const struct verify_round *round, uint64_t state_seed,
		 const struct ca_msg *want)
{
	struct extent ext[CA_LEAVES];

	s->full = 0;
	if (leaves_check(want, o->expect_bytes, ext) ||
	    hold(j, &s->inputs, &o->inputs, o->input_bytes) ||
	    hold(j, &s->expect, &o->expect, o->expect_bytes) ||
	    (j->rules->rewrites && o->param_bytes &&
	     hold(j, &s->params, &o->params, o->param_bytes)))
		return;
	s->state_seed = state_seed;
	memcpy(s->slots, o->slots.p, sizeof(s->slots));
	s->want = *want;
	s->round = *round;
	s->full = 1;
}
