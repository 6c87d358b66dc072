/* SPDX-License-Identifier: Apache-2.0 */
#include "build/nvcc.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/io.h"
#include "base/opt.h"

/*
 * The steps: 1 preprocessor and 2 cudafe++ for the host; 3 preprocessor, 4
 * cicc, 5 ptxas and 6 fatbinary for the device; 7 the host's compiler.  What
 * step 7 reads at its very end, the stub, comes from the device's half: it
 * begins without, and the stub is a pipe.
 */
const char nvcc_script[] =
	"steps=$1 n=0\n"
	"shift\n"
	"for arg; do [ \"$arg\" = -o ] && break || file=$arg; done\n"
	"for out; do :; done\n"
	"d=${out%/*}/nvcc\n"
	"[ -n \"$steps\" ] && mkdir \"$d\" || exec \"$@\"\n"
	"while IFS= read -r line; do\n"
	"	case $line in\n"
	"	[A-Z_]*=*) export \"$line\" ;;\n"
	"	'' | 'rm '*) ;;\n"
	"	*) n=$((n + 1)); eval \"s$n=\\$line\" ;;\n"
	"	esac\n"
	"done <<END\n"
	"$steps\n"
	"END\n"
	"case $n:${s1-}:${s2-}:${s4-}:${s5-}:${s7-} in\n"
	"7:*' -o \"'*:'cudafe++ '*' --gen_module_id_file '*' \"'*:"
	"*/cicc*' --stub_file_name \"'*:'ptxas '*' -c '*) ;;\n"
	"*) exec \"$@\" ;;\n"
	"esac\n"
	"id=${s2#*--module_id_file_name \\\"}\n"
	"set -- $(printf '%s\\n' \"$file\" | cat - \"$file\" | cksum)\n"
	"printf '_%08x_4_unit' \"$1\" >\"${id%%\\\"*}\"\n"
	"s2=\"${s2%%--gen_module_id_file *} ${s2#*--gen_module_id_file }\"\n"
	"host=${s2#*--gen_c_file_name \\\"}\n"
	"host=${host%%\\\"*}\n"
	"stub=${s4#*--stub_file_name \\\"}\n"
	"s4=\"${s4%%--stub_file_name *}--stub_file_name \\\"$d/stub\\\" \"\\\n"
	"\"${stub#*\\\"}\"\n"
	"stub=${stub%%\\\"*}\n"
	"mkfifo \"$stub\" || exit\n"
	"(\n"
	"	{ eval \"${s1% -o *}\" 2>\"$d/1\"; echo $? >\"$d/rc\"; } |\n"
	"		eval \"${s2% \\\"*} -\" >\"$host\" 2>\"$d/2\"\n"
	"	rc=$?\n"
	"	read -r first <\"$d/rc\"\n"
	/* cudafe++ ended before it had read all? */
	"	if [ $rc -ne 0 ] && [ -s \"$d/2\" ] &&\n"
	"		{ [ ! -s \"$d/1\" ] || grep -qi 'broken pipe' \"$d/1\"; }\n"
	"	then\n"
	"		cat \"$d/2\" >&2\n"
	"		exit $rc\n"
	"	fi\n"
	"	cat \"$d/1\" >&2\n"
	"	[ \"$first\" -eq 0 ] || exit \"$first\"\n"
	"	cat \"$d/2\" >&2\n"
	"	[ $rc -eq 0 ] || exit $rc\n"
	"	eval \"$s7\" 2>\"$d/7\"\n"
	"	echo $? >\"$d/last\"\n"
	") 2>\"$d/host\" &\n"
	"half=$!\n"
	"( eval \"$s3\" && eval \"$s4\" && eval \"$s5\" && eval \"$s6\" ) \\\n"
	"	>\"$d/device\" 2>&1\n"
	"device=$?\n"
	"if [ $device -eq 0 ]; then cat \"$d/stub\"; fi >\"$stub\" &\n"
	"writer=$!\n"
	"wait $half\n"
	"host=$?\n"
	"kill $writer 2>/dev/null\n"
	"cat \"$d/host\" >&2\n"
	"[ $host -eq 0 ] || exit $host\n"
	"cat \"$d/device\" >&2\n"
	"[ $device -eq 0 ] || exit $device\n"
	"cat \"$d/7\" >&2\n"
	"read -r last <\"$d/last\"\n"
	"exit \"$last\"\n";

