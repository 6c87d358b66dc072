/* SPDX-License-Identifier: Apache-2.0
 *
 * lib/torch with the real PyTorch on the CPU: candidates, good and bad, and
 * everything that may go wrong in and around a child.
 */
#define _GNU_SOURCE
#include "torch_kit.h"

#include "base/child.h"
#include "torch/zone.h"

#define IMPORT "import torch, torch.nn as nn\n"
#define INPUT "def get_inputs():\n    return [torch.rand(64)]\n"
#define NO_INIT "def get_init_inputs():\n    return []\n"

static const char reference[] = IMPORT NO_INIT INPUT
	"class Model(nn.Module):\n"
	"    def __init__(self):\n"
	"        super().__init__()\n"
	"        self.w = nn.Parameter(torch.rand(64))\n"
	"    def forward(self, x):\n"
	"        return x * self.w\n";

#define NEW IMPORT "class ModelNew(nn.Module):\n"
#define NEW_INIT NEW "    def __init__(self):\n" \
	"        super().__init__()\n" \
	"        self.w = nn.Parameter(torch.zeros(64))\n"
#define FORWARD NEW_INIT "    def forward(self, x):\n"

/* The oracle of `reference`, with one expected result. */
static struct kid *ref(void)
{
	static struct kid o;

	if (!o.nr) {
		start_oracle(&o, reference);
		expect(&o, "native");
		well(&o);
	}
	return &o;
}

/* Loads a candidate against `reference`; how it ended. */
static uint32_t candidate(struct kid *k, const char *code)
{
	start_runner(k, ref(), "worker");
	return load_runner(k, ref(), code, -1, NULL);
}

/* One that loads, and how its first iteration ends. */
static enum torch_wait run(struct kid *k, const char *code, double seconds)
{
	candidate(k, code);
	well(k);
	return go(k, 0, 0, seconds);
}

static void fails_to_load(const char *code, uint32_t how, uint32_t phase,
			  const char *says)
{
	struct kid k;

	assert_int_equal(candidate(&k, code), how);
	assert_int_equal(k.m.phase, phase);
	if (!strstr(k.m.text, says))
		fail_msg("'%s' is not in '%s'", says, k.m.text);
	end(&k);
}

static void tells_how_loading_failed(void **state)
{
	(void)state;
	NEED_HOST();
	fails_to_load("import torch\ndef f(:\n", END_SYNTAX, PHASE_LOAD,
		      "line 2");
	fails_to_load("import nothing_such\n", END_SYNTAX, PHASE_LOAD,
		      "nothing_such");
	fails_to_load("raise SystemExit(3)\n", END_SYNTAX, PHASE_LOAD,
		      "SystemExit: 3");
	fails_to_load("import torch\n", END_NO_CLASS, PHASE_LOAD, "ModelNew");
	fails_to_load(NEW "    def __init__(self):\n        1 / 0\n",
		      END_CONSTRUCT, PHASE_CONSTRUCT,
		      "ZeroDivisionError");
	fails_to_load(NEW "    def __init__(self, a, b):\n        pass\n",
		      END_CONSTRUCT, PHASE_CONSTRUCT, "positional");
	fails_to_load(NEW "    pass\n", END_PARAM_MISMATCH, PHASE_STATE,
		      "reference: w float32[64]");
	fails_to_load(NEW "    def __init__(self):\n"
		      "        super().__init__()\n"
		      "        self.w = nn.Parameter(torch.zeros(63))\n",
		      END_PARAM_MISMATCH, PHASE_STATE, "w float32[63]");
}

static void fails_to_run(const char *code, uint32_t how, const char *says)
{
	struct kid k;

	assert_int_equal(run(&k, code, SECONDS), WAIT_OK);
	assert_int_equal(k.m.end, how);
	assert_int_equal(k.m.seq, 9);
	if (!strstr(k.m.text, says))
		fail_msg("'%s' is not in '%s'", says, k.m.text);
	end(&k);
}

