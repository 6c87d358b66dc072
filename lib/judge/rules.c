/* SPDX-License-Identifier: Apache-2.0 */
#include "judge/rules.h"

#include <string.h>

#include "judge/compare.h"

#define KERNELBENCH_TOL 1e-4	/* of float32 and wider */
#define STRICT_OWN 3

const struct rules rules_paper = {
	.name = "paper", .guarded = 1, .families = 1, .relief = 1,
};

static const struct rules strict = {
	.name = "strict", .guarded = 1, .families = 1, .relief = 1,
	.rewrites = 1, .own = STRICT_OWN,
};

static const struct rules kernelbench = {
	.name = "kernelbench", .torch = 1, .own_state = 1,
};

const struct rules *rules_find(const char *name)
{
	static const struct rules *const all[] = { &rules_paper, &strict,
						   &kernelbench };

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (!strcmp(name, all[i]->name))
			return all[i];
	return NULL;
}

double rules_tolerance(const struct rules *r, enum ca_dtype t)
{
	if (r != &kernelbench)
		return CMP_TOL;
	switch (t) {
	case DT_F16:
	case DT_BF16:
	case DT_F8E4M3:
	case DT_F8E5M2:
		return CMP_TOL;
	default:
		return KERNELBENCH_TOL;
	}
}
