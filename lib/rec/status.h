/* SPDX-License-Identifier: Apache-2.0
 *
 * The status words of records, an enum and never prose.
 */
#ifndef CA_REC_STATUS_H
#define CA_REC_STATUS_H

enum status {
	ST_NONE = -1,		/* unknown word */
	ST_OK,
	ST_COMPILE_ERROR, ST_BUILD_TIMEOUT, ST_NO_SOURCE,
	ST_WRONG_VALUE, ST_WRONG_SHAPE, ST_WRONG_DTYPE, ST_NON_FINITE,
	ST_INPUT_MODIFIED, ST_OUT_OF_BOUNDS, ST_PARAM_MISMATCH,
	ST_CRASHED, ST_TIMEOUT, ST_KILLED, ST_OOM,
	ST_RULES_FALLBACK, ST_RULES_SYMBOL, ST_TAMPERED,
	ST_BELOW_FLOOR, ST_INCONCLUSIVE_TIME,
	ST_INVALID_REFERENCE, ST_INFRA_ERROR, ST_BAD_RECORD,
	ST_COUNT
};

const char *status_name(enum status s);		/* "wrong_value" */
enum status status_parse(const char *name);	/* NULL or unknown: ST_NONE */
const char *status_meaning(enum status s);	/* one line for people */

#endif
