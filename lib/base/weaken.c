/* SPDX-License-Identifier: Apache-2.0
 *
 * See weaken.h; empty in every build but one.
 */
#include "base/weaken.h"

#ifdef CA_WEAKEN
#include <stdlib.h>
#include <string.h>

int weakened(const char *defence)
{
	const char *list = getenv("CA_WEAKEN");
	size_t len = strlen(defence);

	for (; list && *list; list += strcspn(list, ","), list += *list == ',')
		if (strcspn(list, ",") == len && !memcmp(list, defence, len))
			return 1;
	return 0;
}
#else
typedef int weaken_is_not_built;
#endif
