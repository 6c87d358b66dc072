/* SPDX-License-Identifier: Apache-2.0
 *
 * The cache of built objects.
 */
#define _GNU_SOURCE
#include "build/cache.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/io.h"
#include "rec/json.h"

#define META_MAX ((size_t)4 << 20)
#define AHEAD_SECONDS 60	/* of what a clock may be */

struct entry {
	char key[CACHE_KEY];
	long long bytes;
	struct timespec used;
};

int cache_limit(long long *limit, struct err *e)
{
	static const char unit[] = "KMG";
	const char *s = getenv("CA_OBJ_MAX"), *u;
	long long v = 4LL << 30;
	char *end;

	if (s && *s) {
		errno = 0;
		v = strtoll(s, &end, 10);
		u = *end ? strchr(unit, toupper((unsigned char)*end)) : NULL;
		if (errno || !isdigit((unsigned char)*s) || v > 1LL << 32 ||
		    (*end && (!u || end[1])))
			return err_set(e, CA_CONFIG, "CA_OBJ_MAX: '%s' is not "
				       "a size such as 500M or 4G", s);
		if (u)
			v <<= 10 * (u - unit + 1);
	}
	if (limit)
		*limit = v;
	return 0;
}

static int entry_path(char out[CA_PATH_MAX], const char *key,
		      const char *ext, struct err *e)
{
	char name[CACHE_KEY + 16];
	int n;

	n = snprintf(name, sizeof(name), "%s%s", key, ext);
	if (n < 0 || n >= (int)sizeof(name))
		return err_set(e, CA_SOFTWARE, "bad object key");
	if (path_cache(out, "obj", e) < 0)
		return -1;
	if (strlen(out) + (size_t)n + 2 > CA_PATH_MAX)
		return err_set(e, CA_CONFIG, "cache path is too long");
	strcat(out, "/");
	strcat(out, name);
	return 0;
}

/* Whether the file has the length and hash that its JSON states.  Read piece by
 * piece: precompiled headers are large. */
static int intact(const char *path, const struct json *meta)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
	struct hash *h = hash_new();
	uint8_t sum[HASH_LEN];
	char got[HASH_HEX], buf[65536];
	int64_t len = 0;
	ssize_t n = -1;

	while (h && fd >= 0 && (n = read(fd, buf, sizeof(buf))) > 0) {
		hash_add(h, buf, (size_t)n);
		len += n;
	}
	if (fd >= 0)
		close(fd);
	if (!h)
		return 0;
	hash_end(h, sum);
	hex(sum, sizeof(sum), got);
	return n == 0 && json_get_int(meta, "bytes", -1) == len &&
	       strcmp(json_get_str(meta, "sha256", ""), got) == 0;
}

int cache_get(const char *key, char path[CA_PATH_MAX], struct str *meta,
	      struct err *e)
{
	char side[CA_PATH_MAX];
	struct str text = STR_INIT;
	struct json *j = NULL;
	int hit = 0;

	if (entry_path(path, key, ".so", e) < 0 ||
	    entry_path(side, key, ".json", e) < 0)
		return -1;
	if (access(side, F_OK) != 0 ||
	    read_file(side, META_MAX, &text, NULL) < 0)
		goto out;
	j = json_parse(text.buf, text.len, META_MAX, NULL, NULL);
	hit = j && intact(path, j);
	if (!hit) {
		mention("the cached object '%s' is damaged: it is built "
			"anew", path);
		unlink(side);
		unlink(path);
		goto out;
	}
	utimensat(AT_FDCWD, side, NULL, 0);
	if (meta)
		str_add(meta, text.buf, text.len);
out:
	json_free(j);
	str_release(&text);
	return hit;
}

/* What would be another file, or the same one changed; nobody but root can set
 * back the time of a change. */