static void tells_how_forward_failed(void **state)
{
	(void)state;
	NEED_HOST();
	fails_to_run(FORWARD "        return x[99]\n", END_RAISED, "line 7");
	fails_to_run(FORWARD "        raise SystemExit\n", END_RAISED,
		     "SystemExit");
	fails_to_run(FORWARD "        return {1, 2}\n", END_UNSUPPORTED,
		     "'set'");
	fails_to_run(FORWARD "        return x.to_sparse()\n",
		     END_UNSUPPORTED, "sparse");
	fails_to_run(FORWARD "        return [x] * 65\n", END_UNSUPPORTED,
		     "more than 64");
	fails_to_run(FORWARD "        y = []\n        y.append(y)\n"
		     "        return y\n", END_UNSUPPORTED, "deep");
	fails_to_run(FORWARD "        return torch.zeros(3 << 20)\n",
		     END_POOL, "pool");
	fails_to_run(FORWARD "        return torch.empty(1 << 46)\n", END_OOM,
		     "can't allocate");
	fails_to_run(FORWARD "        raise ValueError('x' * 5000 + 'end')\n",
		     END_RAISED, "xend");
}

static void binds_by_name_or_order(void **state)
{
	struct kid k;

	(void)state;
	NEED_HOST();
	assert_int_equal(run(&k, FORWARD "        return x * self.w\n",
			     SECONDS), WAIT_OK);
	same_results(&k, ref());
	end(&k);
	assert_int_equal(run(&k, NEW "    def __init__(self):\n"
			     "        super().__init__()\n"
			     "        self.register_buffer('own', torch.ones(2),"
			     " persistent=False)\n"
			     "        self.scale = nn.Parameter(torch.ones(64))\n"
			     "    def forward(self, x):\n"
			     "        return x * self.scale * self.own[0]\n",
			     SECONDS), WAIT_OK);
	same_results(&k, ref());
	end(&k);
}

/* Copies and views are free, arithmetic and lossy casts are not. */
static void counts_operations(void **state)
{
	static const struct {
		const char *code;
		uint64_t compute;
	} t[] = {
		{ FORWARD "        return x.view(8, 8).t().contiguous()\n", 1 },
		{ FORWARD "        return x.double()[None].clone()\n", 1 },
		{ FORWARD "        return torch.zeros_like(x).copy_(x)\n", 1 },
		{ FORWARD "        return torch.empty_like(x)\n", 1 },
		{ FORWARD "        return x + 1\n", 2 },
		{ FORWARD "        return x.to(torch.int64)\n", 2 },
		{ FORWARD "        return x.half()\n", 2 },
		{ FORWARD "        import threading\n"
		  "        t = threading.Thread(target=lambda: torch.relu(x))\n"
		  "        t.start()\n        t.join()\n"
		  "        return x.clone()\n", 2 },
	};
	struct kid k;

	(void)state;
	NEED_HOST();
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		assert_int_equal(run(&k, t[i].code, SECONDS), WAIT_OK);
		well(&k);
		assert_int_equal(k.m.canary, 1);
		if (t[i].compute == 1 && k.m.aten_compute != 1)
			fail_msg("%zu: %d", i, (int)k.m.aten_compute);
		else
			assert_true(k.m.aten_compute >= t[i].compute);
		assert_int_equal(go(&k, 1, 0, SECONDS), WAIT_OK);
		assert_int_equal(k.m.canary, 1);
		end(&k);
	}
}

/* Of a part of a block, of a part of one that is copied, and of what was made
 * elsewhere. */
