/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "nn/ckpt.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/path.h"
#include "base/sum.h"
#include "nn/safetensors.h"

#define FILE_MAX  JSON_MAX_FILE		/* of what is copied */
#define BLOCK	  ((size_t)1 << 20)
#define VERSION	  2			/* of the manifest */

static const char *const copied[] = {
	"config.json", "generation_config.json", "tokenizer.json",
	"tokenizer_config.json", "chat_template.jinja",
	"special_tokens_map.json",
};

/* A file that is being written into the new folder, and the manifest. */
struct out {
	char dir[CA_PATH_MAX];
	struct str list;		/* members of the manifest */
	int fd;
	struct sum sum;
};

static int begin(struct out *o, const char *name, struct err *e)
{
	char path[CA_PATH_MAX + 64];

	snprintf(path, sizeof path, "%s/%s", o->dir, name);
	sum_begin(&o->sum, 0);
	o->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (o->fd < 0)
		return err_sys(e, CA_CANTCREAT, "cannot create '%s'", path);
	return 0;
}

static int add(struct out *o, const void *p, size_t n, struct err *e)
{
	sum_add(&o->sum, p, n);
	return write_full(o->fd, p, n, e);
}

static int end(struct out *o, const char *name, int rc, struct err *e)
{
	if (!rc && fsync(o->fd))
		rc = err_sys(e, CA_IOERR, "cannot sync '%s'", name);
	if (o->fd >= 0)
		close(o->fd);
	o->fd = -1;
	if (rc)
		return rc;
	str_addf(&o->list, "%s\"%s\":{\"bytes\":%llu,\"sum\":\"%llu\"}",
		 o->list.len ? "," : "", name,
		 (unsigned long long)o->sum.bytes,
		 (unsigned long long)sum_end(&o->sum));
	return o->list.failed ? err_set(e, CA_SOFTWARE, "no memory") : 0;
}

static int write_text(struct out *o, const char *name, const char *p,
		      size_t n, struct err *e)
{
	int rc = begin(o, name, e);

	if (!rc)
		rc = add(o, p, n, e);
	return end(o, name, rc, e);
}

/* One tensor's line of a header; *at moves on. */
static void describe(struct jw *w, const char *prefix,
		     const struct nn_param *p, int part, uint64_t *at)
{
	uint64_t n = (uint64_t)p->rows[part] * (uint64_t)p->cols * 4;
	char name[128];

	snprintf(name, sizeof name, "%s%s", prefix, p->name[part]);
	jw_key(w, name);
	jw_obj(w);
	jw_kstr(w, "dtype", "F32");
	jw_key(w, "shape");
	jw_arr(w);
	jw_int(w, p->rows[part]);
	if (p->dims == 2)
		jw_int(w, p->cols);
	jw_end_arr(w);
	jw_key(w, "data_offsets");
	jw_arr(w);
	jw_int(w, (int64_t)*at);
	*at += n;
	jw_int(w, (int64_t)*at);
	jw_end_arr(w);
	jw_end_obj(w);
}

struct kind {
	enum train_what what;
	const char *prefix;
};

static int add_header(struct out *o, const struct nn_model *m,
		      const struct kind *kind, int kinds, struct err *e)
{
	struct str s = STR_INIT;
	unsigned char len[8];
	uint64_t at = 0;
	struct jw w;
	int rc;

	jw_init(&w, &s);
	jw_obj(&w);
	jw_key(&w, "__metadata__");
	jw_obj(&w);
	jw_kstr(&w, "format", "pt");
	jw_end_obj(&w);
	for (int k = 0; k < kinds; k++)
		for (size_t i = 0; i < m->nparams; i++)
			for (int j = 0; j < m->param[i].parts; j++)
				describe(&w, kind[k].prefix, &m->param[i], j,
					 &at);
	jw_end_obj(&w);
	while (s.len % 8 && !s.failed)
		str_addc(&s, ' ');
	for (int i = 0; i < 8; i++)
		len[i] = (unsigned char)((uint64_t)s.len >> 8 * i);
	rc = s.failed ? err_set(e, CA_SOFTWARE, "no memory") :
	     add(o, len, 8, e) || add(o, s.buf, s.len, e) ? -1 : 0;
	str_release(&s);
	return rc;
}

static int check_finite(const float *x, const struct nn_param *p,
			struct err *e)
{
	for (size_t i = 0; i < p->n; i++)
		if (!isfinite(x[i]))
			return err_set(e, CA_DATAERR, "weight '%s' is not "
				       "finite: nothing is saved",
				       p->name[0]);
	return 0;
}