static int identity(const char *path, struct str *out)
{
	struct stat st;

	if (stat(path, &st))
		return -1;
	return str_addf(out, "%llu %lld %lld.%09ld",
			(unsigned long long)st.st_ino, (long long)st.st_size,
			(long long)st.st_ctim.tv_sec, st.st_ctim.tv_nsec);
}

int cache_get_large(const char *key, char path[CA_PATH_MAX], struct err *e)
{
	char note[CA_PATH_MAX];
	struct str now = STR_INIT, then = STR_INIT;
	int hit = -1, n;

	if (entry_path(path, key, ".so", e) < 0 ||
	    path_cache(note, "checked", e) < 0)
		goto out;
	n = (int)strlen(note);
	if (n + CACHE_KEY + 1 > CA_PATH_MAX) {
		err_set(e, CA_CONFIG, "cache path is too long");
		goto out;
	}
	snprintf(note + n, sizeof(note) - (size_t)n, "/%s", key);
	hit = cache_have(key) && !identity(path, &now) &&
	      !access(note, R_OK) && !read_file(note, 256, &then, NULL) &&
	      now.len == then.len && !memcmp(now.buf, then.buf, now.len);
	if (hit)
		goto out;
	hit = cache_get(key, path, NULL, e);
	str_reset(&now);
	if (hit > 0 && !identity(path, &now))
		write_file_atomic(note, now.buf, now.len, 0644, NULL);
out:
	str_release(&now);
	str_release(&then);
	return hit;
}

int cache_have(const char *key)
{
	char path[CA_PATH_MAX], side[CA_PATH_MAX];
	struct str text = STR_INIT;
	struct json *j = NULL;
	struct stat st;
	int ok = 0;

	if (entry_path(path, key, ".so", NULL) < 0 ||
	    entry_path(side, key, ".json", NULL) < 0 ||
	    stat(path, &st) < 0 ||
	    read_file(side, META_MAX, &text, NULL) < 0)
		goto out;
	j = json_parse(text.buf, text.len, META_MAX, NULL, NULL);
	ok = json_get_int(j, "bytes", -1) == (int64_t)st.st_size;
	if (ok)
		utimensat(AT_FDCWD, side, NULL, 0);
out:
	json_free(j);
	str_release(&text);
	return ok;
}

static int by_use(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	if (x->used.tv_sec != y->used.tv_sec)
		return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
	if (x->used.tv_nsec != y->used.tv_nsec)
		return x->used.tv_nsec < y->used.tv_nsec ? -1 : 1;
	return strcmp(x->key, y->key);
}

/* Fills *en from directory `fd` if `name` is an entry's JSON. */
static int read_entry(int fd, const char *name, struct entry *en)
{
	char so[CACHE_KEY + 16];
	struct stat st, obj;
	size_t n = strlen(name);

	if (n != CACHE_KEY - 1 + 5 || strcmp(name + CACHE_KEY - 1, ".json"))
		return 0;
	memcpy(en->key, name, CACHE_KEY - 1);
	en->key[CACHE_KEY - 1] = '\0';
	snprintf(so, sizeof(so), "%s.so", en->key);
	if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	/* Of a clock that was ahead once: else all that is new would go before
	 * them. */
	if (st.st_mtim.tv_sec > time(NULL) + AHEAD_SECONDS)
		en->used = (struct timespec){ 0, 0 };
	else
		en->used = st.st_mtim;
	en->bytes = st.st_size;
	if (fstatat(fd, so, &obj, AT_SYMLINK_NOFOLLOW) == 0)
		en->bytes += obj.st_size;
	return 1;
}

static int is_entry(const char *name, const char *ext)
{
	return strspn(name, "0123456789abcdef") == CACHE_KEY - 1 &&
	       strcmp(name + CACHE_KEY - 1, ext) == 0;
}

/* What a builder that was killed has left: everything is written under the
 * lock, so that nobody is at work on it. */
