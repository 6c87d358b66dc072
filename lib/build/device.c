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

int device_check_arch(const char *name, struct err *e)
{
	size_t n = strlen(name), digits;

	if (strncmp(name, "sm_", 3) == 0 && n <= 8) {
		digits = strspn(name + 3, "0123456789");
		if (digits >= 2 && (digits + 3 == n ||
		    (digits + 4 == n && strchr("af", name[n - 1]))))
			return 0;
	}
	return err_set(e, CA_USAGE, "no architecture: '%s' (sm_90a, sm_80)",
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