static void tells_blocks_and_keeps_zones_beside_them(void **state)
{
	struct kid k;
	const uint8_t *pool;

	(void)state;
	NEED_HOST();
	assert_int_equal(run(&k, FORWARD
			     "        y = torch.empty(50)\n"
			     "        y[:] = 1\n"
			     "        return y[10:20], y[::2], x\n", SECONDS),
			 WAIT_OK);
	well(&k);
	assert_int_equal(go(&k, 1, 0, SECONDS), WAIT_OK);
	well(&k);
	pool = region(&k, "pool")->p;
	assert_int_equal(k.m.leaf[0].to - k.m.leaf[0].from, 200);
	assert_int_equal(k.m.leaf[0].offset - k.m.leaf[0].from, 40);
	assert_int_equal(k.m.leaf[1].from, k.m.leaf[0].from);
	assert_int_equal(k.m.leaf[1].to, k.m.leaf[0].to);
	assert_int_equal(k.m.leaf[2].from | k.m.leaf[2].to, 0);
	assert_true(ca_zone_whole(pool, k.m.leaf[0].from - CA_ZONE,
				  k.m.leaf[0].from));
	assert_true(ca_zone_whole(pool, k.m.leaf[0].to,
				  k.m.leaf[0].to + 56 + CA_ZONE));
	assert_false(ca_zone_whole(pool, k.m.leaf[0].to - 4,
				   k.m.leaf[0].to));
	end(&k);
}

static void serves_results_from_the_pool(void **state)
{
	struct kid k;
	uint64_t at;

	(void)state;
	NEED_HOST();
	/* A result made by the candidate stays where it is. */
	assert_int_equal(run(&k, FORWARD
			     "        y = x * self.w\n"
			     "        self.at = y.data_ptr()\n"
			     "        return y, self.at\n", SECONDS), WAIT_OK);
	well(&k);
	at = k.m.leaf[1].bits - k.m.leaf[0].offset;
	for (int i = 0; i < 5; i++) {
		memset(region(&k, "pool")->p, 0xa5, region(&k, "pool")->n);
		assert_int_equal(go(&k, i % 2, 0, SECONDS), WAIT_OK);
		well(&k);
		assert_int_equal(k.m.leaf[1].bits - k.m.leaf[0].offset, at);
		assert_memory_equal(region(&k, "pool")->p + k.m.leaf[0].offset,
				    region(ref(), "expect")->p, 256);
	}
	end(&k);
	/* An input handed back, twice, and a strided view are copied. */
	assert_int_equal(run(&k, FORWARD
			     "        return x, x, x.view(8, 8).t(), x[1:]\n",
			     SECONDS), WAIT_OK);
	well(&k);
	assert_int_equal(k.m.nleaf, 4);
	for (int i = 0; i < 2; i++)
		assert_memory_equal(region(&k, "pool")->p + k.m.leaf[i].offset,
				    region(&k, "in0")->p + CA_GAP, 256);
	assert_memory_equal(region(&k, "pool")->p + k.m.leaf[3].offset,
			    region(&k, "in0")->p + CA_GAP + 4, 252);
	end(&k);
	/* What the first call makes stays out of the pool. */
	candidate(&k, NEW_INIT "        self.work = None\n"
		  "    def forward(self, x):\n"
		  "        if self.work is None:\n"
		  "            self.work = x * self.w\n"
		  "        return self.work.clone()\n");
	assert_int_equal(go(&k, 0, GO_FIRST, SECONDS), WAIT_OK);
	memset(region(&k, "pool")->p, 0xa5, region(&k, "pool")->n);
	assert_int_equal(go(&k, 0, 0, SECONDS), WAIT_OK);
	same_results(&k, ref());
	end(&k);
}

