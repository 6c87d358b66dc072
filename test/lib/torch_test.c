/* SPDX-License-Identifier: Apache-2.0
 *
 * lib/torch with the real PyTorch on the CPU: what judge and children say to
 * each other when all goes well.
 */
#define _GNU_SOURCE
#include "torch_kit.h"

#define IMPORT "import torch, torch.nn as nn\n"
#define NO_INIT "def get_init_inputs():\n    return []\n"

static void says_hello(void **state)
{
	(void)state;
	NEED_HOST();
	assert_true(strlen(torch_version(host)) > 2);
	assert_int_equal(strlen(torch_digest(host)), 32);
	assert_true(torch_fd(host) >= 0);
	assert_int_equal(torch_pump(host, NULL), 0);
}

static void forks_many(void **state)
{
	struct kid k[50];
	int i, j;

	(void)state;
	NEED_HOST();
	for (i = 0; i < 50; i++)
		spawn_on(host, &k[i], i % 2 ? "eager" : "calib", level);
	for (i = 0; i < 50; i++) {
		ASK(&k[i], "{'op':'jail'}");
		well(&k[i]);
		assert_true(k[i].c.pid > 1);
		for (j = 0; j < i; j++)
			assert_int_not_equal(k[i].c.pid, k[j].c.pid);
	}
	for (i = 0; i < 50; i++) {
		int st = end(&k[i]);

		assert_true(WIFSIGNALED(st) && WTERMSIG(st) == SIGKILL);
		assert_int_equal(kill(k[i].c.pid, 0), -1);
	}
}

static void leaves_when_told(void **state)
{
	const char quit[] = "{\"op\":\"quit\"}";
	struct kid k;
	int st;

	(void)state;
	NEED_HOST();
	spawn_on(host, &k, "worker", level);
	ASK(&k, "{'op':'jail'}");
	assert_int_equal(torch_send(&k.c, quit, strlen(quit), NULL, 0, NULL),
			 0);
	assert_int_equal(torch_recv(&k.c, &k.m, deadline_in(SECONDS)),
			 WAIT_GONE);
	st = end(&k);
	assert_true(WIFEXITED(st) && WEXITSTATUS(st) == 0);
}

/* Runs model.py in an oracle and as eager baseline; results are equal. */
static void agree(const char *code)
{
	struct kid o, k;

	start_oracle(&o, code);
	expect(&o, "native");
	start_runner(&k, &o, "eager");
	load_runner(&k, &o, code, -1, NULL);
	well(&k);
	assert_int_equal(go(&k, 0, GO_FIRST, SECONDS), WAIT_OK);
	same_results(&k, &o);
	assert_int_equal(go(&k, 1, 0, SECONDS), WAIT_OK);
	same_results(&k, &o);
	assert_int_equal(k.m.seq, 9);
	assert_int_equal(k.m.canary, 1);
	end(&k);
	end(&o);
}

static void carries_each_dtype(void **state)
{
	(void)state;
	NEED_HOST();
	agree(IMPORT NO_INIT
	      "KINDS = [torch.bool, torch.uint8, torch.int8, torch.int16,\n"
	      "  torch.int32, torch.int64, torch.float16, torch.bfloat16,\n"
	      "  torch.float32, torch.float64, torch.complex64,\n"
	      "  torch.complex128, torch.uint16, torch.uint32, torch.uint64,\n"
	      "  torch.float8_e4m3fn, torch.float8_e5m2]\n"
	      "class Model(nn.Module):\n"
	      "    def forward(self, *x):\n"
	      "        return [t.clone() for t in x]\n"
	      "def get_inputs():\n"
	      "    return [(torch.rand(3, 5) * 9).to(k) for k in KINDS]\n");
}

static void carries_nested_results(void **state)
{
	(void)state;
	NEED_HOST();
	agree(IMPORT NO_INIT
	      "class Model(nn.Module):\n"
	      "    def forward(self, x, flag, n, f, nest):\n"
	      "        e = torch.empty(0, 4)\n"
	      "        return {'b': (x + f, [x.t(), e]), 'a': nest['k'][0],\n"
	      "                3: n + 1, 'flag': not flag, 'f': f * 2,\n"
	      "                'none': None, 's': 'text', 'v': x.view(-1)[3],\n"
	      "                'c': torch.view_as_complex(x).conj()}\n"
	      "def get_inputs():\n"
	      "    return [torch.rand(4, 2), True, -7, 0.5,\n"
	      "            {'k': [torch.arange(6), None, 'word']}]\n");
}