/* Parts of a parameter lie below each other, as they do in the file.  Without
 * `o` they are only read, for who writes them. */
static int add_params(struct out *o, struct train *t,
		      enum train_what what, struct err *e)
{
	const struct nn_model *m = train_model(t);
	int rc = 0;

	for (size_t i = 0; i < m->nparams && !rc; i++) {
		const struct nn_param *p = &m->param[i];
		float *x = malloc(p->n * sizeof *x);

		if (!x)
			return err_set(e, CA_SOFTWARE, "no memory");
		rc = train_read(t, what, p, x, e) ||
		     (o && (check_finite(x, p, e) ||
			    add(o, x, p->n * sizeof *x, e))) ? -1 : 0;
		free(x);
	}
	return rc;
}

static int write_params(struct out *o, struct train *t, const char *name,
			const struct kind *kind, int kinds, struct err *e)
{
	int rc = begin(o, name, e);

	if (!rc)
		rc = add_header(o, train_model(t), kind, kinds, e);
	for (int k = 0; k < kinds && !rc; k++)
		rc = add_params(o, t, kind[k].what, e);
	return end(o, name, rc, e);
}

/* config.json of a critic made of a language model. */
static int make_critic(struct str *s, struct err *e)
{
	struct str out = STR_INIT;
	int rc = nn_config_critic(s->buf ? s->buf : "", s->len, &out, e);

	str_release(s);
	*s = out;
	return rc;
}

static int copy_files(struct out *o, const char *from, int critic,
		      struct err *e)
{
	char path[CA_PATH_MAX + 64];
	struct str s = STR_INIT;
	int rc = 0;

	for (size_t i = 0; i < sizeof copied / sizeof *copied && !rc; i++) {
		snprintf(path, sizeof path, "%s/%s", from, copied[i]);
		if (access(path, F_OK))
			continue;
		str_reset(&s);
		rc = read_file(path, FILE_MAX, &s, e) ||
		     (critic && !i && make_critic(&s, e)) ||
		     write_text(o, copied[i], s.buf ? s.buf : "", s.len, e) ?
		     -1 : 0;
	}
	str_release(&s);
	return rc;
}

static int write_state(struct out *o, struct train *t, const char *state,
		       struct err *e)
{
	struct str s = STR_INIT;
	struct jw w;
	int rc;

	if (json_check(state, strlen(state), FILE_MAX, NULL, e))
		return err_wrap(e, "state of a checkpoint");
	jw_init(&w, &s);
	jw_obj(&w);
	jw_kint(&w, "step", train_steps(t));
	jw_key(&w, "state");
	jw_raw(&w, state, strlen(state));
	jw_end_obj(&w);
	rc = s.failed ? err_set(e, CA_SOFTWARE, "no memory") :
	     write_text(o, "train.json", s.buf, s.len, e);
	str_release(&s);
	return rc;
}

static int write_manifest(struct out *o, struct err *e)
{
	struct str s = STR_INIT;
	int rc;

	str_addf(&s, "{\"v\":%d,\"files\":{%s}}\n", VERSION, o->list.buf);
	rc = s.failed ? err_set(e, CA_SOFTWARE, "no memory") :
	     write_text(o, "manifest.json", s.buf, s.len, e);
	str_release(&s);
	return rc;
}

static int sync_dir(const char *path, struct err *e)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;

	if (fd < 0 || fsync(fd))
		rc = err_sys(e, CA_IOERR, "cannot sync '%s'", path);
	if (fd >= 0)
		close(fd);
	return rc;
}

/* Syncs the new folder; what is at `dir` moves to `prev`, and the new one
 * takes its name. */
static int put_in_place(const char *temp, const char *dir, const char *prev,
			struct err *e)
{
	char parent[CA_PATH_MAX];
	char *slash;
	int moved = 0;

	if (sync_dir(temp, e))
		return -1;
	snprintf(parent, sizeof parent, "%s", dir);
	slash = strrchr(parent, '/');
	if (slash)
		*(slash == parent ? slash + 1 : slash) = '\0';
	else
		snprintf(parent, sizeof parent, ".");
	if (!access(dir, F_OK)) {
		if (!access(prev, F_OK) && remove_tree(prev, e))
			return -1;
		if (rename(dir, prev))
			return err_sys(e, CA_CANTCREAT, "cannot rename '%s'",
				       dir);
		moved = 1;
	}
	if (rename(temp, dir)) {
		err_sys(e, CA_CANTCREAT, "cannot rename '%s'", temp);
		if (moved && rename(prev, dir))
			err_wrap(e, "'%s' is left at '%s'", dir, prev);
		return -1;
	}
	return sync_dir(parent, e);
}

