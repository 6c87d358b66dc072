/* SPDX-License-Identifier: Apache-2.0
 *
 * ca-serve: what does the model say?
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/path.h"
#include "build/device.h"
#include "nn/complete.h"
#include "rec/stage.h"
#include "serve/serve.h"

static struct complete_opts opts = { .temperature = 1, .top_p = 1 };
static struct serve_opts server = {
	.core = { .queue = 256, .timeout_s = 3600 },
	.http = { .host = "127.0.0.1", .port = 8000, .body = JSON_MAX_LINE,
		  .patience_s = 60, .connections = 4096 },
	.drain_s = 30,
};
static const char *type = "auto", *key_file;
static int64_t ctx, cache, port = 8000, queue = 256, connections = 4096;
static int64_t gpus, replicas;
static int generate, exact;
static struct complete *complete;
static char name[256], key[4096];

static int record(void *ctx_, struct rec *r, struct err *e)
{
	(void)ctx_;
	return complete_record(complete, r, e);
}

static int wants(void *ctx_, enum rec_kind k)
{
	(void)ctx_;
	return k == REC_PROMPT;
}

static const struct opt options[] = {
	{ OPT_FLAG, 0, "generate", NULL,
	  "complete the prompts that are read, serve nothing", &generate,
	  0, 0 },
	{ OPT_STR, 'm', "model", "DIR",
	  "Hugging Face folder with the model", &server.engine.dir, 0, 0 },
	{ OPT_STR, 0, "device", "NAME", "cpu, cuda or cuda:N; the GPU",
	  &server.engine.device, 0, 0 },
	{ OPT_INT, 0, "gpus", "N", "a replica on each of the first N GPUs",
	  &gpus, 1, CORE_GENS },
	{ OPT_INT, 0, "replicas", "N",
	  "of the model; with --device cuda each has a GPU", &replicas,
	  1, CORE_GENS },
	{ OPT_CHOICE, 0, "dtype", "auto|fp32|bf16",
	  "type of the weights; auto: the file's", &type, 0, 0 },
	{ OPT_FLAG, 0, "exact", NULL,
	  "log-probabilities as a training step has them, bit for bit",
	  &exact, 0, 0 },
	{ OPT_INT, 0, "ctx", "N", "longest sequence in tokens", &ctx,
	  1, 0x1p24 },
	{ OPT_INT, 0, "cache", "N", "tokens of keys and values kept", &cache,
	  1, 0x1p30 },
	{ OPT_INT, 0, "max-tokens", "N", "new tokens at most",
	  &opts.max_tokens, 0, 0x1p24 },
	{ OPT_NUM, 0, "temperature", "T", "0: the likeliest token",
	  &opts.temperature, 0, 100 },
	{ OPT_NUM, 0, "top-p", "P", "draw from the likeliest that make up P",
	  &opts.top_p, 1e-6, 1 },
	{ OPT_INT, 0, "top-k", "K", "draw from the K likeliest; 0: all",
	  &opts.top_k, 0, 1e9 },
	{ OPT_NUM, 0, "min-p", "P",
	  "draw from words with P of the likeliest one's probability",
	  &opts.min_p, 0, 1 },
	{ OPT_STR, 0, "host", "ADDRESS", "listen here; 127.0.0.1",
	  &server.http.host, 0, 0 },
	{ OPT_INT, 0, "port", "N", "listen here; 8000; 0: any free one",
	  &port, 0, 65535 },
	{ OPT_STR, 0, "key-file", "FILE", "file with the API key to ask for",
	  &key_file, 0, 0 },
	{ OPT_STR, 0, "name", "NAME", "the model's name for clients",
	  &server.core.name, 0, 0 },
	{ OPT_INT, 0, "queue", "N", "completions that may wait; 256", &queue,
	  0, 0x1p20 },
	{ OPT_INT, 0, "connections", "N", "clients at once; 4096",
	  &connections, 1, 0x1p17 },
	{ OPT_SIZE, 0, "max-body", "SIZE", "largest request; 16M",
	  &server.http.body, 1, JSON_MAX_LINE },
	{ OPT_SECONDS, 0, "timeout", "TIME", "for one request; 1h",
	  &server.core.timeout_s, 0, 0 },
	{ OPT_SECONDS, 0, "patience", "TIME",
	  "with clients that send or read nothing; 60s",
	  &server.http.patience_s, 0, 0 },
	{ OPT_SECONDS, 0, "drain", "TIME",
	  "for what runs when a signal ends the server; 30s",
	  &server.drain_s, 0, 0 },
	{ OPT_END, 0, NULL, NULL, NULL, NULL, 0, 0 },
};

static const struct tool tool = {
	.name = "ca-serve",
	.operands = "[FILE ...]",
	.purpose = "serve a language model, or complete prompts",
	.opts = options,
	.common = OPTS_RECORDS | OPTS_JOBS | OPTS_SEED,
	.max_operands = -1,
};

/* How many there are, and of what. */
static void set_replicas(struct engine_opts *o)
{
	if (gpus && (replicas || (o->device && strcmp(o->device, "cuda"))))
		die(CA_USAGE, "--gpus takes the GPUs from 0 on: no "
		    "--replicas, and no --device but cuda");
	if (gpus)
		o->device = "cuda";
	server.replicas = (int)(gpus ? gpus : replicas ? replicas : 1);
	if (server.replicas > 1 && o->device && strchr(o->device, ':'))
		die(CA_USAGE, "replicas take the GPUs from 0 on: no '%s'",
		    o->device);
	if (server.replicas > 1 && generate)
		die(CA_USAGE, "--gpus and --replicas are for serving");
}

