/* SPDX-License-Identifier: Apache-2.0
 *
 * Precompiled headers.  A candidate's directory is on the include path of its
 * own units, so that its files could stand for torch's: none of them is there
 * when a header is compiled.
 */
#define _GNU_SOURCE
#include "build/pch.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/io.h"
#include "base/opt.h"
#include "cu/lease.h"

#define CACHE_MIN (2LL << 30)	/* a header of half a GiB would push all else
				 * out of a smaller cache */

/* The first one whose includes are all in a unit's file is the unit's. */
static const struct kind {
	const char *name, *include[3];
} kinds[PCH_KINDS] = {
	{ "ca_extension.h", { "torch/extension.h", NULL } },
	{ "ca_binding.h", { "torch/csrc/utils/pybind.h", "torch/types.h",
			    NULL } },
};

/* The file of a unit as a tree of its own; -1: there is none. */
static int file_of(const struct plan *p, const struct plan_unit *u,
		   struct source_tree *one)
{
	const struct source_file *f = source_find(&p->tree, u->source);

	if (!f)
		f = source_find(&p->made, u->source);
	one->file = (struct source_file *)f;
	one->n = 1;
	return f ? 0 : -1;
}

static int includes_all(const struct source_tree *one, const struct kind *k)
{
	for (size_t i = 0; k->include[i]; i++)
		if (!source_includes(one, k->include[i]))
			return 0;
	return 1;
}

/* Index of a unit's kind; PCH_KINDS: none.  Flags of a candidate's own would
 * need headers of their own. */
static size_t kind_of(const struct plan *p, const struct plan_unit *u)
{
	struct source_tree one;
	size_t k = 0;

	if (p->headers != HEADERS_REAL || p->exts.n > 1 ||
	    !(ends_with(u->source, ".cpp") || ends_with(u->source, ".cc")) ||
	    (u->ext && (u->ext->cxx.n || u->ext->cxx.std)) ||
	    file_of(p, u, &one) < 0)
		return PCH_KINDS;
	while (k < PCH_KINDS && !includes_all(&one, &kinds[k]))
		k++;
	return k;
}

const char *pch_of(const struct plan *p, const struct plan_unit *u,
		   const struct pch *have)
{
	size_t k = kind_of(p, u);

	return k < PCH_KINDS && have->file[k][0] ? kinds[k].name : NULL;
}

/* The unit's command, for the header instead: with its flags, without what is
 * the candidate's. */
static void header_command(const struct plan_unit *u, const char *name,
			   struct plan_unit *h)
{
	static const char *const end[] = { "-x", "c++-header", "NAME", "-o",
					   "../out/0/object.o", NULL };
	size_t n = 0;

	for (size_t i = 0; u->argv[i]; i++) {
		const char *s = u->argv[i];

		if (!strcmp(s, "-o"))
			i++;
		else if (strcmp(s, "-c") && strcmp(s, "-I.") &&
			 strcmp(s, "-Ikernels") && strcmp(s, u->source) &&
			 !starts_with(s, "-DTORCH_EXTENSION_NAME="))
			h->argv[n++] = s;
	}
	for (size_t i = 0; end[i]; i++)
		h->argv[n++] = i == 2 ? name : end[i];
	h->argv[n] = NULL;
	h->source = name;
	h->memory = u->memory;
}

/* A plan of one unit, whose object is the precompiled header. */
static int header_plan(const struct plan *p, const struct plan_unit *u,
		       const struct kind *k, const struct str *text,
		       struct source_file *file, struct plan_unit *unit,
		       struct plan *out)
{
	struct hash *h = hash_new();
	uint8_t sum[HASH_LEN];