static const struct kind weights[] = { { TRAIN_WEIGHT, "" } };
static const struct kind moments[] = { { TRAIN_M, "m." }, { TRAIN_V, "v." } };

int ckpt_share(struct train *t, struct err *e)
{
	return add_params(NULL, t, weights[0].what, e) ||
	       add_params(NULL, t, moments[0].what, e) ||
	       add_params(NULL, t, moments[1].what, e) ? -1 : 0;
}

int ckpt_share_weights(struct train *t, struct err *e)
{
	return add_params(NULL, t, weights[0].what, e);
}

/* An empty folder beside `dir`, to be written into. */
static int make_room(struct out *o, const char *dir, struct err *e)
{
	if (snprintf(o->dir, sizeof o->dir, "%s.new", dir) >=
	    (int)sizeof o->dir - 64)
		return err_set(e, CA_CANTCREAT, "name is too long");
	/* Left by a run that was killed. */
	if (!access(o->dir, F_OK) && remove_tree(o->dir, e))
		return -1;
	return mkdir_p(o->dir, 0755, e);
}

int ckpt_try(const char *dir, struct err *e)
{
	char own[CA_PATH_MAX];

	/* Under a name that no run has. */
	if (snprintf(own, sizeof own, "%s.try.%d", dir, (int)getpid()) >=
	    (int)sizeof own - 64)
		return err_set(e, CA_CANTCREAT, "name is too long");
	if (mkdir_p(own, 0755, e))
		return -1;
	return rmdir(own) ? err_sys(e, CA_CANTCREAT, "cannot remove '%s'",
				    own) : 0;
}

/* What makes it a model. */
static int write_model(struct out *o, struct train *t, const char *from,
		       struct err *e)
{
	int critic = train_model(t)->cfg.head == NN_HEAD_VALUE;

	return copy_files(o, from, critic, e) ||
	       write_params(o, t, "model.safetensors", weights, 1, e) ? -1 : 0;
}

int ckpt_save(struct train *t, const char *dir, const char *from,
	      const char *state, struct err *e)
{
	struct out o = { .list = STR_INIT, .fd = -1 };
	char prev[CA_PATH_MAX + 16];
	int rc = -1;

	if (make_room(&o, dir, e))
		return -1;
	snprintf(prev, sizeof prev, "%s.prev", dir);
	if (!write_model(&o, t, from, e) &&
	    !write_params(&o, t, "optimizer.safetensors", moments, 2, e) &&
	    !write_state(&o, t, state, e) && !write_manifest(&o, e))
		rc = put_in_place(o.dir, dir, prev, e);
	if (rc)
		remove_tree(o.dir, NULL);
	str_release(&o.list);
	return rc;
}

int ckpt_publish(struct train *t, const char *dir, const char *from,
		 struct err *e)
{
	struct out o = { .list = STR_INIT, .fd = -1 };
	char old[CA_PATH_MAX + 16];
	int rc = -1;

	if (make_room(&o, dir, e))
		return -1;
	snprintf(old, sizeof old, "%s.old", dir);
	if (!write_model(&o, t, from, e) && !put_in_place(o.dir, dir, old, e))
		rc = access(old, F_OK) ? 0 : remove_tree(old, e);
	if (rc)
		remove_tree(o.dir, NULL);
	str_release(&o.list);
	return rc;
}

/* Size and sum of a file. */
static int measure(const char *path, uint64_t *bytes, uint64_t *sum,
		   struct err *e)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	char *block = malloc(BLOCK);
	ssize_t n = -1;
	struct sum s;

	sum_begin(&s, 0);
	if (fd < 0)
		err_sys(e, CA_DATAERR, "cannot open '%s'", path);
	else if (!block)
		err_set(e, CA_SOFTWARE, "no memory");
	else
		while ((n = read_full(fd, block, BLOCK, e)) > 0)
			sum_add(&s, block, (size_t)n);
	*bytes = s.bytes;
	*sum = sum_end(&s);
	free(block);
	if (fd >= 0)
		close(fd);
	return n < 0 ? -1 : 0;
}

