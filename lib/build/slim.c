/* SPDX-License-Identifier: Apache-2.0
 *
 * Our own, small headers in place of torch's.
 */
#define _GNU_SOURCE
#include "build/slim.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/str.h"
#include "build/tree.h"

#define FILES_MAX 128
#define FILE_MAX ((size_t)256 << 10)
#define DEPTH_MAX 6

struct header {
	char *path;		/* below the directory */
	struct str text;
};

struct headers {
	struct header v[FILES_MAX];
	size_t n;
};

static void release(struct headers *h)
{
	while (h->n > 0) {
		h->n--;
		free(h->v[h->n].path);
		str_release(&h->v[h->n].text);
	}
}

static int add(struct headers *h, const char *dir, const char *path,
	       struct err *e)
{
	struct header *f = &h->v[h->n];
	char full[CA_PATH_MAX];

	if (h->n == FILES_MAX ||
	    snprintf(full, sizeof(full), "%s/%s", dir, path) >=
	    (int)sizeof(full))
		return err_set(e, CA_CONFIG, "too many files in '%s'", dir);
	memset(f, 0, sizeof(*f));
	f->path = strdup(path);
	if (!f->path)
		return err_set(e, CA_SOFTWARE, "out of memory");
	h->n++;
	return read_file(full, FILE_MAX, &f->text, e);
}

/* Reads every file below dir/sub. */
static int walk(struct headers *h, const char *dir, const char *sub,
		int depth, struct err *e)
{
	char path[CA_PATH_MAX];
	struct dirent *de;
	DIR *d;
	int rc = 0;

	snprintf(path, sizeof(path), "%s/%s", dir, sub);
	d = depth < DEPTH_MAX ? opendir(path) : NULL;
	if (!d)
		return err_sys(e, CA_UNAVAILABLE, "cannot read '%s'", path);
	while (rc == 0 && (de = readdir(d))) {
		if (de->d_name[0] == '.')
			continue;
		if (snprintf(path, sizeof(path), "%s%s%s", sub,
			     *sub ? "/" : "", de->d_name) >=
		    (int)sizeof(path))
			rc = err_set(e, CA_CONFIG, "path is too long");
		else
			rc = de->d_type == DT_DIR ?
			     walk(h, dir, path, depth + 1, e) :
			     add(h, dir, path, e);
	}
	closedir(d);
	return rc;
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct header *)a)->path,
		      ((const struct header *)b)->path);
}

static int read_all(const char *dir, struct headers *h,
		    char digest[HASH_HEX], struct err *e)
{
	uint8_t sum[HASH_LEN];
	struct hash *hash;
	size_t i;

	h->n = 0;
	if (walk(h, dir, "", 0, e) < 0)
		return -1;
	qsort(h->v, h->n, sizeof(*h->v), by_path);
	hash = hash_new();
	if (!hash)
		return err_set(e, CA_SOFTWARE, "out of memory");
	for (i = 0; i < h->n; i++) {
		hash_part(hash, h->v[i].path, strlen(h->v[i].path));
		hash_part(hash, h->v[i].text.buf, h->v[i].text.len);
	}
	hash_end(hash, sum);
	hex(sum, sizeof(sum), digest);
	return 0;
}

static int write_all(const struct headers *h, const char *dir,
		     struct err *e)
{
	struct tree t;
	size_t i;
	int rc = tree_open(&t, dir, e);

	for (i = 0; rc == 0 && i < h->n; i++)
		rc = tree_put(t.fd, dir, h->v[i].path, h->v[i].text.buf ?
			      h->v[i].text.buf : "", h->v[i].text.len, e);
	return tree_close(&t, rc);
}

/* Complete or absent: written under another name, then renamed. */
static int place(const struct headers *h, const char *dir, struct err *e)
{
	char temp[CA_PATH_MAX];
	int rc;

	if (snprintf(temp, sizeof(temp), "%s.%ld", dir, (long)getpid()) >=
	    (int)sizeof(temp))
		return err_set(e, CA_CONFIG, "cache path is too long");
	rc = write_all(h, temp, e);
	if (rc == 0 && rename(temp, dir) < 0 && errno != EEXIST &&
	    errno != ENOTEMPTY)
		rc = err_sys(e, CA_CANTCREAT, "cannot make '%s'", dir);
	remove_tree(temp, NULL);	/* somebody else was quicker */
	return rc;
}

static int intact(const char *dir, const char *digest)
{
	struct headers h = { .n = 0 };
	char found[HASH_HEX];
	int same = access(dir, F_OK) == 0 &&
		   read_all(dir, &h, found, NULL) == 0 &&
		   strcmp(found, digest) == 0;

	release(&h);
	return same;
}

int slim_find(char dir[CA_PATH_MAX], char digest[HASH_HEX], struct err *e)
{
	struct headers h = { .n = 0 };
	char from[CA_PATH_MAX];
	size_t n;
	int rc = -1;

	if (path_lib(from, "torch/slim", e) < 0 ||
	    read_all(from, &h, digest, e) < 0 ||
	    path_cache(dir, "slim", e) < 0)
		goto out;
	n = strlen(dir);
	if (snprintf(dir + n, CA_PATH_MAX - n, "/%.32s", digest) >=
	    (int)(CA_PATH_MAX - n)) {
		err_set(e, CA_CONFIG, "cache path is too long");
		goto out;
	}
	rc = 0;
	if (!intact(dir, digest)) {
		remove_tree(dir, NULL);
		rc = place(&h, dir, e);
	}
out:
	release(&h);
	return rc;
}