/* What forward sees of strides, offsets and sharing, told as numbers. */
static void keeps_views(void **state)
{
	(void)state;
	NEED_HOST();
	agree(IMPORT NO_INIT
	      "class Model(nn.Module):\n"
	      "    def forward(self, a, b, c, d):\n"
	      "        out = [a.data_ptr() - b.data_ptr(),\n"
	      "               a.untyped_storage().nbytes()]\n"
	      "        for t in (a, b, c, d):\n"
	      "            out += list(t.stride()) + [t.storage_offset()]\n"
	      "        return out + [a + 1, b + 1, c + 1, d + 1]\n"
	      "def get_inputs():\n"
	      "    x = torch.rand(6, 8)\n"
	      "    return [x.t(), x[2:, 1::2], torch.rand(5, 1).expand(5, 7),\n"
	      "            torch.rand(())]\n");
}

static void passes_constructor_arguments(void **state)
{
	(void)state;
	NEED_HOST();
	agree(IMPORT
	      "class Model(nn.Module):\n"
	      "    def __init__(self, *args, **kwargs):\n"
	      "        super().__init__()\n"
	      "        self.args, self.kwargs = args, kwargs\n"
	      "    def forward(self, x):\n"
	      "        n, t, kind, inf, big, none, word, nest = self.args\n"
	      "        return [n, t + 1, x.to(kind), inf, big, none, word,\n"
	      "                nest, self.kwargs]\n"
	      "def get_init_inputs():\n"
	      "    return [[3, torch.arange(4.).view(2, 2).t(), torch.float64,\n"
	      "             float('-inf'), 1 << 60, None, 'same', (1, [0.1])],\n"
	      "            {'flag': True}]\n"
	      "def get_inputs():\n"
	      "    return [torch.rand(3)]\n");
}

static void keeps_ties(void **state)
{
	(void)state;
	NEED_HOST();
	agree(IMPORT NO_INIT
	      "class Model(nn.Module):\n"
	      "    def __init__(self):\n"
	      "        super().__init__()\n"
	      "        self.a = nn.Linear(5, 5)\n"
	      "        self.b = nn.Linear(5, 5)\n"
	      "        self.b.weight = self.a.weight\n"
	      "    def forward(self, x):\n"
	      "        same = self.b.weight.data_ptr() == \\\n"
	      "            self.a.weight.data_ptr()\n"
	      "        return self.b(self.a(x)), same\n"
	      "def get_inputs():\n"
	      "    return [torch.rand(2, 5)]\n");
}

/* Randomness inside forward follows the seed that comes with `go`. */
static void seeds_forward(void **state)
{
	(void)state;
	NEED_HOST();
	agree(IMPORT NO_INIT
	      "class Model(nn.Module):\n"
	      "    def forward(self, x):\n"
	      "        return x + torch.rand(64), \\\n"
	      "            nn.functional.dropout(x, training=True)\n"
	      "def get_inputs():\n"
	      "    return [torch.rand(64)]\n");
}

/* Views are fresh in each call, whatever forward did to them. */
static void survives_changed_shapes(void **state)
{
	(void)state;
	NEED_HOST();
	agree(IMPORT NO_INIT
	      "class Model(nn.Module):\n"
	      "    def forward(self, x):\n"
	      "        x.unsqueeze_(0)\n"
	      "        return x + 1\n"
	      "def get_inputs():\n"
	      "    return [torch.rand(4)]\n");
}

static const char inplace[] = IMPORT NO_INIT
	"class Model(nn.Module):\n"
	"    def forward(self, x, y):\n"
	"        x.mul_(2)\n"
	"        return x + y\n"
	"def get_inputs():\n"
	"    return [torch.rand(300), torch.rand(300)]\n";

/* Threads, and what decides how floating-point numbers are computed with: in
 * each role as in the oracle, and whatever a candidate made of it. */