/* A subclass that computes only when somebody looks. */
static void materialises_subclasses(void **state)
{
	struct kid k;

	(void)state;
	NEED_HOST();
	assert_int_equal(run(&k, IMPORT
		"from torch.utils._pytree import tree_map\n"
		"class Lazy(torch.Tensor):\n"
		"    @staticmethod\n"
		"    def __new__(cls, f, like):\n"
		"        t = torch.Tensor._make_wrapper_subclass(cls, like.shape)\n"
		"        t.f = f\n"
		"        return t\n"
		"    @classmethod\n"
		"    def __torch_dispatch__(cls, op, types, args=(), kw=None):\n"
		"        real = lambda t: t.f() if isinstance(t, Lazy) else t\n"
		"        return op(*tree_map(real, args), **(kw or {}))\n"
		"class ModelNew(nn.Module):\n"
		"    def __init__(self):\n"
		"        super().__init__()\n"
		"        self.w = nn.Parameter(torch.zeros(64))\n"
		"    def forward(self, x):\n"
		"        return Lazy(lambda: x * self.w, x)\n", SECONDS),
		WAIT_OK);
	same_results(&k, ref());
	end(&k);
}

static int build_object(const char *source, char *dir, size_t len)
{
	char out[300], in[300];
	const char *argv[] = { "cc", "-shared", "-fPIC", "-o", out, in, NULL };
	struct child_opts opt = { .argv = argv,
				  .deadline = deadline_in(SECONDS) };
	struct child_result r;
	struct str object = STR_INIT;
	struct err e = ERR_INIT;
	int fd;

	assert_int_equal(make_temp_dir("torch-test-", dir, len, &e), 0);
	snprintf(out, sizeof(out), "%.200s/k.so", dir);
	snprintf(in, sizeof(in), "%.200s/k.c", dir);
	assert_int_equal(write_file_atomic(in, source, strlen(source), 0644,
					   &e), 0);
	assert_int_equal(child_run(&opt, &r, &e), 0);
	assert_int_equal(r.code, 0);
	assert_int_equal(read_file(out, 1 << 20, &object, &e), 0);
	fd = memfd_code(object.buf, object.len, &e);
	str_release(&object);
	return fd;
}

static const char kernel_c[] =
	"#include <stdint.h>\n"
	"int mul(const float *x, const float *w, float *y, int64_t n,\n"
	"        int32_t fail)\n"
	"{\n"
	"	for (int64_t i = 0; i < n; i++)\n"
	"		y[i] = x[i] * w[i];\n"
	"	return fail;\n"
	"}\n"
	"double half(float x, _Bool b) { return b ? x / 2 : x; }\n";

static const char launchers[] = "[{\"name\":\"mul\",\"ret\":\"i32\",\"args\":["
	"{\"name\":\"x\",\"type\":\"ptr\",\"dtype\":\"float32\",\"const\":true},"
	"{\"name\":\"w\",\"type\":\"ptr\",\"dtype\":\"float32\",\"const\":true},"
	"{\"name\":\"y\",\"type\":\"ptr\",\"dtype\":\"float32\"},"
	"{\"name\":\"n\",\"type\":\"i64\"},{\"name\":\"fail\",\"type\":\"i32\"}]},"
	"{\"name\":\"half\",\"ret\":\"f64\",\"args\":[{\"type\":\"f32\"},"
	"{\"type\":\"bool\"}]}]";

#define LIGHT "import cuda_extension as ext\n" FORWARD \
	"        y = torch.empty_like(x)\n"