static void set_options(struct common *c)
{
	struct engine_opts *o = &server.engine;
	struct err e = ERR_INIT;

	if (!o->dir)
		die(CA_USAGE, "--model DIR is needed");
	set_replicas(o);
	if (!o->device)
		o->device = device_default();
	o->slots = (int)(c->jobs ? c->jobs : strcmp(o->device, "cpu") ? 256 :
			 8);
	o->ctx = (int)ctx;
	o->cache = cache;
	o->flags = exact ? GPU_EXACT : 0;
	if (engine_type(o, type, &e))
		die_err(&e);
	opts.seeded = c->seeded;
	opts.seed = c->seed;
	opts.no_prov = c->no_prov;
	opts.interrupted = stage_interrupted;
}

static void say_totals(struct complete *c)
{
	struct gen_stats s;

	complete_stats(c, &s);
	warn("%llu tokens of prompts (%llu shared), %llu new in %.2f s: "
	     "%.1f a second", (unsigned long long)s.prompt_tokens,
	     (unsigned long long)s.shared_tokens,
	     (unsigned long long)s.new_tokens, s.busy_s,
	     s.busy_s > 0 ? (double)s.new_tokens / s.busy_s : 0.0);
}

static void say_table(struct str *table)
{
	if (table->buf)
		fputs(table->buf, stderr);
	str_release(table);
}

static int run_generate(struct common *c, int argc, char **argv, int first)
{
	const struct stage_ops ops = {
		.name = "ca-serve", .record = record, .wants = wants,
	};
	struct str table = STR_INIT;
	struct err e = ERR_INIT;
	int rc;

	complete = complete_open(&server.engine, &opts,
				 c->verbose ? &table : NULL, &e);
	say_table(&table);
	if (!complete)
		die_err(&e);
	rc = stage_run(&ops, c, argc, argv, first);
	if (c->verbose)
		say_totals(complete);
	complete_close(complete);
	return rc;
}

/* The last part of the folder's path. */
static const char *name_of(const char *dir)
{
	char path[CA_PATH_MAX];
	const char *slash;

	if (!realpath(dir, path))
		return "model";
	slash = strrchr(path, '/');
	snprintf(name, sizeof name, "%s", slash && slash[1] ? slash + 1 :
		 "model");
	return name;
}

static const char *read_key(const char *path)
{
	struct str s = STR_INIT;
	struct err e = ERR_INIT;

	if (read_file(path, sizeof key - 1, &s, &e))
		die_err(&e);
	while (s.len && strchr(" \t\r\n", s.buf[s.len - 1]))
		s.buf[--s.len] = '\0';
	if (!s.len || strpbrk(s.buf, "\r\n"))
		die(CA_CONFIG, "'%s' holds no key on one line", path);
	memcpy(key, s.buf, s.len + 1);
	str_release(&s);
	return key;
}

static int say_ready(void *ctx_, int at, struct err *e)
{
	int six = strchr(server.http.host, ':') != NULL;

	say_table(ctx_);
	printf("http://%s%s%s:%d/v1\n", six ? "[" : "", server.http.host,
	       six ? "]" : "", at);
	return fflush(stdout) ? err_sys(e, CA_IOERR, "cannot write") : 0;
}

static int run_server(struct common *c)
{
	struct str table = STR_INIT;
	struct err e = ERR_INIT;
	int rc;

	if (!server.core.name)
		server.core.name = name_of(server.engine.dir);
	if (opts.temperature > 0 && opts.temperature < (double)GEN_COOLEST)
		die(CA_USAGE, "--temperature is 0, or at least %g",
		    (double)GEN_COOLEST);
	if (key_file)
		server.http.key = read_key(key_file);
	server.http.port = (int)port;
	server.http.connections = (int)connections;
	server.core.queue = (int)queue;
	server.core.defaults = (struct want_defaults){
		.temperature = opts.temperature, .top_p = opts.top_p,
		.min_p = opts.min_p, .top_k = opts.top_k,
		.max_tokens = opts.max_tokens };
	server.quiet = c->quiet;
	server.ready = say_ready;
	server.ctx = &table;
	rc = serve_run(&server, c->verbose ? &table : NULL, &e);
	say_table(&table);
	if (rc)
		die_err(&e);
	return 0;
}

int main(int argc, char **argv)
{
	struct common c;
	int first, rc;

	gpu_calm_threads(argv);
	first = opt_parse(&tool, argc, argv, &c);
	set_options(&c);
	if (!generate && (first < argc || c.limit >= 0 || c.no_prov ||
			  c.seeded || strcmp(c.out, "-")))
		die(CA_USAGE, "files, -n, -o, --seed and --no-prov are for "
		    "--generate");
	rc = generate ? run_generate(&c, argc, argv, first) : run_server(&c);
	opt_release(&tool);
	return rc;
}