static const char math[] = IMPORT NO_INIT
	"class Model(nn.Module):\n"
	"    def forward(self, x):\n"
	"        b = torch.backends\n"
	"        return {'denormals': x * 1e-40,\n"
	"                'threads': torch.get_num_threads(),\n"
	"                'tf32': [b.cuda.matmul.allow_tf32,\n"
	"                         b.cudnn.allow_tf32],\n"
	"                'short': [b.cuda.matmul."
	"allow_fp16_reduced_precision_reduction,\n"
	"                          b.cuda.matmul."
	"allow_bf16_reduced_precision_reduction],\n"
	"                'matmul': torch.get_float32_matmul_precision(),\n"
	"                'same': torch."
	"are_deterministic_algorithms_enabled(),\n"
	"                'benchmark': b.cudnn.benchmark,\n"
	"                'mkldnn': b.mkldnn.enabled}\n"
	"class ModelNew(Model):\n"
	"    def forward(self, x):\n"
	"        out = super().forward(x)\n"
	"        if hasattr(self, 'spoil'):\n"
	"            torch.set_flush_denormal(True)\n"
	"            torch.set_num_threads(1)\n"
	"            torch.set_float32_matmul_precision('medium')\n"
	"            torch.backends.cudnn.benchmark = True\n"
	"        self.spoil = True\n"
	"        return out\n"
	"def get_inputs():\n"
	"    return [1 + torch.rand(64)]\n";

static void computes_alike_in_every_role(void **state)
{
	static const char *const role[] = { "worker", "eager", "worker" };
	struct kid o, k;

	(void)state;
	NEED_HOST();
	start_oracle(&o, math);
	expect(&o, "native");
	assert_true(*(float *)(void *)region(&o, "expect")->p > 0);
	for (int i = 0; i < 3; i++) {
		start_runner(&k, &o, role[i]);
		load_runner(&k, &o, math, -1, NULL);
		well(&k);
		for (int n = 0; n < 2; n++) {
			assert_int_equal(go(&k, n, n ? 0 : GO_FIRST, SECONDS),
					 WAIT_OK);
			same_results(&k, &o);
		}
		/* Now it has changed everything, for itself alone. */
		assert_int_equal(go(&k, 0, 0, SECONDS), WAIT_OK);
		well(&k);
		end(&k);
	}
	end(&o);
}

static void reports_modified_inputs(void **state)
{
	struct kid o;
	float *in, *after;
	uint8_t want[2400];
	size_t y;

	(void)state;
	NEED_HOST();
	start_oracle(&o, inplace);
	in = (float *)(region(&o, "inputs")->p + input_at(&o, 0));
	after = (float *)(region(&o, "after")->p + input_at(&o, 0));
	y = (input_at(&o, 1) - input_at(&o, 0)) / sizeof(float);
	expect(&o, "native");
	well(&o);
	assert_int_equal(o.m.modified, 1);
	assert_true(after[0] == 2 * in[0] && after[299] == 2 * in[299]);
	assert_true(after[y] == in[y] && after[y + 299] == in[y + 299]);
	memcpy(want, region(&o, "expect")->p, 1200);
	expect(&o, "native");
	assert_int_equal(o.m.modified, 1);
	assert_memory_equal(region(&o, "expect")->p, want, 1200);
	end(&o);
	agree(inplace);
}

static const char updates[] = IMPORT
	"class Model(nn.Module):\n"
	"    def __init__(self, n):\n"
	"        super().__init__()\n"
	"        self.w = nn.Parameter(torch.rand(n))\n"
	"        self.register_buffer('seen', torch.zeros(n))\n"
	"        self.register_buffer('calls', torch.tensor(0))\n"
	"    def forward(self, x):\n"
	"        self.seen = self.seen + x\n"
	"        self.calls += 1\n"
	"        return self.w * x + self.seen\n"
	"def get_init_inputs():\n"
	"    return [[8], {}]\n"
	"def get_inputs():\n"
	"    return [torch.rand(8)]\n";