	if (!h)
		return -1;
	memset(out, 0, sizeof(*out));
	*file = (struct source_file){ .path = k->name, .text = text->buf,
				      .len = text->len };
	header_command(u, k->name, unit);
	out->made.file = file;
	out->made.n = 1;
	out->unit = unit;
	out->nunit = 1;
	memcpy(out->ro, p->ro, sizeof(out->ro));
	hash_part(h, "ca-header 1", 11);
	hash_part(h, ca_version, strlen(ca_version));
	hash_part(h, p->tc.id, strlen(p->tc.id));
	for (size_t i = 0; unit->argv[i]; i++)
		hash_part(h, unit->argv[i], strlen(unit->argv[i]));
	hash_part(h, text->buf, text->len);
	hash_end(h, sum);
	hex(sum, sizeof(sum), out->key);
	return 0;
}

static int make(const struct plan *h, const struct compile_opts *o,
		char path[CA_PATH_MAX], struct err *e)
{
	struct compiled c;
	int rc = compile_plan(h, o, &c, e);

	if (rc == 0 && c.status != ST_OK)
		rc = err_set(e, CA_SOFTWARE, "%s: %.200s",
			     status_name(c.status), c.log.buf ? c.log.buf :
			     "");
	if (rc == 0)
		rc = cache_put(h->key, c.object.buf, c.object.len,
			       "\"form\":\"header\"", path, e);
	str_release(&c.object);
	str_release(&c.log);
	return rc;
}

/* From the cache, or made now.  1: there it was. */
static int find_or_make(const struct plan *h, const struct compile_opts *o,
			char path[CA_PATH_MAX], struct err *e)
{
	int hit = cache_get_large(h->key, path, e), lease;

	if (hit)
		return hit;
	/* Whoever is killed while making it gives the lease back. */
	lease = lease_take("headers", 1, o->timeout, e);
	if (lease < 0)
		return -1;
	hit = cache_get_large(h->key, path, e);
	if (!hit)
		hit = make(h, o, path, e);
	close(lease);
	return hit;
}

/* The text, and beside it the compiled form under the name that the compiler
 * looks for. */
static int place(const char *dir, const struct kind *k, const struct str *text,
		 const char *file, struct err *e)
{
	char path[CA_PATH_MAX];
	int n = snprintf(path, sizeof(path), "%s/%s.gch", dir, k->name);

	if (n < 0 || n >= CA_PATH_MAX)
		return err_set(e, CA_SOFTWARE, "path is too long");
	if (symlink(file, path) < 0)
		return err_sys(e, CA_CANTCREAT, "cannot create '%s'", path);
	path[n - 4] = '\0';
	return write_file_atomic(path, text->buf, text->len, 0644, e);
}

static void lay_out_kind(const struct plan *p, const struct plan_unit *u,
			 const struct compile_opts *o, const char *dir,
			 size_t k, struct pch *have)
{
	struct str text = STR_INIT;
	struct source_file file;
	struct plan_unit unit;
	struct plan h;
	struct err e = ERR_INIT;
	int rc = -1;

	for (size_t i = 0; kinds[k].include[i]; i++)
		str_addf(&text, "#include <%s>\n", kinds[k].include[i]);
	if (!text.failed &&
	    !header_plan(p, u, &kinds[k], &text, &file, &unit, &h))
		rc = find_or_make(&h, o, have->file[k], &e);
	if (rc >= 0 && place(dir, &kinds[k], &text, have->file[k], &e) < 0)
		rc = -1;
	if (rc >= 0)
		mention("precompiled header of '%s': %s", kinds[k].include[0],
			rc ? "found in the cache" : "made");
	else
		mention("no precompiled header: %s", e.msg);
	if (rc < 0)
		have->file[k][0] = '\0';
	str_release(&text);
}

void pch_lay_out(const struct plan *p, const struct compile_opts *o,
		 const char *dir, struct pch *have)
{
	int seen[PCH_KINDS] = { 0 };
	long long limit;

	memset(have, 0, sizeof(*have));
	if (cache_limit(&limit, NULL) || limit < CACHE_MIN)
		return;
	for (size_t i = 0; i < p->nunit; i++) {
		size_t k = kind_of(p, &p->unit[i]);

		if (k < PCH_KINDS && !seen[k]) {
			seen[k] = 1;
			lay_out_kind(p, &p->unit[i], o, dir, k, have);
		}
	}
}