static void calls_launchers(void **state)
{
	static const struct {
		const char *code, *says;
	} bad[] = {
		{ LIGHT "        ext.mul(x, self.w, y.double(), 64, 0)\n",
		  "mul: argument 3 ('y'): expected a tensor of float32 on cpu, "
		  "got a tensor of float64 on cpu" },
		{ LIGHT "        ext.mul(x, self.w, y, 6.5, 0)\n",
		  "mul: argument 4 ('n'): expected an integer (i64), got float"
		  " 6.5" },
		{ LIGHT "        ext.mul(x, self.w, y, 64, 1 << 31)\n",
		  "fits i32" },
		{ LIGHT "        ext.mul(x, self.w)\n",
		  "mul: expected 5 arguments, got 2" },
		{ LIGHT "        ext.mul(x, 'w', y, 64, 0)\n",
		  "got str 'w'" },
		{ LIGHT "        ext.mul(x, self.w, y, 64, 5)\n",
		  "RuntimeError: mul returned 5" },
		{ LIGHT "        ext.nope(x)\n", "nope" },
	};
	char dir[4096];
	int object = build_object(kernel_c, dir, sizeof(dir));
	struct kid k;

	(void)state;
	assert_true(object >= 0);
	if (!host)
		goto out;
	start_runner(&k, ref(), "worker");
	load_runner(&k, ref(), LIGHT
		    "        assert ext.half(3, True) == 1.5\n"
		    "        assert ext.half(3.0, 0) == 3\n"
		    "        assert ext.mul(x, self.w, y, 64, False) is None\n"
		    "        return y\n", object, launchers);
	well(&k);
	assert_int_equal(go(&k, 0, 0, SECONDS), WAIT_OK);
	same_results(&k, ref());
	assert_int_equal(k.m.aten_compute, 1);
	end(&k);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		start_runner(&k, ref(), "worker");
		load_runner(&k, ref(), bad[i].code, object, launchers);
		well(&k);
		assert_int_equal(go(&k, 0, 0, SECONDS), WAIT_OK);
		assert_int_equal(k.m.end, END_RAISED);
		if (!strstr(k.m.text, bad[i].says))
			fail_msg("'%s' is not in '%s'", bad[i].says, k.m.text);
		end(&k);
	}
out:
	close(object);
	remove_tree(dir, NULL);
}

static void tells_how_a_child_died(void **state)
{
	struct kid k;
	int st;

	(void)state;
	NEED_HOST();
	assert_int_equal(run(&k, FORWARD "        import os\n"
			     "        os._exit(7)\n", SECONDS), WAIT_GONE);
	st = end(&k);
	assert_true(WIFEXITED(st) && WEXITSTATUS(st) == 7);
	assert_int_equal(run(&k, FORWARD "        import ctypes\n"
			     "        ctypes.string_at(8)\n", SECONDS),
			 WAIT_GONE);
	st = end(&k);
	assert_true(WIFSIGNALED(st) && WTERMSIG(st) == SIGSEGV);
}

static void ends_what_hangs(void **state)
{
	struct kid k;
	int st;

	(void)state;
	NEED_HOST();
	assert_int_equal(run(&k, FORWARD "        import signal\n"
			     "        signal.signal(signal.SIGTERM,"
			     " signal.SIG_IGN)\n"
			     "        while True: pass\n", 1), WAIT_TIMEOUT);
	st = end(&k);
	assert_true(WIFSIGNALED(st) && WTERMSIG(st) == SIGKILL);
	assert_int_equal(kill(k.c.pid, 0), -1);
}

static void ignores_output(void **state)
{
	struct kid k;

	(void)state;
	NEED_HOST();
	assert_int_equal(run(&k, FORWARD "        import sys\n"
			     "        for i in range(1024):\n"
			     "            print('x' * (1 << 20))\n"
			     "        print('y', file=sys.stderr)\n"
			     "        return x * self.w\n", SECONDS), WAIT_OK);
	same_results(&k, ref());
	end(&k);
}

static void notices_foreign_answers(void **state)
{
	struct kid k;

	(void)state;
	NEED_HOST();
	assert_int_equal(run(&k, FORWARD "        import os\n"
			     "        os.write(3, b'cams')\n", SECONDS),
			 WAIT_GARBAGE);
	end(&k);
	assert_int_equal(run(&k, FORWARD "        import os\n"
			     "        os.write(3, b'x' * 20000)\n", SECONDS),
			 WAIT_GARBAGE);
	end(&k);
}

