/* SPDX-License-Identifier: Apache-2.0
 *
 * Building a candidate.
 */
#include "build/build.h"

#include <string.h>
#include <time.h>

#include "base/io.h"
#include "base/opt.h"
#include "build/compile.h"
#include "build/device.h"
#include "build/elf.h"

#define TIMEOUT_PLAIN 120.0
#define TIMEOUT_TORCH 300.0

static const char *const no_uses[] = { NULL };

/* One build in progress. */
struct job {
	const struct rec *r;
	const struct build_opts *o;
	struct arena a;
	struct plan plan;	/* with slim headers, until those failed */
	struct plan real;	/* with torch's; made where there is a choice */
	enum jail_level level;
	enum status status;
	struct first_error error;	/* message NULL: none */
	struct str launchers;		/* JSON */
	struct str log;
	int cached;
	int64_t began;
};

static int only(const struct job *j, enum plan_headers h)
{
	return j->o->headers &&
	       strcmp(j->o->headers, plan_headers_name(h)) == 0;
}

/* Limit of one compiler run; torch's headers take their time. */
static double timeout_of(const struct job *j)
{
	return j->o->timeout > 0 ? j->o->timeout :
	       j->plan.headers != HEADERS_NONE ? TIMEOUT_TORCH :
	       TIMEOUT_PLAIN;
}

static int is_cuda(const struct build_opts *o)
{
	return o->device && starts_with(o->device, "cuda");
}

/* The best level there is; one that cannot keep jobs apart must be asked
 * for. */
static int choose_level(struct job *j, struct err *e)
{
	struct jail_caps c;

	if (j->o->no_jail) {
		j->level = JAIL_NONE;
		return 0;
	}
	if (jail_probe(&c, e) < 0)
		return -1;
	if (c.command < JAIL_UID)
		return err_set(e, CA_UNAVAILABLE, "no jail for compilers: %s; "
			       "--no-jail builds without", c.why);
	j->level = c.command;
	return 0;
}

static void fail(struct job *j, enum status s, const char *file, long line,
		 const char *message)
{
	j->status = s;
	j->error.file = file;
	j->error.line = line;
	j->error.message = message;
}

static int has_entry(const char *const *names, size_t n, const char *module)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (starts_with(names[i], "PyInit_") &&
		    strcmp(names[i] + 7, module) == 0)
			return 1;
	return 0;
}

static const char *check_exts(struct job *j, const char *const *names,
			      size_t n)
{
	const struct exts *x = &j->plan.exts;
	size_t i;

	for (i = 0; i < x->n; i++)
		if (!has_entry(names, n, x->v[i].name))
			return arena_printf(&j->a, "the extension '%s' "
					    "defines no module: name its "
					    "functions, or use PYBIND11_MODULE"
					    "(TORCH_EXTENSION_NAME, m)",
					    x->v[i].name);
	return NULL;
}

/* What is wrong with the functions that a built object offers, or NULL. */
static const char *check_names(struct job *j, const char *const *names,
			       size_t n)
{
	struct launch_set *l = &j->plan.launchers;
	size_t i, k = 0;

	if (j->plan.form == FORM_PAPER)
		return has_entry(names, n, "cuda_extension") ? NULL :
		       "no module: binding.cpp must define "
		       "PYBIND11_MODULE(cuda_extension, m)";
	if (j->plan.form == FORM_INLINE)
		return check_exts(j, names, n);
	launch_keep(l, names, n);
	for (i = 0; i < l->n; i++)
		if (l->v[i].global == (j->plan.form == FORM_KERNEL))
			l->v[k++] = l->v[i];
	l->n = k;
	if (!k && l->passed)
		return l->passed;
	return k ? NULL : "no launcher: kernels/ must define at least one "
		"extern \"C\" function that takes pointers and numbers";
}

/* Keeps the launchers that the object really has, and judges what is left. */
static int check_launchers(struct job *j, const struct str *object,
			   struct err *e)
{
	const struct launch_set *l = &j->plan.launchers;
	struct err bad = ERR_INIT;
	const char **names, *why;
	size_t n;

	if (j->plan.headers == HEADERS_NONE && l->error) {
		fail(j, ST_COMPILE_ERROR, l->error_file, l->error_line,
		     l->error);
		return 0;
	}
	if (elf_functions(object->buf, object->len, &j->a, &names, &n,
			  &bad) == 0)
		why = check_names(j, names, n);
	else if (bad.code == CA_SOFTWARE)
		return err_set(e, bad.code, "%s", bad.msg);
	else
		why = arena_strdup(&j->a, bad.msg);
	if (why && why == l->passed)
		fail(j, ST_COMPILE_ERROR, l->passed_file, l->passed_line, why);
	else if (why)
		fail(j, ST_COMPILE_ERROR, NULL, 0, why);
	return 0;
}

