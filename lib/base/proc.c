/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading the files of /proc.
 */
#include "base/proc.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define PATH_LEN 128

static FILE *open_named(const char *fmt, va_list ap)
{
	char path[PATH_LEN];
	int n = vsnprintf(path, sizeof(path), fmt, ap);

	return n > 0 && (size_t)n < sizeof(path) ? fopen(path, "re") : NULL;
}

static int line_of(char *out, size_t n, const char *name, FILE *f)
{
	size_t len = strlen(name);
	char line[8192];	/* a processor's flags are long */
	int rc = -1;
	char *p;

	out[0] = '\0';
	while (rc && f && fgets(line, sizeof(line), f)) {
		if (strncmp(line, name, len) != 0)
			continue;
		p = line + len + strspn(line + len, " \t");
		if (*p != ':')
			continue;
		p += 1 + strspn(p + 1, " \t");
		p[strcspn(p, "\n")] = '\0';
		snprintf(out, n, "%s", p);
		rc = 0;
	}
	if (f)
		fclose(f);
	return rc;
}

int proc_line(char *out, size_t n, const char *name, const char *fmt, ...)
{
	va_list ap;
	FILE *f;

	va_start(ap, fmt);
	f = open_named(fmt, ap);
	va_end(ap);
	return line_of(out, n, name, f);
}

int64_t proc_bytes(const char *name, const char *fmt, ...)
{
	char text[64], unit[3];
	long long kib;
	va_list ap;
	FILE *f;

	va_start(ap, fmt);
	f = open_named(fmt, ap);
	va_end(ap);
	if (line_of(text, sizeof(text), name, f) < 0 ||
	    sscanf(text, "%lld %2s", &kib, unit) != 2 ||
	    strcmp(unit, "kB") != 0 || kib < 0)
		return -1;
	return (int64_t)kib * 1024;
}

const char *proc_stat(char *buf, size_t n, const char *fmt, ...)
{
	va_list ap;
	char *p;
	FILE *f;

	va_start(ap, fmt);
	f = open_named(fmt, ap);
	va_end(ap);
	if (!f)
		return NULL;
	buf[fread(buf, 1, n - 1, f)] = '\0';
	fclose(f);
	p = strrchr(buf, ')');
	return p && p[1] == ' ' && p[2] ? p + 2 : NULL;
}