static void moves_updated_buffers(void **state)
{
	struct kid o, k;
	struct region *p, *q;

	(void)state;
	NEED_HOST();
	start_oracle(&o, updates);
	expect(&o, "native");
	assert_int_equal(o.m.modified, 2);
	p = region(&o, "params_after");
	start_runner(&k, &o, "eager");
	load_runner(&k, &o, updates, -1, NULL);
	well(&k);
	assert_int_equal(go(&k, 0, 0, SECONDS), WAIT_OK);
	same_results(&k, &o);
	q = region(&k, "params");
	assert_memory_equal(q->p, p->p, p->n);
	assert_memory_not_equal(q->p, region(&o, "params")->p, p->n);
	end(&k);
	end(&o);
}

/* The judge writes other scalars for the second set. */
static void reads_slots_of_its_set(void **state)
{
	static const char code[] = IMPORT NO_INIT
		"class Model(nn.Module):\n"
		"    def forward(self, x, f, n, b):\n"
		"        return [f, n, b]\n"
		"def get_inputs():\n"
		"    return [torch.rand(2), 1.5, -3, True]\n";
	struct ca_slot *s;
	struct kid o, k;
	double f = 0.25;

	(void)state;
	NEED_HOST();
	start_oracle(&o, code);
	s = (struct ca_slot *)region(&o, "slots")->p;
	assert_int_equal(s[0].kind, LEAF_FLOAT);
	assert_int_equal((int64_t)s[1].bits, -3);
	assert_int_equal(s[2].bits, 1);
	start_runner(&k, &o, "eager");
	load_runner(&k, &o, code, -1, NULL);
	s = (struct ca_slot *)region(&k, "slots")->p + CA_SLOTS;
	memcpy(&s[0].bits, &f, 8);
	s[1].bits = 41;
	s[2].bits = 0;
	assert_int_equal(go(&k, 1, 0, SECONDS), WAIT_OK);
	well(&k);
	assert_int_equal(k.m.leaf[0].bits, s[0].bits);
	assert_int_equal(k.m.leaf[1].bits, 41);
	assert_int_equal(k.m.leaf[2].bits, 0);
	assert_int_equal(go(&k, 0, 0, SECONDS), WAIT_OK);
	assert_int_equal((int64_t)k.m.leaf[1].bits, -3);
	end(&k);
	end(&o);
}

static const char linear[] = IMPORT
	"class Model(nn.Module):\n"
	"    def __init__(self, n):\n"
	"        super().__init__()\n"
	"        self.fc = nn.Linear(n, n)\n"
	"        self.bn = nn.BatchNorm1d(n)\n"
	"    def forward(self, x):\n"
	"        return self.bn(self.fc(x))\n"
	"def get_init_inputs():\n"
	"    return [16]\n"
	"def get_inputs():\n"
	"    return [torch.rand(4, 16)]\n";

static void answers_in_other_precisions(void **state)
{
	struct kid o;

	(void)state;
	NEED_HOST();
	start_oracle(&o, linear);
	expect(&o, "fp64");
	well(&o);
	assert_int_equal(o.m.leaf[0].dtype, DT_F64);
	expect(&o, "loose");
	well(&o);
	assert_int_equal(o.m.leaf[0].dtype, DT_F32);
	for (int i = 0; i < 200; i++) {
		expect(&o, i % 2 ? "native" : "fp64");
		well(&o);
		assert_int_equal(o.m.modified, 0);
	}
	map(&o, "expect", 100);
	expect(&o, "native");
	assert_int_equal(o.m.end, END_POOL);
	assert_int_equal(o.m.nleaf, 1);
	assert_int_equal(o.m.leaf[0].ndim, 2);
	assert_int_equal(o.m.leaf[0].shape[1], 16);
	end(&o);
}

/* What forward names float32 is double there. */
/* Zeros, ones, and of neighbours in bfloat16 the larger one, wherever. */
static void tells_equal_values_apart(void **state)
{
	static const char code[] = IMPORT NO_INIT
		"class Model(nn.Module):\n"
		"    def forward(self, *xs):\n"
		"        return [x.argmax(-1) for x in xs]\n"
		"def get_inputs():\n"
		"    one = torch.ones(64, dtype=torch.bfloat16)\n"
		"    two = -2 * torch.ones(64, dtype=torch.bfloat16)\n"
		"    two[40] = -1.9921875\n"
		"    return [torch.zeros(64), one, one[:1].expand(64), two]\n";
	static const struct { const char *how; int64_t at[4]; } row[] = {
		{ "fp64", { 0, 0, 0, 40 } },
		{ "falling", { 0, 0, 0, 40 } },
		{ "rising", { 63, 63, 63, 40 } },
	};
	struct kid o;

	(void)state;
	NEED_HOST();
	start_oracle(&o, code);
	expect(&o, "native");
	for (int i = 0; i < 3; i++) {
		expect(&o, row[i].how);
		well(&o);
		for (int n = 0; n < 4; n++)
			assert_int_equal(*(int64_t *)(void *)
					 (region(&o, "expect")->p +
					  o.m.leaf[n].offset), row[i].at[n]);
	}
	end(&o);
}