static void add_launchers(struct job *j)
{
	struct jw w;
	size_t i;

	jw_init(&w, &j->launchers);
	if (j->plan.headers == HEADERS_NONE) {
		launch_json(&j->plan.launchers, &w);
		return;
	}
	jw_arr(&w);
	for (i = 0; i < j->plan.exts.n; i++) {
		jw_obj(&w);
		jw_kstr(&w, "name", j->plan.exts.v[i].name);
		jw_kstr(&w, "request", j->plan.exts.v[i].request);
		jw_end_obj(&w);
	}
	jw_end_arr(&w);
}

static int store(struct job *j, const struct str *object, struct err *e)
{
	struct str members = STR_INIT;
	char path[CA_PATH_MAX];
	int rc = -1;

	str_addf(&members, "\"form\":\"%s\",\"jail\":\"%s\",\"launchers\":",
		 form_name(j->plan.form), jail_level_name(j->level));
	str_add(&members, j->launchers.buf, j->launchers.len);
	if (members.failed)
		err_set(e, CA_SOFTWARE, "out of memory");
	else
		rc = cache_put(j->plan.key, object->buf, object->len,
			       members.buf, path, e);
	str_release(&members);
	return rc;
}

static void explain(struct job *j, struct compiled *c)
{
	const char *text;

	log_settle(&c->log);
	text = c->log.buf ? c->log.buf : "";
	log_add(&j->log, text, c->log.len);
	if (c->status == ST_BUILD_TIMEOUT) {
		fail(j, c->status, c->unit < j->plan.nunit ?
		     j->plan.unit[c->unit].source : NULL, 0,
		     arena_printf(&j->a, "the compiler ran longer than %g s",
				  timeout_of(j)));
		return;
	}
	log_first_error(text, c->log.len, &j->a, &j->error);
	j->status = c->status;
}

/* Whether the errors of a build with slim headers may be their fault. */
static int blames_headers(const struct job *j, const struct compiled *c)
{
	return j->plan.headers == HEADERS_SLIM && j->real.key[0] &&
	       c->status == ST_COMPILE_ERROR && c->log.buf &&
	       log_blames_torch(c->log.buf, c->log.len);
}

/* One try; 1 when torch's own headers should be tried. */
static int compile(struct job *j, struct err *e)
{
	struct compile_opts o = { j->level, j->o->jobs, timeout_of(j) };
	struct compiled c;
	int rc;

	rc = compile_plan(&j->plan, &o, &c, e);
	if (rc == 0 && blames_headers(j, &c))
		rc = 1;
	else if (rc == 0 && c.status != ST_OK)
		explain(j, &c);
	else if (rc == 0)
		rc = check_launchers(j, &c.object, e);
	if (rc == 0 && j->status == ST_OK) {
		add_launchers(j);
		rc = store(j, &c.object, e);
	}
	str_release(&c.object);
	str_release(&c.log);
	return rc;
}

/* An object that --no-jail stored is no object for those who want a jail;
 * under --no-jail the record says so wherever the object came from. */
static int from_cache(struct job *j, const struct plan *p, struct err *e)
{
	struct str meta = STR_INIT;
	char path[CA_PATH_MAX];
	struct json *m = NULL;
	struct jw w;
	int hit, level;

	hit = cache_get(p->key, path, &meta, e);
	if (hit <= 0)
		goto out;
	m = json_parse(meta.buf, meta.len, JSON_MAX_LINE, NULL, NULL);
	level = jail_level_parse(json_get_str(m, "jail", ""));
	hit = m && level >= (int)j->level;
	if (!hit)
		goto out;
	if (!j->o->no_jail)
		j->level = (enum jail_level)level;
	jw_init(&w, &j->launchers);
	jw_node(&w, json_get(m, "launchers"));
out:
	json_free(m);
	str_release(&meta);
	return hit;
}

