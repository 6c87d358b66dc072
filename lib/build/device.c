/* SPDX-License-Identifier: Apache-2.0
 *
 * Which device a tool works for when it is not told.
 */
#include "build/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cu/cu.h"

const char *device_default(void)
{
	return cu_count(NULL) > 0 ? "cuda" : "cpu";
}

int device_check(const char *name, struct err *e)
{
	const char *n = name + 5;

	if (strcmp(name, "cpu") == 0 || strcmp(name, "cuda") == 0)
		return 0;
	if (strncmp(name, "cuda:", 5) == 0 && *n && strlen(n) <= 3 &&
	    strspn(n, "0123456789") == strlen(n))
		return 0;
	return err_set(e, CA_USAGE, "no device: '%s' (cpu, cuda, cuda:N)",
		       name);
}

void device_arch(const char *name, char out[16])
{
	int ordinal = name[4] == ':' ? atoi(name + 5) : 0;
	struct cu_info i;

	strcpy(out, "sm_90a");
	if (cu_count(NULL) <= ordinal || cu_info(ordinal, &i, NULL) < 0)
		return;
	snprintf(out, 16, "sm_%d%d%s", i.major % 100, i.minor % 10,
		 i.major >= 9 ? "a" : "");
}
