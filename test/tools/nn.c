/* SPDX-License-Identifier: Apache-2.0
 *
 * What test/models compares with the real libraries.
 *
 * nn tok DIR LINES: the ids of each line of a file (4 bytes of length, then
 * the text): their number, then they.
 *
 * nn step DIR DEVICE DTYPE IN [exact]: one training step's forward and
 * backward.  IN holds int32: sequences, rows of output, sets of targets,
 * recompute; where sequences begin (and the end of the last); ids; the rows;
 * the sets of targets; then fp32: dlp and dent of each row.  Written are fp32:
 * the log-probabilities of each set, the entropies, and for each tensor of the
 * model, in the order of its names on stderr, the gradient of the last set.
 *
 * nn resume DIR SAVE N: N training steps on the CPU, from checkpoint SAVE if it
 * is there, else from DIR; then saves.
 *
 * nn train DIR DEVICE DTYPE SEQS LEN RECOMPUTE: times training steps on random
 * tokens, prints time, tokens a second and MFU as TRAINING defines it.
 *
 * nn template FILE: the answer to each line {"messages", "tools",
 * "add_generation_prompt", "bos_token", "eos_token"} by a chat template, as
 * {"text"}, {"error"} or, where it would go to Python, {"unknown"}.
 *
 * nn decode DIR DEVICE DTYPE SEQS LEN EXACT [PROMPT]: times generation of LEN
 * tokens by SEQS sequences at once, behind prompts of PROMPT tokens (16).
 *
 * nn prompt DIR DEVICE DTYPE PREFIX NEW EXACT: times the step of a prompt of
 * NEW tokens alone, and behind PREFIX that are in the cache.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/rand.h"
#include "jinja/jinja.h"
#include "nn/ckpt.h"
#include "nn/gen.h"
#include "nn/tok.h"
#include "nn/train.h"
#include "rec/reader.h"
#include "gradients.h"
#include "meter.h"

static struct err e = ERR_INIT;

static int tokens(const char *dir, const char *path)
{
	struct tok *t = tok_open(dir, &e);
	struct tok_ids ids = TOK_IDS_INIT;
	FILE *f = fopen(path, "rb");
	static char line[4 << 20];
	uint32_t len, n;

	if (!t)
		die_err(&e);
	if (!f)
		die(CA_NOINPUT, "cannot open '%s'", path);
	while (fread(&len, 4, 1, f) == 1 && len <= sizeof line &&
	       fread(line, 1, len, f) == len) {
		ids.n = 0;
		if (tok_encode(t, line, len, 0, &ids, &e))
			die_err(&e);
		n = (uint32_t)ids.n;
		fwrite(&n, 4, 1, stdout);
		fwrite(ids.id, sizeof *ids.id, n, stdout);
	}
	fclose(f);
	tok_ids_release(&ids);
	tok_free(t);
	return fflush(stdout) ? CA_IOERR : 0;
}

static void answer(const struct jinja *j, const struct json *request)
{
	static const char *const key[] = { "text", "error", "unknown" };
	struct str text = STR_INIT, line = STR_INIT;
	struct jinja_vars v = {
		.messages = json_get(request, "messages"), .n = SIZE_MAX,
		.tools = json_get(request, "tools"),
		.open = json_get_bool(request, "add_generation_prompt", 0),
		.bos = json_get_str(request, "bos_token", ""),
		.eos = json_get_str(request, "eos_token", "") };
	enum jinja_end end = j ? jinja_render(j, &v, &text, &e) :
				 JINJA_UNKNOWN;
	struct jw w;

	jw_init(&w, &line);
	jw_obj(&w);
	jw_kstr(&w, key[end], end == JINJA_TEXT ? (text.buf ? text.buf : "") :
				e.msg);
	jw_end_obj(&w);
	puts(line.buf);
	str_release(&text);
	str_release(&line);
}

static int template(const char *path)
{
	struct str text = STR_INIT;
	struct reader in;
	struct jinja *j;
	char *line;
	size_t len;

	if (read_file(path, (size_t)1 << 20, &text, &e))
		die_err(&e);
	j = jinja_parse(text.buf ? text.buf : "", text.len, &e);
	reader_init(&in, 0, -1);
	while (reader_next(&in, &line, &len, &e) == LINE_OK) {
		struct json *r = json_parse(line, len, JSON_MAX_LINE, NULL,
					    &e);

		if (!r)
			die_err(&e);
		answer(j, r);
		json_free(r);
	}
	reader_release(&in);
	jinja_free(j);
	str_release(&text);
	return fflush(stdout) ? CA_IOERR : 0;
}

static enum gpu_type type_of(const char *name)
{
	return strcmp(name, "bf16") ? GPU_F32 : GPU_BF16;
}

static int step(const char *dir, const char *device, const char *dtype,
		const char *path, unsigned flags)
{
	struct str in = STR_INIT;
	const int32_t *head, *first;
	struct train_opts o = { .dir = dir, .device = device,
				.flags = flags };
	struct train_batch b = { .inv_temp = 1 };
	struct train *t;
	const float *dlp;
	float *lp, *ent;
	size_t n;

	if (read_file(path, (size_t)1 << 28, &in, &e))
		die_err(&e);
	head = (const int32_t *)(const void *)in.buf;
	first = head + 4;
	b.nseq = head[0];
	b.nout = head[1];
	b.first = first;
	b.ids = first + b.nseq + 1;
	b.row = b.ids + first[b.nseq];
	b.target = b.row + b.nout;
	dlp = (const float *)(b.target + (size_t)head[2] * (size_t)b.nout);
	o.type = type_of(dtype);
	o.tokens = first[b.nseq];
	o.seqs = b.nseq;
	o.recompute = head[3];
	for (int s = 0; s < b.nseq; s++)
		if (first[s + 1] - first[s] > o.positions)
			o.positions = first[s + 1] - first[s];
	t = train_open(&o, NULL, &e);
	if (!t)
		die_err(&e);
	n = (size_t)b.nout;
	lp = calloc(2 * n, sizeof *lp);
	ent = lp + n;
	for (int k = 0; k < head[2]; k++, b.target += n) {
		if (train_forward(t, &b, lp, ent, &e))
			die_err(&e);
		fwrite(lp, sizeof *lp, n, stdout);
	}
	fwrite(ent, sizeof *ent, n, stdout);
	if (train_backward(t, dlp, train_model(t)->cfg.head == NN_HEAD_LM ?
			   dlp + n : NULL, &e))
		die_err(&e);
	write_gradients(t, 1);
	train_close(t);
	free(lp);
	str_release(&in);
	return fflush(stdout) ? CA_IOERR : 0;
}

/* One step on tokens that depend on the step's number only. */
static void small_step(struct train *t)
{
	const struct train_adam adam = { 1e-2, 0.9, 0.95, 1e-8, 0.1, 1 };
	int32_t ids[24], row[23];
	const int32_t first[] = { 0, 10, 24 };
	float lp[23], dlp[23];
	struct train_batch b = { ids, first, row, ids + 1, 2, 23, 1 };
	struct rng r;

	rng_seeded(&r, (uint64_t)train_steps(t));
	for (int i = 0; i < 24; i++)
		ids[i] = (int32_t)rng_below(&r, 100);
	for (int i = 0; i < 23; i++) {
		row[i] = i;
		dlp[i] = -1;
	}
	if (train_forward(t, &b, lp, NULL, &e) ||
	    train_backward(t, dlp, NULL, &e) || train_step(t, &adam, &e))
		die_err(&e);
}

