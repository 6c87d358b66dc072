/* SPDX-License-Identifier: Apache-2.0
 *
 * Status words and what they mean.
 */
#include "rec/status.h"

#include <string.h>

static const struct {
	const char *name, *meaning;
} table[ST_COUNT] = {
	[ST_OK] = { "ok", "all is as it should be" },
	[ST_COMPILE_ERROR] = { "compile_error", "the sources do not compile" },
	[ST_BUILD_TIMEOUT] = { "build_timeout",
			       "the compiler ran past its time limit" },
	[ST_NO_SOURCE] = { "no_source", "there is nothing to build" },
	[ST_WRONG_VALUE] = { "wrong_value",
			     "an element is off by more than the tolerance" },
	[ST_WRONG_SHAPE] = { "wrong_shape",
			     "a result has another shape or container" },
	[ST_WRONG_DTYPE] = { "wrong_dtype",
			     "a result has another element type" },
	[ST_NON_FINITE] = { "non_finite",
			    "NaN or infinity where the reference has none" },
	[ST_INPUT_MODIFIED] = { "input_modified",
				"an input or parameter was changed" },
	[ST_OUT_OF_BOUNDS] = { "out_of_bounds",
			       "memory beside an input or result was written" },
	[ST_PARAM_MISMATCH] = { "param_mismatch",
				"the parameters do not match the reference's" },
	[ST_CRASHED] = { "crashed", "the candidate's process died or raised" },
	[ST_TIMEOUT] = { "timeout", "the candidate ran past its time limit" },
	[ST_KILLED] = { "killed", "the candidate broke a rule of its jail" },
	[ST_OOM] = { "oom", "memory ran out" },
	[ST_RULES_FALLBACK] = { "rules_fallback",
				"torch did the work instead of a kernel" },
	[ST_RULES_SYMBOL] = { "rules_symbol",
			      "the object uses a symbol that is not allowed" },
	[ST_TAMPERED] = { "tampered", "the measurement was interfered with" },
	[ST_BELOW_FLOOR] = { "below_floor",
			     "faster than the device can move the bytes" },
	[ST_INCONCLUSIVE_TIME] = { "inconclusive_time",
				   "the time is too short for the clock" },
	[ST_INVALID_REFERENCE] = { "invalid_reference",
				   "the task itself cannot be judged" },
	[ST_INFRA_ERROR] = { "infra_error",
			     "the judge or the machine failed" },
	[ST_BAD_RECORD] = { "bad_record",
			    "the record lacks what the stage needs" },
};

static int valid(enum status s)
{
	return (int)s >= 0 && (int)s < ST_COUNT;
}

const char *status_name(enum status s)
{
	return valid(s) ? table[s].name : "unknown";
}

enum status status_parse(const char *name)
{
	int i;

	for (i = 0; name && i < ST_COUNT; i++)
		if (strcmp(table[i].name, name) == 0)
			return (enum status)i;
	return ST_NONE;
}

const char *status_meaning(enum status s)
{
	return valid(s) ? table[s].meaning : "no such status";
}