/* What a candidate may reach of the process that it runs in. */
static void confines_candidates(void **state)
{
	struct kid k;
	struct jail_caps caps;

	(void)state;
	NEED_HOST();
	if (jail_probe(&caps, NULL) || caps.self != JAIL_FULL)
		skip();
	assert_int_equal(run(&k, FORWARD
		"        import os, socket\n"
		"        links = [os.readlink(f'/proc/self/fd/{f}')\n"
		"                 for f in os.listdir('/proc/self/fd')\n"
		"                 if os.path.lexists(f'/proc/self/fd/{f}')]\n"
		"        n = sum(s.startswith('socket:') for s in links)\n"
		"        m = sum(s.startswith('pipe:') for s in links)\n"
		"        bad = 0\n"
		"        for f in (os.fork, socket.socket,\n"
		"                  lambda: os.listdir('/var/cache'),\n"
		"                  lambda: open('/tmp/../etc/x', 'w')):\n"
		"            try:\n                f()\n"
		"            except OSError:\n                bad += 1\n"
		"        return [n, m, bad, os.getpid(), os.getuid()]\n",
		SECONDS), WAIT_OK);
	well(&k);
	assert_int_equal(k.m.leaf[0].bits, 1);
	assert_int_equal(k.m.leaf[1].bits, 0);
	assert_int_equal(k.m.leaf[2].bits, 4);
	assert_int_equal(k.m.leaf[3].bits, 1);
	assert_int_equal(k.m.leaf[4].bits, 65534);
	end(&k);
}

static void answers_garbage(void **state)
{
	static const char *const bad[] = {
		"nonsense", "{}", "[1]", "{'op':7}", "{'op':'serve'}",
		"{'op':'load'}", "{'op':'load','code':4}",
		"{'op':'map','regions':[{'name':'x','bytes':5}]}",
		"{'op':'map'}", "{'op':'__init__'}", "'\xff'",
		"[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
	};
	const char quit[] = "{\"op\":\"quit\"}";
	struct kid k;

	(void)state;
	NEED_HOST();
	spawn_on(host, &k, "worker", level);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		ASK(&k, bad[i]);
		if (strncmp(bad[i], "{'op':'load'", 12))
			assert_int_equal(k.m.end, END_BAD_REQUEST);
		else
			assert_int_not_equal(k.m.end, END_OK);
	}
	assert_int_equal(go(&k, 0, 0, SECONDS), WAIT_OK);
	assert_int_equal(k.m.end, END_BAD_REQUEST);
	assert_int_equal(torch_send(&k.c, quit, CA_REQ_MAX + 1, NULL, 0,
				    NULL), -1);
	end(&k);
}

static void baselines_tell_where_time_goes(void **state)
{
	static const char table[] = "{'op':'table','iterations':3}";
	const struct json *row;
	struct json *told;
	struct kid k;

	(void)state;
	NEED_HOST();
	start_runner(&k, ref(), "eager");
	assert_int_equal(ASK(&k, table), END_BAD_REQUEST);	/* too early */
	assert_int_equal(load_runner(&k, ref(), reference, -1, NULL), END_OK);
	assert_int_equal(ASK(&k, table), END_UNSUPPORTED);	/* no desc */
	map(&k, "desc", 1 << 20);
	assert_int_equal(ASK(&k, "{'op':'table','iterations':0}"),
			 END_BAD_REQUEST);
	assert_int_equal(ASK(&k, "{'op':'table','iterations':3,'set':2}"),
			 END_BAD_REQUEST);
	assert_int_equal(ASK(&k, table), END_OK);
	told = json_parse((char *)region(&k, "desc")->p, k.m.desc_len,
			  1 << 20, NULL, NULL);
	row = json_first(json_get(told, "rows"));
	while (row && strcmp(json_get_str(row, "name", ""), "aten::mul"))
		row = json_next(row);
	assert_true(json_get_num(row, "calls", 0) == 1);
	assert_true(json_get_num(row, "us", 0) > 0);
	assert_int_equal(json_get_int(row, "bytes", 0), 3 * 64 * 4);
	json_free(told);
	/* Iterations go on as before. */
	assert_int_equal(go(&k, 0, 0, SECONDS), WAIT_OK);
	same_results(&k, ref());
	end(&k);
	start_runner(&k, ref(), "worker");
	assert_int_equal(ASK(&k, table), END_BAD_REQUEST);
	end(&k);
}