static struct train *small_train(const char *dir)
{
	const struct train_opts o = { .dir = dir, .device = "cpu",
				      .tokens = 24, .seqs = 2,
				      .positions = 14 };
	struct train *t = train_open(&o, NULL, &e);

	if (!t)
		die_err(&e);
	return t;
}

static int resume(const char *dir, const char *save, const char *count)
{
	struct str state = STR_INIT;
	struct train *t;
	int fresh = access(save, F_OK);

	if (!fresh && ckpt_verify(save, &e))
		die_err(&e);
	t = small_train(fresh ? dir : save);
	if (!fresh && ckpt_load(t, save, &state, &e))
		die_err(&e);
	if (state.len)
		printf("%s\n", state.buf);
	for (int i = atoi(count); i > 0; i--)
		small_step(t);
	if (ckpt_save(t, save, dir, "{\"cursor\":[7]}", &e))
		die_err(&e);
	train_close(t);
	str_release(&state);
	return 0;
}

static struct train *open_metered(struct meter *m, const struct train_opts *o,
				  struct str *table)
{
	struct train *t;

	meter_start(m, o->device);
	t = train_open(o, table, &e);
	if (!t)
		die_err(&e);
	fprintf(stderr, "%s", table->buf);
	return t;
}

static int time_training(char **argv)
{
	int seqs = atoi(argv[3]), len = atoi(argv[4]), n = seqs * len;
	struct train_opts o = {
		.dir = argv[0], .device = argv[1], .type = type_of(argv[2]),
		.tokens = n, .seqs = seqs, .positions = len,
		.recompute = atoi(argv[5])
	};
	const struct train_adam adam = { 1e-5, 0.9, 0.95, 1e-8, 0.1, 1 };
	struct str table = STR_INIT;
	struct meter meter;
	struct train *t = open_metered(&meter, &o, &table);
	int32_t *ids = calloc(4 * (size_t)n + 1, sizeof *ids);
	int32_t *first = ids + n, *row = first + n + 1, *target = row + n;
	float *lp = calloc(2 * (size_t)n, sizeof *lp), *dlp = lp + n;
	struct train_batch b = { ids, first, row, target, seqs, 0, 1 };
	struct rng r;
	double flops, best = 1e9, norm = 0, all = 0, second = 0;

	rng_seeded(&r, 3);
	for (int i = 0; i < n; i++) {
		ids[i] = (int32_t)rng_below(&r, (uint64_t)train_model(t)->
					    cfg.vocab);
		dlp[i] = -1.0f / (float)n;
		if (i % len == len - 1)
			continue;
		row[b.nout] = i;
		target[b.nout++] = ids[(i * 7) % n];
	}
	for (int s = 0; s <= seqs; s++)
		first[s] = s * len;
	/* The first one chooses algorithms; long ones need not be many. */
	for (int i = 0; i < 6 && (i < 2 || all < 5); i++) {
		int64_t start = now_ns();
		double took, loss = 0;

		meter_mark(&meter, i == 1 ? 1 : 2);

		if (train_forward(t, &b, lp, NULL, &e) ||
		    train_backward(t, dlp, NULL, &e) ||
		    train_grad_norm(t, &norm, &e) ||
		    train_step(t, &adam, &e))
			die_err(&e);
		took = (double)(now_ns() - start) * 1e-9;
		best = took < best ? took : best;
		all += took;
		second = i == 1 ? took : second;
		for (int k = 0; k < b.nout; k++)
			loss -= (double)lp[k] / b.nout;
		printf("step %d: %.1f ms, loss %.4f, norm %.4f\n", i,
		       took * 1e3, loss, norm);
		fflush(stdout);
	}
	flops = 6.0 * (double)nn_config_params(&train_model(t)->cfg) +
		6.0 * train_model(t)->cfg.layers *
		train_model(t)->cfg.hidden * len;
	printf("%d x %d: %.0f tokens/s, MFU %.1f %%\n", seqs, len, n / best,
	       gpu_peak(train_gpu(t)) > 0 ? 100 * flops * n / best /
	       gpu_peak(train_gpu(t)) : 0.0);
	meter_memory(&meter, table.buf);
	meter_kernels(&meter, 1, second);
	train_close(t);
	meter_end(&meter);
	free(ids);
	free(lp);
	str_release(&table);
	return 0;
}

