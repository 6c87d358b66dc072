/* SPDX-License-Identifier: Apache-2.0
 *
 * The format: 8 bytes of little-endian length, a JSON header of that length
 * ({name: {dtype, shape, data_offsets}, "__metadata__": {...}}), then the
 * data, which the offsets must tile exactly.
 */
#define _GNU_SOURCE
#include "nn/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/io.h"
#include "base/sum.h"
#include "base/path.h"
#include "rec/json.h"

#define MAX_TENSORS 1000000
#define MAX_SHARDS  1000

struct map {
	void *p;
	size_t len;
};

struct st {
	struct arena arena;		/* names */
	struct st_tensor *tensor;	/* sorted by name */
	size_t n, alloc;
	struct map map[MAX_SHARDS];
	size_t maps;
	int copies;			/* of files, not mappings */
};

static const struct dtype {
	const char *name;
	size_t size;
	int floats;
	enum gpu_type type;
} dtypes[] = {
	{ "F32", 4, 1, GPU_F32 }, { "BF16", 2, 1, GPU_BF16 },
	{ "F16", 2, 1, GPU_F16 }, { "F64", 8, 0, GPU_F32 },
	{ "I64", 8, 0, GPU_F32 }, { "U64", 8, 0, GPU_F32 },
	{ "I32", 4, 0, GPU_F32 }, { "U32", 4, 0, GPU_F32 },
	{ "I16", 2, 0, GPU_F32 }, { "U16", 2, 0, GPU_F32 },
	{ "I8", 1, 0, GPU_F32 }, { "U8", 1, 0, GPU_F32 },
	{ "BOOL", 1, 0, GPU_F32 }, { "F8_E4M3", 1, 0, GPU_F32 },
	{ "F8_E5M2", 1, 0, GPU_F32 },
};

static const struct dtype *find_dtype(const char *name)
{
	for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
		if (!strcmp(name, dtypes[i].name))
			return &dtypes[i];
	return NULL;
}

static int read_shape(const struct json *shape, struct st_tensor *t,
		      size_t *count)
{
	int64_t dim;

	*count = 1;
	if (json_type(shape) != JSON_ARRAY)
		return -1;
	for (const struct json *j = json_first(shape); j; j = json_next(j)) {
		dim = json_int(j, -1);
		if (dim < 0 || t->ndim == ST_DIMS ||
		    __builtin_mul_overflow(*count, (size_t)dim, count))
			return -1;
		t->shape[t->ndim++] = dim;
	}
	return 0;
}

/* One member of the header; data is `len` bytes long. */
static int read_tensor(struct st *s, const struct json *j,
		       const char *data, size_t len, struct err *e)
{
	const struct json *span = json_get(j, "data_offsets");
	const struct dtype *d = find_dtype(json_get_str(j, "dtype", ""));
	int64_t from = json_int(json_first(span), -1);
	int64_t to = json_int(json_next(json_first(span)), -1);
	struct st_tensor *t = &s->tensor[s->n];
	size_t count;

	memset(t, 0, sizeof *t);
	t->name = arena_strdup(&s->arena, json_key(j));
	if (!t->name)
		return err_set(e, CA_SOFTWARE, "no memory");
	if (!d)
		return err_set(e, CA_DATAERR, "tensor '%s' has an unknown "
			       "dtype '%s'", t->name,
			       json_get_str(j, "dtype", ""));
	if (read_shape(json_get(j, "shape"), t, &count))
		return err_set(e, CA_DATAERR, "tensor '%s' has a bad shape",
			       t->name);
	if (json_type(span) != JSON_ARRAY || json_len(span) != 2 || from < 0 ||
	    to < from || (uint64_t)to > len)
		return err_set(e, CA_DATAERR, "tensor '%s' lies outside of "
			       "the file", t->name);
	t->bytes = (size_t)(to - from);
	if (__builtin_mul_overflow(count, d->size, &count) ||
	    count != t->bytes)
		return err_set(e, CA_DATAERR, "tensor '%s' has another size "
			       "than its shape", t->name);
	t->dtype = d->name;
	t->floats = d->floats;
	t->type = d->type;
	t->data = data + from;
	s->n++;
	return 0;
}

static int by_place(const void *a, const void *b)
{
	const struct st_tensor *x = a, *y = b;
	const char *p = x->data, *q = y->data;

	if (p != q)
		return p < q ? -1 : 1;
	return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct st_tensor *)a)->name,
		      ((const struct st_tensor *)b)->name);
}

