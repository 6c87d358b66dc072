/* SPDX-License-Identifier: Apache-2.0
 *
 * What work directories share is made; one is made, opened, given to another
 * uid, and digested.
 */
#define _GNU_SOURCE
#include "agent/place.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "build/tree.h"

#define SKILL_FILES 256
#define SKILL_FILE ((size_t)1 << 20)
#define ENTRIES_MAX 50000
#define DEPTH_MAX 32
#define HASHED_MAX (1 << 20)

/* The released workdir's commands, by its names. */
static const struct {
	const char *name, *text;
} utils[] = {
	{ "utils/__init__.py", "" },
	{ "utils/compile.sh", "#!/bin/sh\nexec ca-compile \"$@\"\n" },
	{ "utils/verification.py", "import os\nimport sys\n\n"
	  "os.execvp(\"ca-verify\", [\"ca-verify\", *sys.argv[1:]])\n" },
	{ "utils/profiling.py", "import os\nimport sys\n\n"
	  "os.execvp(\"ca-profile\", [\"ca-profile\", *sys.argv[1:]])\n" },
};

static int hidden(const char *name)
{
	return name[0] == '.' || !strcmp(name, "single-turn.md") ||
	       !strcmp(name, "__pycache__") || !strcmp(name, "expect.json");
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

struct names {
	char **v;
	size_t n, alloc;
};

static int add_name(struct names *s, const char *name)
{
	size_t alloc = s->alloc ? 2 * s->alloc : 32;
	char **v = s->n < s->alloc ? s->v : realloc(s->v, alloc * sizeof(*v));

	if (!v)
		return -1;
	s->alloc = s->n < s->alloc ? s->alloc : alloc;
	s->v = v;
	v[s->n] = strdup(name);
	return v[s->n] ? (s->n++, 0) : -1;
}

/* All but the dots; of more than can be counted nobody asks. */
static int read_names(DIR *d, struct names *s)
{
	struct dirent *entry;
	int rc = 0;

	while (!rc && s->n <= ENTRIES_MAX && (entry = readdir(d)))
		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
			rc = add_name(s, entry->d_name);
	if (s->n)
		qsort(s->v, s->n, sizeof(*s->v), by_name);
	return rc;
}

/* Calls `each` for the entries of a directory in the order of their names. */
static int sorted(int fd, int (*each)(void *ctx, int dir, const char *name,
				      struct err *e),
		  void *ctx, struct err *e)
{
	int own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc;
	DIR *d = own >= 0 ? fdopendir(own) : NULL;
	struct names s = { NULL, 0, 0 };
	size_t i;

	if (!d && own >= 0)
		close(own);
	rc = !d || read_names(d, &s) ?
	     err_sys(e, CA_IOERR, "cannot read a directory") : 0;
	for (i = 0; i < s.n; i++) {
		if (!rc)
			rc = each(ctx, fd, s.v[i], e);
		free(s.v[i]);
	}
	free(s.v);
	if (d)
		closedir(d);
	return rc;
}

/* A tree that is copied into another; files that may be shared, as links. */
struct copy {
	int to, depth, share;
	size_t files;
	const char *path;	/* of the new directory, for messages */
	char prefix[1024];
};

static int copy_entry(void *ctx, int dir, const char *name, struct err *e);

static int copy_dir(struct copy *c, int dir, const char *name, struct err *e)
{
	size_t n = strlen(c->prefix);
	int fd, rc;

	if (++c->depth > 4)
		return err_set(e, CA_CONFIG, "the skill nests too deep");
	fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return err_sys(e, CA_NOINPUT, "cannot open '%s'", name);
	snprintf(c->prefix + n, sizeof(c->prefix) - n, "%s", name);
	rc = tree_dir(c->to, c->path, c->prefix, e);
	snprintf(c->prefix + n, sizeof(c->prefix) - n, "%s/", name);
	if (!rc)
		rc = sorted(fd, copy_entry, c, e);
	c->prefix[n] = '\0';
	close(fd);
	c->depth--;
	return rc;
}

static int copy_entry(void *ctx, int dir, const char *name, struct err *e)
{
	struct copy *c = ctx;
	struct str text = STR_INIT;
	char path[2048];
	struct stat st;
	int rc = -1;

	if (hidden(name))
		return 0;
	if (fstatat(dir, name, &st, 0))
		return err_sys(e, CA_NOINPUT, "cannot stat '%s'", name);
	if (S_ISDIR(st.st_mode))
		return copy_dir(c, dir, name, e);
	if (++c->files > SKILL_FILES)
		return err_set(e, CA_CONFIG, "the skill has too many files");
	snprintf(path, sizeof(path), "%s%s", c->prefix, name);
	/* Another file system, or too many links to one file. */
	if (c->share && !linkat(dir, name, c->to, path, 0))
		return 0;
	if (!read_file_at(dir, name, SKILL_FILE, 1, &text, e))
		rc = tree_put(c->to, c->path, path, text.buf ? text.buf : "",
			      text.len, e);
	if (!rc && fchmodat(c->to, path, st.st_mode & 0111 ? 0555 : 0444, 0))
		rc = err_sys(e, CA_CANTCREAT, "cannot make '%s'", path);
	str_release(&text);
	return rc;
}

static int copy_all(const char *from, const char *path, int to, int share,
		    struct err *e)
{
	struct copy c = { .to = to, .path = path, .share = share };
	int fd = open(from, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc;

	if (fd < 0)
		return err_sys(e, CA_NOINPUT, "cannot open '%s'", from);
	rc = sorted(fd, copy_entry, &c, e);
	close(fd);
	return rc ? err_wrap(e, "'%s'", from) : 0;
}

static int fill_fixed(int fd, const char *path, const char *skill,
		      struct err *e)
{
	size_t i;

	for (i = 0; i < sizeof(utils) / sizeof(*utils); i++)
		if (tree_put(fd, path, utils[i].name, utils[i].text,
			     strlen(utils[i].text), e))
			return -1;
	if (fchmodat(fd, "utils/compile.sh", 0555, 0))
		return err_sys(e, CA_CANTCREAT, "cannot make 'compile.sh'");
	return skill ? copy_all(skill, path, fd, 0, e) : 0;
}

int place_fixed(const char *dir, const char *skill, char out[4096],
		struct err *e)
{
	char temp[4096], digest[HASH_HEX];
	struct place p = { .fd = -1 };
	struct tree t;
	int rc = -1;

	snprintf(temp, sizeof(temp), "%.4000s/.fixed.%d", dir, (int)getpid());
	if (tree_open(&t, temp, e))
		return -1;
	p.fd = t.fd;
	if (fill_fixed(p.fd, temp, skill, e) ||
	    place_digest(&p, digest, NULL, e))
		goto out;
	snprintf(out, 4096, "%.4000s/.fixed-%.16s", dir, digest);
	rc = rename(temp, out);
	if (rc && (errno == EEXIST || errno == ENOTEMPTY))
		rc = remove_tree(temp, e);
	else if (rc)
		err_sys(e, CA_CANTCREAT, "cannot make '%s'", out);
out:
	return tree_close(&t, rc);
}

static int fill(int fd, const char *path, const char *code, const char *fixed,
		uid_t uid, struct err *e)
{
	if (tree_put(fd, path, "model.py", code, strlen(code), e) ||
	    copy_all(fixed, path, fd, 1, e) ||
	    tree_dir(fd, path, "kernels", e) ||
	    tree_dir(fd, path, PLACE_OUTPUT, e))
		return -1;
	if (geteuid())
		return 0;
	if (fchownat(fd, "kernels", uid, uid, 0) ||
	    fchownat(fd, PLACE_OUTPUT, uid, uid, 0) ||
	    fchmod(fd, 01777))
		return err_sys(e, CA_CANTCREAT, "cannot hand '%s' over", path);
	return 0;
}

int place_make(const char *path, const char *code, const char *fixed,
	       uid_t uid, struct err *e)
{
	struct tree t;

	if (tree_open(&t, path, e))
		return -1;
	return tree_close(&t, fill(t.fd, path, code, fixed, uid, e));
}

static int add_fixed(struct place *p, const char *name, struct err *e)
{
	if (place_is_fixed(p, name, strlen(name)))
		return 0;
	if (p->nfixed == PLACE_FIXED_MAX ||
	    strlen(name) >= sizeof(p->fixed[0]))
		return err_set(e, CA_CONFIG, "the skill has too many names");
	strcpy(p->fixed[p->nfixed++], name);
	return 0;
}

static int fix_entry(void *ctx, int dir, const char *name, struct err *e)
{
	(void)dir;
	return add_fixed(ctx, name, e);
}

int place_open(struct place *p, const char *path, const char *fixed,
	       struct err *e)
{
	struct stat st;
	int fd, rc;

	memset(p, 0, sizeof(*p));
	p->fd = -1;
	if (!realpath(path, p->path))
		return err_sys(e, CA_NOINPUT, "cannot find '%s'", path);
	fd = open(fixed, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return err_sys(e, CA_NOINPUT, "cannot open '%s'", fixed);
	rc = add_fixed(p, "model.py", e) || add_fixed(p, PLACE_OUTPUT, e) ||
	     sorted(fd, fix_entry, p, e);
	close(fd);
	if (rc)
		return -1;
	p->fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (p->fd < 0)
		return err_sys(e, CA_NOINPUT, "cannot open '%s'", path);
	/* What jails show has to be there. */
	if (fstatat(p->fd, PLACE_OUTPUT, &st, AT_SYMLINK_NOFOLLOW) ||
	    !S_ISDIR(st.st_mode))
		return err_set(e, CA_NOINPUT, "'%s' has no directory "
			       PLACE_OUTPUT, path);
	return 0;
}

struct give {
	uid_t uid;
	int depth;
};

static int give_entry(void *ctx, int dir, const char *name, struct err *e)
{
	struct give *g = ctx;
	struct stat st;
	int fd, rc;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW))
		return 0;
	if (st.st_uid && fchownat(dir, name, g->uid, g->uid,
				  AT_SYMLINK_NOFOLLOW))
		return err_sys(e, CA_CANTCREAT, "cannot hand '%s' over", name);
	if (!S_ISDIR(st.st_mode) || g->depth > DEPTH_MAX)
		return 0;
	fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW |
		    O_CLOEXEC);
	if (fd < 0)
		return 0;
	g->depth++;
	rc = sorted(fd, give_entry, g, e);
	g->depth--;
	close(fd);
	return rc;
}