/* Memory, objects and code come into a jail that is closed. */
static void begins_before_it_loads(void **state)
{
	struct jail_caps caps;

	NEED_HOST();
	if (jail_probe(&caps, NULL) || caps.self != JAIL_FULL)
		skip();
	begins = 1;
	binds_by_name_or_order(state);
	calls_launchers(state);
	confines_candidates(state);
	baselines_tell_where_time_goes(state);
	begins = 0;
}

static void warms_up_only_a_gpu(void **state)
{
	struct kid k;

	(void)state;
	NEED_HOST();
	spawn_on(host, &k, "oracle", level);
	ASK(&k, "{'op':'warm','regions':[]}");
	well(&k);
	end(&k);
}

static void host_refuses_bad_spawns(void **state)
{
	struct torch_spawn s = { .role = "king", .device = "cpu",
				 .jail = "none" };
	struct err e = ERR_INIT;
	struct torch_child c;

	(void)state;
	NEED_HOST();
	assert_int_equal(torch_spawn(host, &s, &c, &e), -1);
	assert_non_null(strstr(e.msg, "role"));
	s.role = "worker";
	s.jail = "open";
	assert_int_equal(torch_spawn(host, &s, &c, &e), -1);
	assert_non_null(strstr(e.msg, "open"));
	s.jail = "none";
	s.role = "compile";
	s.cache = "../x";
	assert_int_equal(torch_spawn(host, &s, &c, &e), -1);
	assert_int_equal(torch_pump(host, &e), 0);
}

static void bad_tasks(const char *code, uint32_t how)
{
	struct kid o;

	assert_int_equal(load_oracle(&o, code), how);
	assert_true(strlen(o.m.text) > 0);
	end(&o);
}

static void tells_what_is_wrong_with_a_task(void **state)
{
	(void)state;
	NEED_HOST();
	bad_tasks(IMPORT INPUT, END_NO_CLASS);
	bad_tasks(IMPORT "class Model(nn.Module):\n    pass\n", END_NO_CLASS);
	bad_tasks(IMPORT "class Model(nn.Module):\n    pass\n"
		  "def get_inputs():\n    return 5\n", END_CONSTRUCT);
	bad_tasks(IMPORT "class Model(nn.Module):\n    pass\n"
		  "def get_inputs():\n    return [object()]\n",
		  END_UNSUPPORTED);
	bad_tasks(IMPORT "class Model(nn.Module):\n    pass\n"
		  "def get_inputs():\n    return [torch.rand(1 << 50)]\n",
		  END_OOM);
	bad_tasks(IMPORT "class Model(nn.Module):\n"
		  "    def __init__(self): raise OSError('no')\n" INPUT,
		  END_CONSTRUCT);
}

/* A task that asks for all memory meets a limit, not the machine's end. */
static void limits_memory(void **state)
{
	struct torch_spawn s = { .role = "oracle", .device = "cpu",
				 .jail = level, .mem_bytes = 1 << 30 };
	int fd = text_fd(IMPORT "class Model(nn.Module):\n    pass\n"
			 "def get_inputs():\n"
			 "    return [torch.ones(1 << 29)]\n");
	struct err e = ERR_INIT;
	struct kid k = { .nr = 0 };

	(void)state;
	if (!host || !strcmp(level, "none")) {
		close(fd);
		skip();
	}
	assert_int_equal(torch_spawn(host, &s, &k.c, &e), 0);
	ASK(&k, "{'op':'jail'}");
	map(&k, "desc", 4096);
	assert_int_equal(ask(&k, "{'op':'load','code':0}", &fd, 1), END_OOM);
	close(fd);
	end(&k);
}