#define STEPS_AT 4		/* behind "sh", "-c", the script, its name */
#define STEPS_MAX ((size_t)1 << 20)

size_t nvcc_steps_at(const struct plan_unit *u)
{
	return u->argv[0] && u->argv[1] && u->argv[2] == nvcc_script ?
	       STEPS_AT : 0;
}

/* Its object are the steps, or `none` where cudafe++ does not read a pipe. */
static const char dry_script[] =
	"exec >../out/0/object.o\n"
	"steps=$(\"$@\" 2>&1 | sed -n 's,^#[$] ,,p')\n"
	"for d; do :; done\n"
	"host=$(printf '%s\\n' \"$steps\" | sed -n \"/^cudafe++ /{\n"
	"	s,$d/,../out/0/,g; s,--gen_module_id_file ,,\n"
	"	s, \\\"[^\\\"]*\\\" *$, -,; p; }\")\n"
	"id=${host#*--module_id_file_name \\\"}\n"
	"printf _00000000_4_unit >\"${id%%\\\"*}\"\n"
	"PATH=${1%/*}:$PATH\n"
	"echo 'int read_it;' | eval \"$host\" 2>/dev/null |\n"
	"	grep -q read_it && printf '%s\\n' \"$steps\" || echo none\n";

/* The unit's command as one that tells its steps instead. */
static int dry_command(const struct plan_unit *u, char dir[64],
		       struct plan_unit *dry)
{
	static const char *const begin[] = {
		"/bin/sh", "-c", dry_script, "nvcc", NULL
	};
	const char *out = NULL, *slash;
	size_t n = 0, i;

	for (i = 0; begin[i]; i++)
		dry->argv[n++] = begin[i];
	for (i = STEPS_AT + 1; u->argv[i] && n + 5 < PLAN_ARGS; i++)
		out = dry->argv[n++] = u->argv[i];
	slash = out ? strrchr(out, '/') : NULL;
	if (u->argv[i] || !slash ||
	    snprintf(dir, 64, "%.*s/nvcc", (int)(slash - out), out) >= 64)
		return -1;
	dry->argv[n++] = "--dryrun";
	dry->argv[n++] = "--keep";
	dry->argv[n++] = "--keep-dir";
	dry->argv[n++] = dir;
	dry->argv[n] = NULL;
	dry->source = u->source;
	dry->memory = u->memory / 4;
	return 0;
}

static int dry_key(const struct plan *p, const struct plan_unit *dry,
		   const struct compile_opts *o, char key[CACHE_KEY])
{
	const char *jail = jail_level_name(o->level);
	struct hash *h = hash_new();
	uint8_t sum[HASH_LEN];

	if (!h)
		return -1;
	hash_part(h, "ca-steps 1", 10);
	hash_part(h, ca_version, strlen(ca_version));
	hash_part(h, p->tc.id, strlen(p->tc.id));
	hash_part(h, jail, strlen(jail));
	for (size_t i = 0; dry->argv[i]; i++)
		hash_part(h, dry->argv[i], strlen(dry->argv[i]));
	hash_end(h, sum);
	hex(sum, sizeof(sum), key);
	return 0;
}

int nvcc_steps(const struct plan *p, const struct plan_unit *u,
	       const struct compile_opts *o, struct str *steps)
{
	struct plan_unit unit = { .source = NULL };
	struct plan dry = { .unit = &unit, .nunit = 1 };
	char dir[64], path[CA_PATH_MAX];
	struct compiled c;
	int rc = -1;

	memcpy(dry.ro, p->ro, sizeof(dry.ro));
	if (dry_command(u, dir, &unit) || dry_key(p, &unit, o, dry.key))
		return -1;
	if (cache_get(dry.key, path, NULL, NULL) == 1)
		return read_file(path, STEPS_MAX, steps, NULL);
	if (!compile_plan(&dry, o, &c, NULL) && c.status == ST_OK &&
	    c.object.len && c.object.len <= STEPS_MAX) {
		rc = str_add(steps, c.object.buf, c.object.len);
		(void)cache_put(dry.key, c.object.buf, c.object.len,
				"\"steps\":true", path, NULL);
	}
	str_release(&c.object);
	str_release(&c.log);
	return rc;
}