static struct json *read_json(const char *dir, const char *name,
			      struct err *e)
{
	char path[CA_PATH_MAX + 64];
	struct str s = STR_INIT;
	struct json *j = NULL;

	snprintf(path, sizeof path, "%s/%s", dir, name);
	if (!read_file(path, FILE_MAX, &s, e)) {
		j = json_parse(s.buf ? s.buf : "", s.len, FILE_MAX, NULL, e);
		if (!j)
			err_wrap(e, "'%s'", path);
	}
	str_release(&s);
	return j;
}

static int verify_file(const char *dir, const struct json *j, struct err *e)
{
	char path[CA_PATH_MAX + 64];
	const char *name = json_key(j);
	uint64_t bytes, sum, was;

	if (strchr(name, '/'))
		return err_set(e, CA_DATAERR, "manifest names '%s'", name);
	snprintf(path, sizeof path, "%s/%s", dir, name);
	if (measure(path, &bytes, &sum, e))
		return -1;
	if ((int64_t)bytes != json_get_int(j, "bytes", -1) ||
	    json_u64(json_get(j, "sum"), &was) || sum != was)
		return err_set(e, CA_DATAERR, "'%s' is not what was written",
			       path);
	return 0;
}

int ckpt_verify(const char *dir, struct err *e)
{
	struct json *j = read_json(dir, "manifest.json", e);
	const struct json *f = json_get(j, "files");
	int64_t v = json_get_int(j, "v", -1);
	int rc = j ? 0 : -1;

	if (v > 0 && v != VERSION)
		rc = err_set(e, CA_DATAERR, "'%s' is a checkpoint of %s "
			     "version, which this one cannot go on from", dir,
			     v < VERSION ? "an earlier" : "a later");
	else if (j && (v < 0 || !json_get(f, "model.safetensors") ||
		  !json_get(f, "optimizer.safetensors") ||
		  !json_get(f, "train.json")))
		rc = err_set(e, CA_DATAERR, "'%s/manifest.json' is not whole",
			     dir);
	for (f = json_first(f); f && !rc; f = json_next(f))
		rc = verify_file(dir, f, e);
	json_free(j);
	return rc;
}

static int load_param(struct train *t, const struct st *s,
		      const struct kind *kind, const struct nn_param *p,
		      float *x, struct err *e)
{
	size_t at = 0;
	char name[128];

	for (int i = 0; i < p->parts; i++) {
		size_t n = (size_t)p->rows[i] * (size_t)p->cols;
		const struct st_tensor *v;

		snprintf(name, sizeof name, "%s%s", kind->prefix, p->name[i]);
		v = st_get(s, name);
		if (!v || !v->floats || v->type != GPU_F32 ||
		    v->bytes != n * sizeof *x)
			return err_set(e, CA_DATAERR, "optimiser has no '%s' "
				       "of this size", name);
		memcpy(x + at, v->data, v->bytes);
		at += n;
	}
	return train_write(t, kind->what, p, x, e);
}

static int load_moments(struct train *t, const struct st *s, struct err *e)
{
	const struct nn_model *m = train_model(t);
	int rc = 0;

	for (size_t i = 0; i < m->nparams && !rc; i++) {
		float *x = malloc(m->param[i].n * sizeof *x);

		if (!x)
			return err_set(e, CA_SOFTWARE, "no memory");
		for (int k = 0; k < 2 && !rc; k++)
			rc = load_param(t, s, &moments[k], &m->param[i], x,
					e);
		free(x);
	}
	return rc;
}

int ckpt_load(struct train *t, const char *dir, struct str *state,
	      struct err *e)
{
	char path[CA_PATH_MAX + 64];
	struct json *j = read_json(dir, "train.json", e);
	struct st *s = NULL;
	int64_t step = json_get_int(j, "step", -1);
	struct jw w;
	int rc = -1;

	snprintf(path, sizeof path, "%s/optimizer.safetensors", dir);
	if (!j)
		return -1;
	if (step < 0)
		err_set(e, CA_DATAERR, "'%s/train.json' has no step", dir);
	else
		s = st_open_file(path, e);
	if (s && !load_moments(t, s, e)) {
		train_set_steps(t, step);
		jw_init(&w, state);
		jw_node(&w, json_get(j, "state"));
		rc = state->failed ? err_set(e, CA_SOFTWARE, "no memory") : 0;
	}
	st_close(s);
	json_free(j);
	return rc;
}