int place_give(const char *path, uid_t uid, struct err *e)
{
	struct give g = { uid, 0 };

	return geteuid() ? 0 : give_entry(&g, AT_FDCWD, path, e);
}

struct digest {
	const struct place *p;
	struct hash *h;
	int64_t bytes;
	size_t entries;
	int depth;
};

static int digest_file(struct digest *d, int dir, const char *name,
		       const struct stat *st, struct err *e)
{
	struct str text = STR_INIT;
	struct err none = ERR_INIT;

	(void)e;
	if (st->st_size > HASHED_MAX) {
		hash_add(d->h, &st->st_mtim, sizeof(st->st_mtim));
		return 0;
	}
	/* One that the model made unreadable is as it is. */
	if (!read_file_at(dir, name, HASHED_MAX + 1, 0, &text, &none))
		hash_part(d->h, text.buf ? text.buf : "", text.len);
	str_release(&text);
	return 0;
}

static int digest_entry(void *ctx, int dir, const char *name, struct err *e);

static int digest_dir(struct digest *d, int dir, const char *name,
		      struct err *e)
{
	int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW |
			O_CLOEXEC);
	int rc = 0;

	/* One that nobody may look into could hold anything. */
	if (fd < 0 && errno == EACCES)
		d->bytes = PLACE_BEYOND;
	if (fd < 0)
		return 0;
	d->depth++;
	if (d->depth > DEPTH_MAX)
		d->bytes = PLACE_BEYOND;
	else
		rc = sorted(fd, digest_entry, d, e);
	d->depth--;
	close(fd);
	return rc;
}