static void wait_gone(pid_t pid)
{
	int64_t until = deadline_in(10);

	while (now_ns() < until) {
		char path[64], buf[512] = "";
		int fd;

		if (kill(pid, 0))
			return;
		snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0 || read(fd, buf, sizeof(buf) - 1) <= 0 ||
		    strstr(buf, ") Z "))
			until = 0;
		if (fd >= 0)
			close(fd);
		usleep(10000);
	}
	if (until)
		fail_msg("process %d is still there", (int)pid);
}

/* The host is killed while children hang: nothing of it is left. */
static void leaves_nothing_when_killed(void **state)
{
	struct torch_host *h;
	struct err e = ERR_INIT;
	struct kid k[3];
	char path[64], stat[512] = "";
	int fd, ppid = 0;

	(void)state;
	NEED_HOST();
	ref();
	h = host;
	host = torch_open(120, &e);
	assert_non_null(host);
	for (int i = 0; i < 3; i++) {
		start_runner(&k[i], ref(), "worker");
		load_runner(&k[i], ref(), FORWARD
			    "        while True: pass\n", -1, NULL);
		well(&k[i]);
		assert_int_equal(go(&k[i], 0, 0, 0.2), WAIT_TIMEOUT);
	}
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)k[0].c.host_pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(read(fd, stat, sizeof(stat) - 1) > 0);
	close(fd);
	assert_int_equal(sscanf(strrchr(stat, ')'), ") %*c %d", &ppid), 1);
	assert_true(ppid > 1);
	kill(ppid, SIGKILL);
	for (int i = 0; i < 3; i++) {
		wait_gone(k[i].c.host_pid);
		wait_gone(k[i].c.pid);
	}
	assert_int_equal(torch_pump(host, &e), -1);
	assert_int_equal(torch_fd(host), -1);
	for (int i = 0; i < 3; i++)
		end(&k[i]);
	torch_close(host);
	host = h;
}

/* The tool goes without a word, in the middle of a job. */
static void leaves_nothing_when_left(void **state)
{
	struct torch_host *h = host;
	struct err e = ERR_INIT;
	struct kid k;
	pid_t pid[2];

	(void)state;
	NEED_HOST();
	ref();
	host = torch_open(120, &e);
	assert_non_null(host);
	assert_int_equal(run(&k, FORWARD "        while True: pass\n",
			     0.2), WAIT_TIMEOUT);
	pid[0] = k.c.pid;
	pid[1] = k.c.host_pid;
	torch_close(host);
	wait_gone(pid[0]);
	wait_gone(pid[1]);
	host = h;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tells_how_loading_failed),
		cmocka_unit_test(tells_how_forward_failed),
		cmocka_unit_test(binds_by_name_or_order),
		cmocka_unit_test(counts_operations),
		cmocka_unit_test(tells_blocks_and_keeps_zones_beside_them),
		cmocka_unit_test(serves_results_from_the_pool),
		cmocka_unit_test(materialises_subclasses),
		cmocka_unit_test(calls_launchers),
		cmocka_unit_test(tells_how_a_child_died),
		cmocka_unit_test(ends_what_hangs),
		cmocka_unit_test(ignores_output),
		cmocka_unit_test(notices_foreign_answers),
		cmocka_unit_test(confines_candidates),
		cmocka_unit_test(begins_before_it_loads),
		cmocka_unit_test(warms_up_only_a_gpu),
		cmocka_unit_test(answers_garbage),
		cmocka_unit_test(baselines_tell_where_time_goes),
		cmocka_unit_test(host_refuses_bad_spawns),
		cmocka_unit_test(tells_what_is_wrong_with_a_task),
		cmocka_unit_test(limits_memory),
		cmocka_unit_test(leaves_nothing_when_killed),
		cmocka_unit_test(leaves_nothing_when_left),
	};

	return cmocka_run_group_tests_name("torch_worker", tests, open_host,
					   close_host);
}