struct request {
	struct gen *g;
	struct gen_req r;
	int32_t *prompt;
};

static void *generate(void *arg)
{
	struct request *q = arg;
	struct err own = ERR_INIT;

	if (gen_run(q->g, &q->r, &own))
		die_err(&own);
	return NULL;
}

static void run_requests(struct request *q, pthread_t *thread, int n)
{
	for (int i = 0; i < n; i++)
		if (pthread_create(&thread[i], NULL, generate, &q[i]))
			die(CA_SOFTWARE, "cannot start a thread");
	for (int i = 0; i < n; i++)
		pthread_join(thread[i], NULL);
}

/* Weights are read once a step: what of the memory's bandwidth that takes. */
static void say_bandwidth(const struct gen *g, const char *device, double step)
{
	struct cu_info i;
	int k = strcmp(device, "cpu") ? cu_find(device, NULL) : -1;

	if (k >= 0 && !cu_info(k, &i, NULL))
		printf("bandwidth: %.1f %%\n", 100 *
		       2.0 * (double)nn_config_params(gen_config(g)) /
		       step / i.bytes_per_s);
}

/* That no other begins with, nor the same one in another round. */
static void fill_prompt(int32_t *prompt, int n, int which)
{
	for (int k = 0; k < n; k++)
		prompt[k] = 3 + (k < 2 ? which >> 7 * k & 127 :
				 (11 * k + 7 * which) % 250);
}