/* The tensors from `first` on tile the data. */
static int check_tiling(struct st *s, size_t first, const char *data,
			size_t len, struct err *e)
{
	const char *at = data;

	if (s->n > first)
		qsort(s->tensor + first, s->n - first, sizeof *s->tensor,
		      by_place);
	for (size_t i = first; i < s->n; i++) {
		const struct st_tensor *t = &s->tensor[i];

		if ((const char *)t->data != at)
			return err_set(e, CA_DATAERR, "tensor '%s' %s",
				       t->name, (const char *)t->data < at ?
				       "overlaps another" :
				       "does not follow the one before it");
		at += t->bytes;
	}
	if (at != data + len)
		return err_set(e, CA_DATAERR, "%zu bytes belong to no tensor",
			       (size_t)(data + len - at));
	return 0;
}

static int room(struct st *s, size_t more, struct err *e)
{
	struct st_tensor *t;

	if (more > MAX_TENSORS - s->n)
		return err_set(e, CA_DATAERR, "more than %d tensors",
			       MAX_TENSORS);
	if (s->n + more <= s->alloc)
		return 0;
	t = realloc(s->tensor, (s->n + more) * sizeof *t);
	if (!t)
		return err_set(e, CA_SOFTWARE, "no memory");
	s->tensor = t;
	s->alloc = s->n + more;
	return 0;
}

/* Adds the tensors of one file. */
static int add_file(struct st *s, const void *bytes, size_t len,
		    struct err *e)
{
	const unsigned char *p = bytes;
	uint64_t header = 0;
	const char *data;
	struct json *root;
	size_t first = s->n;
	int rc = -1;

	for (int i = 7; i >= 0 && len >= 8; i--)
		header = header << 8 | p[i];
	if (len < 8 || header > len - 8)
		return err_set(e, CA_DATAERR, "file is truncated or no "
			       "safetensors");
	data = (const char *)p + 8 + header;
	root = json_parse((const char *)p + 8, header, JSON_MAX_FILE, NULL, e);
	if (!root)
		return err_wrap(e, "header");
	if (json_type(root) != JSON_OBJECT) {
		err_set(e, CA_DATAERR, "header is no object");
		goto out;
	}
	if (room(s, json_len(root), e))
		goto out;
	for (const struct json *j = json_first(root); j; j = json_next(j)) {
		if (!strcmp(json_key(j), "__metadata__"))
			continue;
		if (read_tensor(s, j, data, len - 8 - header, e))
			goto out;
	}
	rc = check_tiling(s, first, data, len - 8 - header, e);
out:
	json_free(root);
	return rc;
}

/* Sorts by name and looks for doubles (in two shards). */
static int finish(struct st *s, struct err *e)
{
	if (s->n)
		qsort(s->tensor, s->n, sizeof *s->tensor, by_name);
	for (size_t i = 1; i < s->n; i++)
		if (!by_name(&s->tensor[i - 1], &s->tensor[i]))
			return err_set(e, CA_DATAERR, "tensor '%s' is in two "
				       "files", s->tensor[i].name);
	return 0;
}

/* A file's bytes as a mapping: of it, or of memory that it was read into. */
static void *bytes_of(const struct st *s, int fd, size_t len, struct err *e)
{
	char *p = mmap(NULL, len, PROT_READ | (s->copies ? PROT_WRITE : 0),
		       s->copies ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED,
		       s->copies ? -1 : fd, 0);
	ssize_t n;

	if (p == MAP_FAILED) {
		err_sys(e, CA_NOINPUT, "cannot map it");
		return NULL;
	}
	n = s->copies ? read_full(fd, p, len, e) : (ssize_t)len;
	if (n == (ssize_t)len)
		return p;
	if (n >= 0)
		err_set(e, CA_DATAERR, "file shrank while it was read");
	munmap(p, len);
	return NULL;
}

static int map_file(struct st *s, const char *path, struct err *e)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;
	void *p;

	if (fd < 0)
		return err_sys(e, CA_NOINPUT, "cannot open '%s'", path);
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size < 8) {
		close(fd);
		return err_set(e, CA_DATAERR, "'%s': file is truncated or no "
			       "safetensors", path);
	}
	p = bytes_of(s, fd, (size_t)st.st_size, e);
	close(fd);
	if (!p)
		return err_wrap(e, "'%s'", path);
	s->map[s->maps].p = p;
	s->map[s->maps++].len = (size_t)st.st_size;
	if (add_file(s, p, (size_t)st.st_size, e))
		return err_wrap(e, "'%s'", path);
	return 0;
}

static int seen(const char *const *files, size_t n, const char *name)
{
	while (n-- > 0)
		if (!strcmp(files[n], name))
			return 1;
	return 0;
}