static int plan(struct job *j, struct err *e)
{
	struct plan_opts o = { is_cuda(j->o), j->o->arch, j->o->no_jail,
			       j->o->timeout };
	char own[16];

	if (o.cuda && !o.arch) {
		device_arch(j->o->device, own);
		o.arch = arena_strdup(&j->a, own);
	}
	if (plan_make(j->r, &o, &j->a, &j->plan, e) < 0)
		return -1;
	if (j->plan.status == ST_OK && j->plan.headers == HEADERS_SLIM &&
	    !only(j, HEADERS_SLIM)) {
		j->real = j->plan;
		if (plan_real(&j->real, &j->a, e) < 0)
			return -1;
		if (only(j, HEADERS_REAL))
			j->plan = j->real;
	}
	j->status = j->plan.status;
	if (j->status != ST_OK)
		fail(j, j->status, j->plan.error.file, j->plan.error.line,
		     j->plan.error.message);
	return 0;
}

/* Finds or makes the object; j->status says how it went.  Where torch's own
 * headers were needed once, the object that they made is there. */
static int build(struct job *j, struct err *e)
{
	int hit, rc;

	if (j->status != ST_OK)
		return 0;
	hit = from_cache(j, &j->plan, e);
	if (hit == 0 && j->real.key[0]) {
		hit = from_cache(j, &j->real, e);
		if (hit > 0)
			j->plan = j->real;
	}
	j->cached = hit > 0;
	if (hit)
		return hit < 0 ? -1 : 0;
	rc = compile(j, e);
	if (rc > 0) {
		j->plan = j->real;
		rc = compile(j, e);
	}
	return rc;
}

static void write_options(const struct job *j, struct jw *w)
{
	jw_key(w, "options");
	jw_obj(w);
	jw_kstr(w, "arch", is_cuda(j->o) ? j->plan.arch : "native");
	jw_kstr(w, "device", is_cuda(j->o) ? "cuda" : "cpu");
	jw_knum(w, "timeout", timeout_of(j));
	jw_end_obj(w);
}

static void write_prov(const struct job *j, struct jw *w)
{
	char date[32];
	time_t now = time(NULL);
	struct tm tm;

	gmtime_r(&now, &tm);
	strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", &tm);
	jw_key(w, "prov");
	jw_obj(w);
	jw_kbool(w, "cached", j->cached);
	jw_kstr(w, "date", date);
	jw_knum(w, "seconds",
		(double)((now_ns() - j->began) / 1000000) / 1000.0);
	jw_end_obj(w);
}

static void write_error(const struct job *j, struct jw *w)
{
	jw_key(w, "error");
	if (j->status == ST_OK) {
		jw_null(w);
		return;
	}
	jw_obj(w);
	jw_kstr(w, "file", j->error.file);
	jw_key(w, "line");
	if (j->error.line > 0)
		jw_int(w, j->error.line);
	else
		jw_null(w);
	jw_kstr(w, "message", j->error.message);
	jw_end_obj(w);
}

static void write_field(const struct job *j, struct jw *w)
{
	int planned = j->plan.tree.n > 0;
	int keyed = j->plan.key[0] != '\0';

	jw_obj(w);
	jw_kstr(w, "status", status_name(j->status));
	jw_kstr(w, "form", planned ? form_name(j->plan.form) : NULL);
	jw_kstr(w, "device", is_cuda(j->o) ? "cuda" : "cpu");
	jw_kstr(w, "arch", j->plan.arch);
	if (j->plan.headers != HEADERS_NONE)
		jw_kstr(w, "headers", plan_headers_name(j->plan.headers));
	jw_kstr(w, "object", j->status == ST_OK ? j->plan.key : NULL);
	jw_key(w, "launchers");
	if (j->launchers.len)
		jw_raw(w, j->launchers.buf, j->launchers.len);
	else
		jw_null(w);
	jw_kstr(w, "compiler", keyed ? j->plan.tc.compiler : NULL);
	jw_kstr(w, "toolchain", keyed ? j->plan.tc.id : NULL);
	jw_kstr(w, "jail", jail_level_name(j->level));
	write_options(j, w);
	jw_kstr(w, "version", ca_version);
	write_error(j, w);
	jw_key(w, "log");
	jw_strn(w, j->log.buf ? j->log.buf : "", j->log.len);
	if (!j->o->no_prov)
		write_prov(j, w);
	jw_end_obj(w);
}

static int set_field(const struct job *j, struct rec *r,
		     const struct mac_key *key, struct err *e)
{
	struct str s = STR_INIT;
	struct jw w;
	int rc;

	jw_init(&w, &s);
	write_field(j, &w);
	if (s.failed)
		rc = err_set(e, CA_SOFTWARE, "out of memory");
	else
		rc = mac_set(key, r, "build", s.buf, s.len, no_uses, e);
	str_release(&s);
	return rc;
}