static int time_decoding(char **argv, int prompt)
{
	int n = atoi(argv[3]), len = atoi(argv[4]);
	struct engine_opts o = {
		.dir = argv[0], .device = argv[1], .type = type_of(argv[2]),
		.slots = n, .ctx = len + prompt,
		.flags = atoi(argv[5]) ? GPU_EXACT : 0
	};
	struct str table = STR_INIT;
	struct meter meter;
	struct gen *g;
	struct request *q = calloc((size_t)n, sizeof *q);
	pthread_t *thread = calloc((size_t)n, sizeof *thread);
	struct gen_stats was, now;
	double wall = 0, steps = 1;

	meter_start(&meter, o.device);
	g = gen_open(&o, &table, &e);
	if (!g)
		die_err(&e);
	fprintf(stderr, "%s", table.buf);
	for (int i = 0; i < n; i++) {
		q[i].g = g;
		q[i].prompt = calloc((size_t)prompt, sizeof *q[i].prompt);
		q[i].r = (struct gen_req){
			.prompt = q[i].prompt, .nprompt = prompt,
			.max_new = len,
			.temp = 1, .top_p = 1, .seed = (uint64_t)i,
			.ignore_eos = 1,
			.id = calloc((size_t)len, sizeof(int32_t)),
			.logprob = calloc((size_t)len, sizeof(float)) };
	}
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < n; i++)
			fill_prompt(q[i].prompt, prompt, round * n + i);
		gen_get_stats(g, &was);
		meter_mark(&meter, (uint64_t)round);
		run_requests(q, thread, n);
		meter_mark(&meter, 2);
		gen_get_stats(g, &now);
		wall = now.busy_s - was.busy_s;
		steps = (double)(now.steps - was.steps);
		printf("%d at once, %s: %.0f tokens/s\n", n,
		       round ? "warm" : "cold",
		       (double)(now.new_tokens - was.new_tokens) / wall);
		fflush(stdout);
	}
	say_bandwidth(g, o.device, wall / steps);
	meter_memory(&meter, table.buf);
	meter_kernels(&meter, steps, wall);
	gen_close(g);
	meter_end(&meter);
	str_release(&table);
	for (int i = 0; i < n; i++) {
		free(q[i].r.id);
		free(q[i].r.logprob);
		free(q[i].prompt);
	}
	free(q);
	free(thread);
	return 0;
}

/* The milliseconds in steps of one token behind n. */
static double time_prompt(struct gen *g, const int32_t *prompt, int n)
{
	struct gen_stats was, now;
	int32_t id;
	float logprob;
	struct gen_req r = {
		.prompt = prompt, .nprompt = n, .max_new = 1, .temp = 1,
		.top_p = 1, .ignore_eos = 1, .id = &id, .logprob = &logprob
	};

	gen_get_stats(g, &was);
	if (gen_run(g, &r, &e))
		die_err(&e);
	gen_get_stats(g, &now);
	return 1e3 * (now.busy_s - was.busy_s);
}

#define PROMPTS 25

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static int time_prompts(char **argv)
{
	int prefix = atoi(argv[3]), new = atoi(argv[4]);
	struct engine_opts o = {
		.dir = argv[0], .device = argv[1], .type = type_of(argv[2]),
		.slots = 4, .ctx = prefix + new + 16,
		.flags = atoi(argv[5]) ? GPU_EXACT : 0
	};
	int32_t *prompt = calloc((size_t)(prefix + new), sizeof *prompt);
	double alone[PROMPTS], behind[PROMPTS], last;
	struct meter meter;
	struct gen *g;

	meter_start(&meter, o.device);
	g = gen_open(&o, NULL, &e);
	if (!g)
		die_err(&e);
	for (int i = 0; i < prefix; i++)
		prompt[i] = (7 * i) % 200 + 3;
	time_prompt(g, prompt, prefix);
	for (int k = 0; k < PROMPTS; k++) {
		for (int i = 0; i < new; i++)
			prompt[prefix + i] = (11 * i + 13 * k) % 200 + 3;
		prompt[prefix] = k + 210;
		alone[k] = time_prompt(g, prompt + prefix, new);
		meter_mark(&meter, k + 1 == PROMPTS);
		behind[k] = time_prompt(g, prompt, prefix + new);
		meter_mark(&meter, 2);
	}
	last = behind[PROMPTS - 1];
	qsort(alone, PROMPTS, sizeof *alone, compare);
	qsort(behind, PROMPTS, sizeof *behind, compare);
	printf("%d tokens: %.3f ms alone, %.3f behind %d\n", new,
	       alone[PROMPTS / 2], behind[PROMPTS / 2], prefix);
	meter_kernels(&meter, 1, last * 1e-3);
	gen_close(g);
	meter_end(&meter);
	free(prompt);
	return 0;
}

int main(int argc, char **argv)
{
	gpu_calm_threads(argv);
	if (argc == 3 && !strcmp(argv[1], "template"))
		return template(argv[2]);
	if (argc == 4 && !strcmp(argv[1], "tok"))
		return tokens(argv[2], argv[3]);
	if ((argc == 6 || argc == 7) && !strcmp(argv[1], "step"))
		return step(argv[2], argv[3], argv[4], argv[5],
			    argc == 7 ? GPU_EXACT : 0);
	if (argc == 5 && !strcmp(argv[1], "resume"))
		return resume(argv[2], argv[3], argv[4]);
	if (argc == 8 && !strcmp(argv[1], "train"))
		return time_training(argv + 2);
	if ((argc == 8 || argc == 9) && !strcmp(argv[1], "decode"))
		return time_decoding(argv + 2, argc == 9 ? atoi(argv[8]) : 16);
	if (argc == 8 && !strcmp(argv[1], "prompt"))
		return time_prompts(argv + 2);
	die(CA_USAGE, "usage: nn tok DIR LINES | nn step DIR DEVICE DTYPE IN");
}
