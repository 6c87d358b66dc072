/* SPDX-License-Identifier: Apache-2.0
 *
 * A small judge for tests of lib/torch: memory, requests, an oracle and a
 * runner bound to what the oracle made.
 */
#ifndef CA_TEST_TORCH_KIT_H
#define CA_TEST_TORCH_KIT_H

#include "tests.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/io.h"
#include "base/path.h"
#include "jail/jail.h"
#include "rec/json.h"
#include "torch/torch.h"

/* Not every program uses all of it. */
#pragma GCC diagnostic ignored "-Wunused-function"

#define REGIONS 8
#define SECONDS 60

struct region {
	const char *name;
	size_t n;
	int fd;
	uint8_t *p;
};

struct kid {
	struct torch_child c;
	struct region r[REGIONS];
	size_t nr;
	struct ca_msg m;		/* the last answer */
	struct json *spec;		/* an oracle's description */
};

static struct torch_host *host;
static const char *level = "none";

static int open_host(void **state)
{
	struct jail_caps caps;
	char lib[4096];
	struct err e = ERR_INIT;

	(void)state;
	if (!getenv("CA_LIBDIR") && realpath("lib", lib))
		setenv("CA_LIBDIR", lib, 1);
	if (!jail_probe(&caps, &e))
		level = jail_level_name(caps.self);
	host = torch_open(300, &e);
	if (!host)
		print_message("%s\n", e.msg);
	return host ? 0 : e.code == CA_UNAVAILABLE ? 0 : -1;
}

static int close_host(void **state)
{
	(void)state;
	torch_close(host);
	host = NULL;
	return 0;
}

#define NEED_HOST() do { if (!host) skip(); } while (0)

static void spawn_on(struct torch_host *h, struct kid *k, const char *role,
		     const char *jail)
{
	struct torch_spawn s = { .role = role, .device = "cpu", .jail = jail,
				 .may_exec = !strcmp(role, "compile") };
	struct err e = ERR_INIT;

	memset(k, 0, sizeof(*k));
	if (torch_spawn(h, &s, &k->c, &e))
		fail_msg("%s", e.msg);
}

/* Sends JSON, in which ' stands for ", and hears the answer. */
static uint32_t ask(struct kid *k, const char *json, const int *fds,
		    size_t nfds)
{
	struct err e = ERR_INIT;
	char text[8192];
	size_t i;

	for (i = 0; json[i] && i + 1 < sizeof(text); i++)
		text[i] = json[i] == '\'' ? '"' : json[i];
	if (torch_send(&k->c, text, i, fds, nfds, &e))
		fail_msg("%s", e.msg);
	assert_int_equal(torch_recv(&k->c, &k->m, deadline_in(SECONDS)),
			 WAIT_OK);
	return k->m.end;
}

#define ASK(k, json) ask(k, json, NULL, 0)

static void well(const struct kid *k)
{
	if (k->m.end)
		fail_msg("end %u, phase %u: %s", k->m.end, k->m.phase,
			 k->m.text);
}