static void digest_head(struct digest *d, const char *name,
			const struct stat *st)
{
	const int64_t head[2] = {
		st->st_mode, S_ISREG(st->st_mode) ? st->st_size : 0
	};

	hash_part(d->h, name, strlen(name));
	hash_add(d->h, head, sizeof(head));
}

static int digest_entry(void *ctx, int dir, const char *name, struct err *e)
{
	struct digest *d = ctx;
	struct hash *h = d->h;
	struct stat st;
	int rc = 0;

	if (!d->depth && strcmp(name, PLACE_OUTPUT) &&
	    place_is_fixed(d->p, name, strlen(name)))
		return 0;
	if (++d->entries > ENTRIES_MAX) {
		d->bytes = PLACE_BEYOND;
		return 0;
	}
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW))
		return 0;
	if (d->bytes < PLACE_BEYOND)
		d->bytes += (int64_t)st.st_blocks * 512;
	/* Outputs are counted only. */
	if (!d->depth && !strcmp(name, PLACE_OUTPUT))
		d->h = NULL;
	if (d->h)
		digest_head(d, name, &st);
	if (S_ISDIR(st.st_mode))
		rc = digest_dir(d, dir, name, e);
	else if (d->h && S_ISREG(st.st_mode))
		rc = digest_file(d, dir, name, &st, e);
	d->h = h;
	return rc;
}

int place_digest(const struct place *p, char hex_out[HASH_HEX],
		 int64_t *bytes, struct err *e)
{
	struct digest d = { .p = p, .h = hex_out ? hash_new() : NULL };
	uint8_t sum[HASH_LEN];
	int rc;

	if (hex_out && !d.h)
		return err_set(e, CA_SOFTWARE, "out of memory");
	rc = sorted(p->fd, digest_entry, &d, e);
	if (d.h) {
		hash_end(d.h, sum);
		hex(sum, HASH_LEN, hex_out);
	}
	if (bytes)
		*bytes = d.bytes;
	return rc;
}
