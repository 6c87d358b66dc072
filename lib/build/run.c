/* SPDX-License-Identifier: Apache-2.0
 *
 * The one door through which compilers are started.
 */
#include "build/run.h"

#include <string.h>

#include "base/io.h"
#include "jail/command.h"

#define RO_MAX 16

static const char *const fixed_env[] = {
	"SOURCE_DATE_EPOCH=1700000000", "LC_ALL=C", NULL
};

int compiler_run(const struct compiler_run *c, struct str *log,
		 struct child_result *r, struct err *e)
{
	const char *ro[RO_MAX] = { c->dir }, *rw[] = { c->out, NULL };
	struct jail_cmd j = { 0 };
	struct child_opts o = { 0 };
	size_t i, n = 1;

	for (i = 0; c->ro && c->ro[i] && n + 1 < RO_MAX; i++)
		ro[n++] = c->ro[i];
	j.level = c->level;
	j.uid = jail_new_uid();
	j.ro = ro;
	j.rw = rw;
	j.dir = c->dir;
	j.env = fixed_env;
	j.mem_bytes = c->mem_bytes;
	j.procs = 64;
	j.no_user_files = 1;
	if (jail_give(c->out, j.uid, e) < 0)
		return -1;
	o.argv = c->argv;
	o.out = log;
	o.errout = log;
	o.outcap = COMPILER_LOG;
	o.deadline = c->deadline;
	return jail_run(&j, &o, r, e);
}