static void widens_what_forward_narrows(void **state)
{
	struct kid o;

	(void)state;
	NEED_HOST();
	start_oracle(&o, IMPORT NO_INIT
		     "class Model(nn.Module):\n"
		     "    def forward(self, x):\n"
		     "        y = x.to(torch.float32) @ torch.ones(3, 3)\n"
		     "        return y.half().sum(-1, dtype=torch.float32)\n"
		     "def get_inputs():\n"
		     "    return [torch.rand(3, 3)]\n");
	expect(&o, "fp64");
	assert_int_equal(o.m.end, END_OK);
	assert_int_equal(o.m.leaf[0].dtype, DT_F64);
	expect(&o, "native");
	well(&o);
	assert_int_equal(o.m.leaf[0].dtype, DT_F32);
	end(&o);
}

static void refuses_what_has_no_double(void **state)
{
	struct kid o;

	(void)state;
	NEED_HOST();
	start_oracle(&o, IMPORT NO_INIT
		     "class Model(nn.Module):\n"
		     "    def forward(self, x):\n"
		     "        if x.dtype is not torch.float32:\n"
		     "            raise TypeError(x.dtype)\n"
		     "        return x @ torch.ones(3, 3)\n"
		     "def get_inputs():\n"
		     "    return [torch.rand(3, 3)]\n");
	expect(&o, "fp64");
	assert_int_equal(o.m.end, END_UNSUPPORTED);
	expect(&o, "native");
	well(&o);
	end(&o);
}

/* Neutral values are gone, variances positive, counters untouched. */
static void perturbs_state(void **state)
{
	const struct json *s;
	struct kid o;
	uint8_t *p;

	(void)state;
	NEED_HOST();
	start_oracle(&o, linear);
	p = region(&o, "params")->p;
	for (s = json_first(json_get(o.spec, "state")); s; s = json_next(s)) {
		const char *name = json_get_str(s, "name", "");
		float *v = (float *)(p + json_get_int(s, "offset", 0));

		if (!strcmp(name, "bn.num_batches_tracked")) {
			assert_int_equal(*(int64_t *)(void *)v, 0);
			continue;
		}
		for (int i = 0; i < 16; i++) {
			assert_true(v[i] != 0 && v[i] != 1);
			if (!strcmp(name, "bn.running_var"))
				assert_true(v[i] > 0.5 && v[i] < 1.5);
		}
	}
	ASK(&o, "{'op':'state','seed':'5','perturb':false}");
	s = json_first(json_get(o.spec, "state"));
	s = json_next(json_next(s));
	assert_string_equal(json_get_str(s, "name", ""), "bn.weight");
	assert_true(*(float *)(p + json_get_int(s, "offset", 0)) == 1);
	end(&o);
}

