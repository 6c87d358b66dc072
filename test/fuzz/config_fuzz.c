/* SPDX-License-Identifier: Apache-2.0
 *
 * config.json: what is accepted is a model whose sizes can be computed with.
 */
#include <math.h>
#include <stdlib.h>

#include "nn/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct nn_config c;
	struct err e = ERR_INIT;
	double freq[128];

	if (nn_config_parse(&c, (const char *)data, size, &e)) {
		if ((e.code != CA_DATAERR && e.code != CA_CONFIG) || !*e.msg)
			abort();
		return 0;
	}
	if (nn_config_params(&c) < 1 || c.heads % c.kv_heads ||
	    c.head_dim > 256 || c.neos > NN_EOS_MAX)
		abort();
	if (!isfinite(nn_config_freqs(&c, freq)))
		abort();
	for (int i = 0; i < c.head_dim / 2; i++)
		if (!isfinite(freq[i]))
			abort();
	return 0;
}