static int same_text(const struct json *a, const char *key, const char *want)
{
	const char *s = json_get_str(a, key, NULL);

	return s && want && strcmp(s, want) == 0;
}

/*
 * Whether the field that came with the record says what a new build would
 * say.  The plan must have been made: the key covers sources, flags, compiler
 * and version, so that only a failure needs the options compared.
 */
static int still_valid(const struct job *j, const struct mac_key *key)
{
	const struct json *b = rec_get(j->r, "build");
	const struct json *o = json_get(b, "options");
	int level = jail_level_parse(json_get_str(b, "jail", ""));

	if (!b || !mac_check(key, j->r, "build", no_uses) ||
	    level < (int)j->level ||
	    !same_text(b, "version", ca_version) ||
	    !same_text(o, "device", is_cuda(j->o) ? "cuda" : "cpu") ||
	    !same_text(o, "arch", j->plan.arch) ||
	    json_get_num(o, "timeout", -1) != timeout_of(j))
		return 0;
	if (build_status(j->r) != ST_OK)
		return !j->plan.key[0] ||
		       same_text(b, "toolchain", j->plan.tc.id);
	return same_text(b, "object", same_text(b, "headers", "real") ?
			 j->real.key : j->plan.key);
}

static int start(struct job *j, const struct rec *r,
		 const struct build_opts *o, struct err *e)
{
	memset(j, 0, sizeof(*j));
	j->r = r;
	j->o = o;
	j->began = now_ns();
	return choose_level(j, e) < 0 ? -1 : plan(j, e);
}

static void finish(struct job *j)
{
	str_release(&j->launchers);
	str_release(&j->log);
	arena_release(&j->a);
}

/* A copy of the record's object key; 0 or -1. */
static int object_key(const struct rec *r, char key[CACHE_KEY])
{
	size_t len;
	const char *text = rec_text(r, "build", &len), *s;
	struct json *j;
	int rc = -1;

	if (!text)
		return -1;
	j = json_parse(text, len, JSON_MAX_LINE, NULL, NULL);
	s = json_get_str(j, "object", "");
	if (strlen(s) == CACHE_KEY - 1 &&
	    strspn(s, "0123456789abcdef") == CACHE_KEY - 1) {
		memcpy(key, s, CACHE_KEY);
		rc = 0;
	}
	json_free(j);
	return rc;
}

static int have_object(const struct rec *r)
{
	char key[CACHE_KEY];

	return object_key(r, key) == 0 && cache_have(key);
}

int build_candidate(struct rec *r, const struct build_opts *o,
		    const struct mac_key *key, struct err *e)
{
	struct job j;
	int rc = -1, valid;

	if (start(&j, r, o, e) < 0)
		goto out;
	valid = still_valid(&j, key);
	if (valid && (build_status(r) != ST_OK || have_object(r)))
		rc = 0;
	else if (build(&j, e) == 0)
		rc = valid && j.status == ST_OK ? 0 :
		     set_field(&j, r, key, e);
out:
	finish(&j);
	return rc;
}

enum status build_status(const struct rec *r)
{
	size_t len;
	const char *text = rec_text(r, "build", &len);
	enum status s = ST_NONE;
	struct json *j;

	if (!text)
		return ST_NONE;
	j = json_parse(text, len, JSON_MAX_LINE, NULL, NULL);
	s = status_parse(json_get_str(j, "status", NULL));
	json_free(j);
	return s;
}

int build_object_path(const struct rec *r, const struct build_opts *o,
		      char path[CA_PATH_MAX], struct err *e)
{
	char key[CACHE_KEY];
	struct job j;
	int rc = -1, hit;

	if (object_key(r, key) < 0)
		return err_set(e, CA_DATAERR, "record has no built object");
	hit = cache_get(key, path, NULL, e);
	if (hit != 0)
		return hit > 0 ? 0 : -1;
	if (start(&j, r, o, e) < 0 || build(&j, e) < 0)
		goto out;
	if (j.status != ST_OK || strcmp(j.plan.key, key) != 0) {
		err_set(e, CA_DATAERR, "the object cannot be rebuilt: %s",
			j.status == ST_OK ? "another compiler or other "
			"options" : j.error.message);
		goto out;
	}
	rc = cache_get(key, path, NULL, e) > 0 ? 0 : -1;
	if (rc < 0 && (!e || !e->code))
		err_set(e, CA_IOERR, "the object is gone from the cache");
out:
	finish(&j);
	return rc;
}