/* Files that the index names; each must be beside it. */
static int map_shards(struct st *s, const char *dir, const struct json *map,
		      struct err *e)
{
	const char *files[MAX_SHARDS], *name;
	char path[CA_PATH_MAX];
	size_t n = 0;

	for (const struct json *j = json_first(map); j; j = json_next(j)) {
		name = json_str(j, "");
		if (seen(files, n, name))
			continue;
		if (!*name || *name == '.' || strchr(name, '/'))
			return err_set(e, CA_DATAERR, "index names a file "
				       "elsewhere: '%s'", name);
		if (n == MAX_SHARDS)
			return err_set(e, CA_DATAERR, "more than %d files",
				       MAX_SHARDS);
		files[n++] = name;
		snprintf(path, sizeof path, "%s/%s", dir, name);
		if (map_file(s, path, e))
			return -1;
	}
	return 0;
}

static int check_index(const struct st *s, const struct json *map,
		       struct err *e)
{
	for (const struct json *j = json_first(map); j; j = json_next(j))
		if (!st_get(s, json_key(j)))
			return err_set(e, CA_DATAERR, "tensor '%s' is in the "
				       "index but in no file", json_key(j));
	return 0;
}

static int open_sharded(struct st *s, const char *dir, const char *index,
			struct err *e)
{
	struct str text = STR_INIT;
	struct json *root = NULL;
	const struct json *map;
	int rc = -1;

	if (read_file(index, JSON_MAX_FILE, &text, e))
		goto out;
	root = json_parse(text.buf, text.len, JSON_MAX_FILE, NULL, e);
	if (!root) {
		err_wrap(e, "'%s'", index);
		goto out;
	}
	map = json_get(root, "weight_map");
	if (json_type(map) != JSON_OBJECT || !json_len(map)) {
		err_set(e, CA_DATAERR, "'%s' has no weight_map", index);
		goto out;
	}
	if (!map_shards(s, dir, map, e) && !finish(s, e))
		rc = check_index(s, map, e);
out:
	json_free(root);
	str_release(&text);
	return rc;
}

static struct st *begin(struct err *e)
{
	struct st *s = calloc(1, sizeof *s);

	if (!s)
		err_set(e, CA_SOFTWARE, "no memory");
	return s;
}

static struct st *end(struct st *s, int rc)
{
	if (!rc)
		return s;
	st_close(s);
	return NULL;
}

struct st *st_parse(const void *bytes, size_t len, struct err *e)
{
	struct st *s = begin(e);

	return s ? end(s, add_file(s, bytes, len, e) || finish(s, e)) : NULL;
}

struct st *st_open_file(const char *path, struct err *e)
{
	struct st *s = begin(e);

	return s ? end(s, map_file(s, path, e) || finish(s, e)) : NULL;
}

static struct st *open_dir(const char *dir, int copies, struct err *e)
{
	char path[CA_PATH_MAX];
	struct st *s = begin(e);

	if (!s)
		return NULL;
	s->copies = copies;
	snprintf(path, sizeof path, "%s/model.safetensors", dir);
	if (!access(path, F_OK))
		return end(s, map_file(s, path, e) || finish(s, e));
	snprintf(path, sizeof path, "%s/model.safetensors.index.json", dir);
	if (access(path, F_OK))
		return end(s, err_set(e, CA_NOINPUT, "'%s' has no "
				      "model.safetensors", dir));
	return end(s, open_sharded(s, dir, path, e));
}

struct st *st_open(const char *dir, struct err *e)
{
	return open_dir(dir, 0, e);
}

struct st *st_read(const char *dir, struct err *e)
{
	return open_dir(dir, 1, e);
}

void st_close(struct st *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->maps; i++)
		munmap(s->map[i].p, s->map[i].len);
	arena_release(&s->arena);
	free(s->tensor);
	free(s);
}

const struct st_tensor *st_get(const struct st *s, const char *name)
{
	struct st_tensor key = { .name = name };

	if (!s->n)
		return NULL;
	return bsearch(&key, s->tensor, s->n, sizeof *s->tensor, by_name);
}

size_t st_count(const struct st *s)
{
	return s->n;
}

const struct st_tensor *st_at(const struct st *s, size_t i)
{
	return &s->tensor[i];
}

uint64_t st_sum(const struct st *s)
{
	struct sum h;

	sum_begin(&h, s->n);
	/* They are sorted by name. */
	for (size_t i = 0; i < s->n; i++) {
		const struct st_tensor *t = &s->tensor[i];

		sum_add(&h, t->name, strlen(t->name) + 1);
		sum_add(&h, t->dtype, strlen(t->dtype) + 1);
		sum_add(&h, t->data, t->bytes);
	}
	return sum_end(&h);
}
