/* SPDX-License-Identifier: Apache-2.0
 *
 * The plan of a verification.  lib/torch/families.py does to the inputs what
 * the names say.
 */
#include "judge/families.h"

#include <math.h>
#include <string.h>

#define SCALES 3

static const char *const names[FAMILY_COUNT] = {
	[FAMILY_PLAIN] = "plain", [FAMILY_SCALE] = "scale",
	[FAMILY_SIGN] = "sign", [FAMILY_TIED] = "tied",
	[FAMILY_CLUSTER] = "cluster", [FAMILY_SPIKE] = "spike",
	[FAMILY_PERMUTE] = "permute", [FAMILY_BLOCKS] = "blocks",
	[FAMILY_TILT] = "tilt", [FAMILY_PART] = "part",
};

const char *family_name(enum family f)
{
	return (unsigned)f < FAMILY_COUNT ? names[f] : "unknown";
}

enum family family_parse(const char *name)
{
	unsigned f;

	for (f = 0; f < FAMILY_COUNT; f++)
		if (name && !strcmp(name, names[f]))
			break;
	return (enum family)f;
}

/* How many rounds a family gets. */
static int rounds_of(enum family f, const struct family_traits *t)
{
	switch (f) {
	case FAMILY_SIGN:
	case FAMILY_TILT:
		return t->has_float;
	case FAMILY_BLOCKS:
		return 2 * t->has_float;
	case FAMILY_TIED:
	case FAMILY_CLUSTER:
	case FAMILY_SPIKE:
		return t->has_slices;
	case FAMILY_PERMUTE:
		return t->has_int;
	default:
		return 0;
	}
}

static struct verify_round *add(struct verify_round *out, size_t *n,
				struct rng *rng, enum family f, int by_norm)
{
	struct verify_round *r = &out[(*n)++];

	memset(r, 0, sizeof(*r));
	r->family = f;
	r->factor = 1;
	r->by_norm = by_norm;
	r->deciding = 1;
	r->seed = rng_u64(rng);
	r->forward_seed = rng_u64(rng);
	return r;
}

/* 10^-2 to 10^2, one factor from each third, smallest first. */
static double draw_factor(struct rng *rng, int third)
{
	return pow(10, -2 + (third + rng_unit(rng)) * 4 / SCALES);
}

size_t families_plan(struct rng *rng, const struct family_traits *t,
		     size_t fresh, int literal,
		     struct verify_round out[FAMILY_ROUNDS])
{
	size_t n = 0, most = FAMILY_ROUNDS - SCALES - FAMILY_COUNT - 1;

	if (fresh < FAMILY_FRESH)
		fresh = FAMILY_FRESH;
	if (fresh > most)
		fresh = most;
	while (n < fresh)
		add(out, &n, rng, FAMILY_PLAIN, 0);
	for (int i = 0; !literal && i < SCALES && t->has_float; i++)
		add(out, &n, rng, FAMILY_SCALE, 1)->factor =
			draw_factor(rng, i);
	for (int f = FAMILY_SIGN; !literal && f < FAMILY_COUNT; f++)
		for (int i = rounds_of((enum family)f, t); i > 0; i--)
			add(out, &n, rng, (enum family)f, 1);
	if (t->has_state) {
		struct verify_round *r = add(out, &n, rng, FAMILY_PLAIN, 0);

		r->other_weights = 1;
		r->deciding = 0;
	}
	return n;
}

void family_write(struct jw *w, const struct verify_round *r)
{
	jw_ku64(w, "seed", r->seed);
	jw_kstr(w, "family", family_name(r->family));
	jw_knum(w, "factor", r->factor);
}