static int text_fd(const char *text)
{
	int fd = memfd_create("test", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	return fd;
}

static struct region *find(struct kid *k, const char *name)
{
	for (size_t i = 0; i < k->nr; i++)
		if (!strcmp(k->r[i].name, name))
			return &k->r[i];
	return NULL;
}

static struct region *region(struct kid *k, const char *name)
{
	struct region *r = find(k, name);

	if (!r)
		abort();
	return r;
}

/* Makes memory and shares it. */
static void map(struct kid *k, const char *name, size_t n)
{
	struct region *r = find(k, name);
	char req[256];

	if (!r)
		r = &k->r[k->nr++];
	else
		munmap(r->p, r->n), close(r->fd);
	r->name = name;
	r->n = n ? n : 1;
	r->fd = memfd_create(name, MFD_CLOEXEC);
	assert_int_equal(ftruncate(r->fd, (off_t)r->n), 0);
	r->p = mmap(NULL, r->n, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, 0);
	assert_ptr_not_equal(r->p, MAP_FAILED);
	snprintf(req, sizeof(req), "{'op':'map','regions':[{'name':'%s',"
		 "'bytes':%zu}]}", name, r->n);
	ask(k, req, &r->fd, 1);
	well(k);
}

/* The child's end as the host reports it. */
static int end(struct kid *k)
{
	struct err e = ERR_INIT;

	if (torch_kill(host, &k->c, &e))
		fail_msg("%s", e.msg);
	assert_true(k->c.ended);
	for (size_t i = 0; i < k->nr; i++) {
		munmap(k->r[i].p, k->r[i].n);
		close(k->r[i].fd);
	}
	json_free(k->spec);
	return k->c.status;
}

static uint32_t load_oracle(struct kid *o, const char *code)
{
	struct err e = ERR_INIT;
	int fd = text_fd(code);

	spawn_on(host, o, "oracle", level);
	ASK(o, "{'op':'jail'}");
	well(o);
	map(o, "desc", 1 << 20);
	ask(o, "{'op':'load','code':0,'seed':'3','threads':2}", &fd, 1);
	close(fd);
	if (o->m.end)
		return o->m.end;
	o->spec = json_parse((char *)region(o, "desc")->p, o->m.desc_len,
			     1 << 20, NULL, &e);
	if (!o->spec)
		fail_msg("%s", e.msg);
	return 0;
}

static size_t extent(const struct json *list)
{
	size_t n = 0;

	for (const struct json *j = json_first(list); j; j = json_next(j)) {
		size_t at = (size_t)(json_get_int(j, "offset", 0) +
				     json_get_int(j, "bytes", 0));

		n = at > n ? at : n;
	}
	return n;
}

/* Where the i-th input lies in the regions that hold them. */
static size_t input_at(const struct kid *o, int i)
{
	const struct json *j = json_first(json_path(o->spec,
						    "inputs.storages"));

	for (; i > 0; i--)
		j = json_next(j);
	return (size_t)json_get_int(j, "offset", 0);
}

/* An oracle with memory, state and inputs. */
static void start_oracle(struct kid *o, const char *code)
{
	size_t in, st;

	load_oracle(o, code);
	well(o);
	in = extent(json_path(o->spec, "inputs.storages"));
	st = extent(json_get(o->spec, "state"));
	map(o, "inputs", in);
	map(o, "slots", CA_SLOTS * sizeof(struct ca_slot));
	map(o, "after", in);
	map(o, "params", st);
	map(o, "params_after", st);
	ASK(o, "{'op':'state','seed':'5','perturb':true}");
	well(o);
	ASK(o, "{'op':'inputs','seed':'6','family':'plain','factor':1,"
	    "'export':true}");
	well(o);
}

static void expect(struct kid *o, const char *precision)
{
	char req[128];

	snprintf(req, sizeof(req), "{'op':'expect','forward_seed':'7',"
		 "'precision':'%s'}", precision);
	if (!find(o, "expect"))
		map(o, "expect", 1 << 20);
	ask(o, req, NULL, 0);
}

/* Copies the oracle's inputs to address set `set`. */
static void reveal(struct kid *k, struct kid *o, unsigned set)
{
	struct region *in = region(k, set ? "in1" : "in0");
	size_t block = CA_SLOTS * sizeof(struct ca_slot);

	memcpy(in->p, region(o, "inputs")->p, in->n);
	memcpy(region(k, "slots")->p + set * block, region(o, "slots")->p,
	       block);
}

static int begins;	/* runners close their jails as they do on CUDA */

/* A runner with memory, up to the point where it would load code. */
static void start_runner(struct kid *k, struct kid *o, const char *role)
{
	spawn_on(host, k, role, level);
	ask(k, begins ? "{'op':'begin'}" : "{'op':'jail'}", NULL, 0);
	well(k);
	map(k, "in0", region(o, "inputs")->n);
	map(k, "in1", region(o, "inputs")->n);
	map(k, "slots", 2 * CA_SLOTS * sizeof(struct ca_slot));
	map(k, "params", region(o, "params")->n);
	map(k, "pool", 4 << 20);
	memcpy(region(k, "params")->p, region(o, "params")->p,
	       region(o, "params")->n);
	reveal(k, o, 0);
	reveal(k, o, 1);
}

static uint32_t load_runner(struct kid *k, struct kid *o, const char *code,
			    int object, const char *launchers)
{
	int fds[3] = { text_fd(code), text_fd(""), object };
	struct str s = STR_INIT;
	struct jw w;

	jw_init(&w, &s);
	jw_obj(&w);
	jw_key(&w, "init");
	jw_node(&w, json_get(o->spec, "init"));
	jw_key(&w, "state");
	jw_node(&w, json_get(o->spec, "state"));
	jw_key(&w, "inputs");
	jw_node(&w, json_get(o->spec, "inputs"));
	if (launchers) {
		jw_key(&w, "launchers");
		jw_raw(&w, launchers, strlen(launchers));
	}
	jw_end_obj(&w);
	assert_false(s.failed);
	assert_int_equal(write(fds[1], s.buf, s.len), s.len);
	str_release(&s);
	ask(k, object >= 0 ? "{'op':'load','code':0,'spec':1,'object':2,"
	    "'form':'light','threads':2}" :
	    "{'op':'load','code':0,'spec':1,'threads':2}", fds,
	    object >= 0 ? 3 : 2);
	close(fds[0]);
	close(fds[1]);
	return k->m.end;
}

static enum torch_wait go(struct kid *k, uint32_t set, uint32_t flags,
			  double seconds)
{
	struct ca_go g = { .magic = CA_MAGIC_GO, .set = set, .seq = 9,
			   .forward_seed = 7, .flags = flags };
	struct err e = ERR_INIT;

	if (torch_send_go(&k->c, &g, &e))
		return WAIT_GONE;
	return torch_recv(&k->c, &k->m, deadline_in(seconds));
}

static size_t leaf_bytes(const struct ca_leaf *l)
{
	size_t n = dtype_size(l->dtype);

	for (uint32_t i = 0; i < l->ndim; i++)
		n *= (size_t)l->shape[i];
	return n;
}

/* The runner's last results are the oracle's, bit for bit. */
static void same_results(struct kid *k, struct kid *o)
{
	well(k);
	well(o);
	assert_memory_equal(k->m.structure, o->m.structure, 32);
	assert_int_equal(k->m.nleaf, o->m.nleaf);
	for (uint32_t i = 0; i < o->m.nleaf; i++) {
		const struct ca_leaf *a = &k->m.leaf[i], *b = &o->m.leaf[i];

		assert_int_equal(a->kind, b->kind);
		assert_int_equal(a->bits, b->bits);
		assert_int_equal(a->dtype, b->dtype);
		assert_int_equal(a->ndim, b->ndim);
		assert_memory_equal(a->shape, b->shape, sizeof(a->shape));
		assert_int_equal(a->offset % 64, 0);
		if (a->kind == LEAF_TENSOR && leaf_bytes(a))
			assert_memory_equal(region(k, "pool")->p + a->offset,
					    region(o, "expect")->p + b->offset,
					    leaf_bytes(a));
	}
}

#endif