static void makes_families(void **state)
{
	static const char code[] = IMPORT NO_INIT
		"class Model(nn.Module):\n"
		"    def forward(self, x, i, e):\n"
		"        return x.sum() + i.sum() + e.sum()\n"
		"def get_inputs():\n"
		"    return [torch.rand(8, 32), torch.arange(64),\n"
		"            torch.rand(4, 1).expand(4, 5)]\n";
	static const char *const name[] = { "scale", "sign", "tied", "cluster",
					    "spike", "permute", "blocks",
					    "tilt" };
	uint8_t plain[3072 + 16];
	struct kid o;
	char req[160];
	size_t x, i;

	(void)state;
	NEED_HOST();
	start_oracle(&o, code);
	x = input_at(&o, 0);
	i = input_at(&o, 1);
	assert_true(input_at(&o, 2) + 16 <= sizeof(plain));
	assert_true(region(&o, "inputs")->n >= sizeof(plain));
	memcpy(plain, region(&o, "inputs")->p, sizeof(plain));
	for (int f = 0; f < 8; f++) {
		const uint8_t *now = region(&o, "inputs")->p;
		int ints = !strcmp(name[f], "permute");

		snprintf(req, sizeof(req), "{'op':'inputs','seed':'6',"
			 "'family':'%s','factor':4,'export':true}", name[f]);
		ASK(&o, req);
		well(&o);
		assert_int_equal(!memcmp(now + x, plain + x, 1024), ints);
		assert_int_equal(!memcmp(now + i, plain + i, 512), !ints);
		if (f == 0)
			assert_true(*(float *)(now + x) ==
				    4 * *(float *)(plain + x));
		expect(&o, "native");
		well(&o);
	}
	assert_int_equal(ASK(&o, "{'op':'inputs','seed':'6','family':'no'}"),
			 END_BAD_REQUEST);
	ASK(&o, "{'op':'inputs','seed':'6','family':'plain'}");
	assert_memory_equal(region(&o, "inputs")->p, plain, sizeof(plain));
	end(&o);
}

static void compiles(void **state)
{
	struct kid o, k;
	const float *a, *b;

	(void)state;
	NEED_HOST();
	start_oracle(&o, linear);
	expect(&o, "native");
	start_runner(&k, &o, "compile");
	load_runner(&k, &o, linear, -1, NULL);
	well(&k);
	assert_int_equal(go(&k, 0, GO_FIRST, 200), WAIT_OK);
	well(&k);
	assert_int_equal(go(&k, 1, 0, SECONDS), WAIT_OK);
	well(&k);
	a = (float *)(region(&k, "pool")->p + k.m.leaf[0].offset);
	b = (float *)region(&o, "expect")->p;
	for (int i = 0; i < 64; i++)
		assert_true(a[i] - b[i] < 1e-4 && b[i] - a[i] < 1e-4);
	end(&k);
	end(&o);
}

static void calibrates(void **state)
{
	static const char load[] = "{'op':'load','input_bytes':4096,"
		"'result_bytes':[100,65536],'threads':2}";
	struct ca_go g = { .magic = CA_MAGIC_GO, .seq = 4, .idle_us = 3000 };
	struct kid k;

	(void)state;
	NEED_HOST();
	spawn_on(host, &k, "calib", level);
	ASK(&k, "{'op':'jail'}");
	map(&k, "in0", 4096);
	map(&k, "in1", 4096);
	map(&k, "pool", 1 << 20);
	ASK(&k, load);
	well(&k);
	assert_int_equal(torch_send_go(&k.c, &g, NULL), 0);
	assert_int_equal(torch_recv(&k.c, &k.m, deadline_in(SECONDS)),
			 WAIT_OK);
	well(&k);
	assert_int_equal(k.m.nleaf, 2);
	assert_int_equal(leaf_bytes(&k.m.leaf[1]), 65536);
	assert_true(k.m.own_ns >= 3000000);
	end(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(says_hello),
		cmocka_unit_test(forks_many),
		cmocka_unit_test(leaves_when_told),
		cmocka_unit_test(carries_each_dtype),
		cmocka_unit_test(carries_nested_results),
		cmocka_unit_test(keeps_views),
		cmocka_unit_test(passes_constructor_arguments),
		cmocka_unit_test(keeps_ties),
		cmocka_unit_test(seeds_forward),
		cmocka_unit_test(survives_changed_shapes),
		cmocka_unit_test(reports_modified_inputs),
		cmocka_unit_test(computes_alike_in_every_role),
		cmocka_unit_test(moves_updated_buffers),
		cmocka_unit_test(reads_slots_of_its_set),
		cmocka_unit_test(answers_in_other_precisions),
		cmocka_unit_test(widens_what_forward_narrows),
		cmocka_unit_test(tells_equal_values_apart),
		cmocka_unit_test(refuses_what_has_no_double),
		cmocka_unit_test(perturbs_state),
		cmocka_unit_test(makes_families),
		cmocka_unit_test(calibrates),
		cmocka_unit_test(compiles),
	};

	return cmocka_run_group_tests_name("torch", tests, open_host,
					   close_host);
}