static int is_left(int fd, const char *name)
{
	char side[CACHE_KEY + 16];
	struct stat st;

	if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
	    strcmp(name, ".lock") == 0 || is_entry(name, ".json"))
		return 0;
	if (!is_entry(name, ".so"))
		return 1;
	snprintf(side, sizeof(side), "%.*s.json", CACHE_KEY - 1, name);
	return fstatat(fd, side, &st, AT_SYMLINK_NOFOLLOW) < 0 &&
	       errno == ENOENT;
}

static void drop(int fd, const struct entry *en)
{
	char name[CACHE_KEY + 16];

	snprintf(name, sizeof(name), "%s.json", en->key);
	unlinkat(fd, name, 0);
	snprintf(name, sizeof(name), "%s.so", en->key);
	unlinkat(fd, name, 0);
}

/* Removes the entries used longest ago until the rest fits; the newest one
 * stays whatever its size.  With the lock also what is no entry. */
static void evict(const char *dir, long long limit, int locked)
{
	struct entry *v = NULL, *w;
	size_t n = 0, alloc = 0, i;
	long long total = 0;
	struct dirent *de;
	DIR *d = opendir(dir);

	if (!d)
		return;
	while ((de = readdir(d))) {
		if (locked && is_left(dirfd(d), de->d_name)) {
			unlinkat(dirfd(d), de->d_name, 0);
			continue;
		}
		if (n == alloc) {
			alloc = alloc ? alloc * 2 : 256;
			w = realloc(v, alloc * sizeof(*v));
			if (!w)
				goto out;
			v = w;
		}
		if (read_entry(dirfd(d), de->d_name, &v[n]))
			total += v[n++].bytes;
	}
	if (total > limit)
		qsort(v, n, sizeof(*v), by_use);
	for (i = 0; total > limit && i + 1 < n; i++) {
		drop(dirfd(d), &v[i]);
		total -= v[i].bytes;
	}
out:
	closedir(d);
	free(v);
}

/* Storage without locks does: entries appear by renames. */
static int no_locks(int code)
{
	return code == ENOLCK || code == EOPNOTSUPP || code == ENOSYS;
}

static int lock_dir(const char *dir, int *locked, struct err *e)
{
	char path[CA_PATH_MAX + 8];
	int fd;

	snprintf(path, sizeof(path), "%s/.lock", dir);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return err_sys(e, CA_CANTCREAT, "cannot open '%s'", path);
	*locked = 1;
	while (flock(fd, LOCK_EX) < 0) {
		if (errno == EINTR)
			continue;
		*locked = 0;
		if (no_locks(errno)) {
			mention("'%s' cannot be locked: the cache does "
				"without", path);
			break;
		}
		err_sys(e, CA_IOERR, "cannot lock '%s'", path);
		close(fd);
		return -1;
	}
	return fd;
}

int cache_put(const char *key, const void *object, size_t len,
	      const char *members, char path[CA_PATH_MAX], struct err *e)
{
	char side[CA_PATH_MAX], dir[CA_PATH_MAX], sum[HASH_HEX];
	struct str json = STR_INIT;
	int fd = -1, rc = -1, locked;
	long long limit;

	if (cache_limit(&limit, e) || entry_path(path, key, ".so", e) < 0 ||
	    entry_path(side, key, ".json", e) < 0 ||
	    path_cache(dir, "obj", e) < 0)
		return -1;
	sha256_hex(object, len, sum);
	str_addf(&json, "{\"bytes\":%zu,\"sha256\":\"%s\",%s}\n", len, sum,
		 members);
	if (json.failed) {
		err_set(e, CA_SOFTWARE, "out of memory");
		goto out;
	}
	fd = lock_dir(dir, &locked, e);
	if (fd < 0)
		goto out;
	if (write_file_atomic(path, object, len, 0644, e) < 0)
		goto out;
	if (write_file_atomic(side, json.buf, json.len, 0644, e) < 0) {
		unlink(path);
		goto out;
	}
	evict(dir, limit, locked);
	rc = 0;
out:
	if (fd >= 0)
		close(fd);
	str_release(&json);
	return rc;
}
