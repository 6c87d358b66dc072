/* SPDX-License-Identifier: Apache-2.0
 *
 * ca-agent: lets a model work on tasks, and writes what it did.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "agent/pool.h"
#include "agent/show.h"
#include "base/err.h"
#include "build/device.h"
#include "cu/cu.h"
#include "judge/judge.h"
#include "judge/rules.h"
#include "net/chat.h"
#include "net/net.h"
#include "rec/stage.h"
#include "reward/reward.h"

#define GPUS_MAX 16

static struct agent_opts agent = {
	.model = "", .rules = "paper",
	.temperature = -1, .top_p = -1, .top_k = -1,
	.connect_s = 10, .first_s = 1800, .idle_s = 120, .retries = 7,
	.turns = -1, .ctx = -1, .max_tokens = 16384, .out_tokens = -1,
	.gpu_calls = -1, .judge_s = 3600, .disk = (int64_t)1 << 30
};
static struct judge_opts judge;
static struct pool_opts pool = { .agent = &agent, .k = 1 };
static struct opt_list judges, endpoints;
/* What our own judges work on. */
static char gpu_name[GPUS_MAX][16];
static const char *device_name[GPUS_MAX];
static struct opt_list devices = { device_name, 1 };
static struct reward_rules rules;
static const char *grade = "full", *export, *clock_name = "bracket";
static const char *remember;
static const char *color = "auto";
static size_t printed;
static int show, all;
static int serve;

static const struct opt options[] = {
	{ OPT_LIST, 0, "endpoint", "URL", "OpenAI-compatible server, as "
	  "http://host:8000/v1; may be repeated", &endpoints, 0, 0 },
	{ OPT_STR, 0, "model", "NAME", "the model's name there", &agent.model,
	  0, 0 },
	{ OPT_STR, 0, "model-cmd", "CMD", "a command instead: requests on its "
	  "stdin, answers on its stdout", &agent.model_cmd, 0, 0 },
	{ OPT_STR, 0, "body", "JSON", "further members of each request",
	  &agent.body, 0, 0 },
	{ OPT_NUM, 0, "temperature", "T", "of sampling", &agent.temperature,
	  0, 10 },
	{ OPT_NUM, 0, "top-p", "P", "of sampling", &agent.top_p, 0, 1 },
	{ OPT_INT, 0, "top-k", "N", "of sampling", &agent.top_k, 1, 1e6 },
	{ OPT_FLAG, 0, "token-ids", NULL, "ask for token ids and "
	  "log-probabilities", &agent.token_ids, 0, 0 },
	{ OPT_INT, 0, "retries", "N", "of a request that failed (7)",
	  &agent.retries, 0, 1000 },
	{ OPT_SECONDS, 0, "connect-timeout", "TIME", "to reach the server "
	  "(10s)", &agent.connect_s, 0, 0 },
	{ OPT_SECONDS, 0, "model-timeout", "TIME", "to its first byte (30m)",
	  &agent.first_s, 0, 0 },
	{ OPT_SECONDS, 0, "idle-timeout", "TIME", "between two pieces (2m)",
	  &agent.idle_s, 0, 0 },
	{ OPT_FLAG, 0, "single-turn", NULL, "one prompt, one answer, no tools",
	  &agent.single_turn, 0, 0 },
	{ OPT_FLAG, 0, "eval", NULL, "judge the best candidate too; 200 turns",
	  &agent.eval, 0, 0 },
	{ OPT_INT, 'k', "rollouts", "N", "of each task (1)", &pool.k, 1, 1e6 },
	{ OPT_INT, 0, "turns", "N", "at most (150)", &agent.turns, 1, 1e6 },
	{ OPT_INT, 0, "ctx", "N", "tokens of context (131072; single-turn "
	  "32768)", &agent.ctx, 256, 1e9 },
	{ OPT_INT, 0, "max-tokens", "N", "of one answer (16384)",
	  &agent.max_tokens, 1, 1e9 },
	{ OPT_INT, 0, "out-tokens", "N", "of all answers together",
	  &agent.out_tokens, 1, 1e12 },
	{ OPT_SECONDS, 0, "wall", "TIME", "of a rollout", &agent.wall_s, 0, 0 },
	{ OPT_INT, 0, "gpu-calls", "N", "tries that use the device",
	  &agent.gpu_calls, 0, 1e9 },
	{ OPT_SIZE, 0, "disk", "SIZE", "of a work directory (1G)", &agent.disk,
	  1 << 20, 1e15 },
	{ OPT_STR, 'd', "device", "DEV", "cpu, cuda or cuda:N (default: a GPU "
	  "if there is one)", &agent.device, 0, 0 },
	{ OPT_CHOICE, 0, "rules", RULES_NAMES, "that candidates are judged by "
	  "(paper)", &agent.rules, 0, 0 },
	{ OPT_LIST, 0, "judge", "CMD", "a judge: a filter of candidates; may "
	  "be repeated", &judges, 0, 0 },
	{ OPT_INT, 0, "judges", "N", "of our own at once (two for each GPU)",
	  &pool.own_judges, 1, 64 },
	{ OPT_SECONDS, 0, "judge-timeout", "TIME", "for one verdict (1h)",
	  &agent.judge_s, 0, 0 },
	{ OPT_CHOICE, 0, "grade", "full|quick", "how the outcome is timed",
	  &grade, 0, 0 },
	{ OPT_FLAG, 0, "point-estimate", NULL, "rewards go by medians, not by "
	  "lower bounds", &rules.point_estimate, 0, 0 },
	{ OPT_CHOICE, 0, "clock", "bracket|device-sum", "rewards go by the "
	  "judge's clock or by device times", &clock_name, 0, 0 },
	{ OPT_STR, 0, "trust-key", "FILE", "key that signs and checks results",
	  &judge.trust_key, 0, 0 },
	{ OPT_STR, 0, "remember", "DIR", "verdicts there; a candidate that has "
	  "one is not judged again", &remember, 0, 0 },
	{ OPT_STR, 0, "skill", "DIR", "what the model is taught",
	  &agent.skill, 0, 0 },
	{ OPT_STR, 0, "dir", "DIR", "keep logs and records there", &pool.dir,
	  0, 0 },
	{ OPT_FLAG, 0, "keep", NULL, "keep work directories too", &pool.keep,
	  0, 0 },
	{ OPT_FLAG, 0, "resume", NULL, "go on with what is in --dir",
	  &pool.resume, 0, 0 },
	{ OPT_FLAG, 0, "show", NULL, "print trajectories for people", &show,
	  0, 0 },
	{ OPT_FLAG, 0, "all", NULL, "with --show: nothing is cut", &all,
	  0, 0 },
	{ OPT_CHOICE, 0, "color", "auto|always|never", "with --show", &color,
	  0, 0 },
	{ OPT_CHOICE, 0, "export", "atif|sharegpt", "write trajectories in "
	  "another format", &export, 0, 0 },
	{ OPT_FLAG, 0, "serve-judge", NULL, "be a judge (see --judge)",
	  &serve, 0, 0 },
	{ OPT_END, 0, NULL, NULL, NULL, NULL, 0, 0 },
};

static const struct tool tool = {
	.name = "ca-agent",
	.operands = "[FILE | DIR ...]",
	.purpose = "let a model work on tasks",
	.opts = options,
	.common = OPTS_RECORDS | OPTS_JOBS | OPTS_SEED,
	.max_operands = -1,
};

/* Members that requests have anyway would be there twice. */
static void check_body(void)
{
	static const char *const own[] = {
		"model", "messages", "tools", "max_tokens", "temperature",
		"top_p", "top_k", "seed", "logprobs", "return_token_ids",
		"stream", "n"
	};
	struct err e = ERR_INIT;
	struct json *body = json_parse(agent.body, strlen(agent.body),
				       JSON_MAX_LINE, NULL, &e);
	size_t i;

	if (json_type(body) != JSON_OBJECT)
		die(CA_USAGE, "--body takes a JSON object");
	for (i = 0; i < sizeof(own) / sizeof(*own); i++)
		if (json_get(body, own[i]))
			die(CA_USAGE, "--body must not have '%s': ca-agent "
			    "sets that itself", own[i]);
	json_free(body);
}

static void check(const struct common *c)
{
	struct err e = ERR_INIT;
	size_t i;

	for (i = 0; i < endpoints.n; i++)
		if (net_check_url(endpoints.item[i], &e))
			die_err(&e);
	if (endpoints.n && agent.model_cmd)
		die(CA_USAGE, "--endpoint and --model-cmd exclude each other");
	if (!endpoints.n && !agent.model_cmd)
		die(CA_USAGE, "one of --endpoint and --model-cmd is needed");
	if (endpoints.n && !*agent.model)
		die(CA_USAGE, "--endpoint needs --model");
	if (pool.resume && !pool.dir)
		die(CA_USAGE, "--resume needs --dir");
	if (judges.n && pool.own_judges)
		die(CA_USAGE, "--judge and --judges exclude each other");
	if (judges.n && (remember || judge.trust_key))
		die(CA_USAGE, "--remember and --trust-key are for our own "
		    "judges, not for --judge");
	if (agent.single_turn && agent.eval)
		die(CA_USAGE, "--single-turn and --eval exclude each other");
	if (agent.body)
		check_body();
	agent.seeded = c->seeded;
	agent.seed = c->seed;
	agent.no_prov = c->no_prov;
	agent.key = getenv("OPENAI_API_KEY");
	if (agent.key && !*agent.key)
		agent.key = NULL;
	if (endpoints.n && agent.key && chat_check_key(agent.key, &e))
		die_err(&e);
}

static void defaults(void)
{
	struct err e = ERR_INIT;

	if (!agent.device)
		agent.device = device_default();
	if (device_check(agent.device, &e))
		die_err(&e);
	if (agent.turns < 0)
		agent.turns = agent.single_turn ? 1 : agent.eval ? 200 : 150;
	if (agent.ctx < 0)
		agent.ctx = agent.single_turn ? 32768 : 131072;
}

/* Any GPU means all of them. */
static void share_devices(void)
{
	int n = strcmp(agent.device, "cuda") ? 1 : cu_count(NULL), i;

	device_name[0] = agent.device;
	for (i = 0; i < n && n > 1 && i < GPUS_MAX; i++) {
		snprintf(gpu_name[i], sizeof(gpu_name[i]), "cuda:%d", i);
		device_name[i] = gpu_name[i];
		devices.n = (size_t)i + 1;
	}
	/* On a GPU one prepares while another one's clock runs. */
	if (!pool.own_judges)
		pool.own_judges = starts_with(agent.device, "cuda")
				  ? 2 * (int64_t)devices.n : 1;
}

/* The argv of our own judges. */
static void own_judge(const char *argv[], char self[4096],
		      const struct common *c)
{
	static char grading[64];
	ssize_t n = readlink("/proc/self/exe", self, 4095);
	size_t i = 0;

	self[n > 0 ? n : 0] = '\0';
	snprintf(grading, sizeof(grading), "%s %s %d", grade, clock_name,
		 rules.point_estimate);
	if (!judges.n)
		agent.grading = grading;
	argv[i++] = self;
	argv[i++] = "--serve-judge";
	argv[i++] = "--grade";
	argv[i++] = grade;
	argv[i++] = "--clock";
	argv[i++] = clock_name;
	if (rules.point_estimate)
		argv[i++] = "--point-estimate";
	if (judge.trust_key) {
		argv[i++] = "--trust-key";
		argv[i++] = judge.trust_key;
	}
	if (remember) {
		argv[i++] = "--remember";
		argv[i++] = remember;
	}
	if (c->no_prov)
		argv[i++] = "--no-prov";
	argv[i] = NULL;
}

/* How --show prints: folded on a terminal, which has the colours too. */
static struct show_opts showing(void)
{
	const char *no = getenv("NO_COLOR");
	int tty = isatty(STDOUT_FILENO);
	struct show_opts o = {
		.all = all,
		.color = *color == 'a' && color[1] == 'l' ? 1 :
			 *color == 'a' && tty && (!no || !*no)
	};
	struct winsize w;

	if (tty && !ioctl(STDOUT_FILENO, TIOCGWINSZ, &w))
		o.width = w.ws_col;
	return o;
}

/* One trajectory, instead of its record. */
static void print(void *ctx, const struct rec *r)
{
	const struct show_opts o = showing();
	struct str out = STR_INIT;

	(void)ctx;
	if (r->kind == REC_TRAJECTORY && show)
		show_trajectory(r->root, &o, &out);
	else if (r->kind == REC_TRAJECTORY &&
		 export_trajectory(r->root, *export == 'a' ? EXPORT_ATIF :
				   EXPORT_SHAREGPT, &out))
		warn("trajectory '%s' has no messages and is left out",
		     json_get_str(r->root, "id", "?"));
	printed += r->kind == REC_TRAJECTORY;
	if (out.len)
		fwrite(out.buf, 1, out.len, stdout);
	str_release(&out);
	if (fflush(stdout) && errno == EPIPE)
		exit(128 + SIGPIPE);
	if (ferror(stdout))
		die(CA_IOERR, "cannot write to standard output");
}

static int leave(void *ctx, struct rec *r, struct err *e)
{
	(void)ctx;
	(void)r;
	(void)e;
	return 0;
}

static int is_trajectory(void *ctx, enum rec_kind k)
{
	(void)ctx;
	return k == REC_TRAJECTORY;
}

static int translate(const struct common *c, int argc, char **argv, int first)
{
	const struct stage_ops ops = {
		.name = "ca-agent", .record = leave, .wants = is_trajectory,
		.done = print, .silent = 1
	};
	int rc;

	if (strcmp(c->out, "-"))
		die(CA_USAGE, "-o is for records");
	rc = stage_run(&ops, c, argc, argv, first);
	if (!printed && !rc)
		warn("there is no trajectory in the input");
	return rc;
}

static int run(const struct common *c, int argc, char **argv, int first)
{
	const char *own[20];
	struct err e = ERR_INIT;
	char self[4096];
	int rc;

	if (show + !!export + serve > 1)
		die(CA_USAGE, "--show, --export and --serve-judge exclude "
		    "each other");
	if (all && !show)
		die(CA_USAGE, "--all is for --show");
	if (show || export)
		return translate(c, argc, argv, first);
	judge.device = agent.device;
	if (serve) {
		judge.lease_s = agent.judge_s;
		judge.shares = 1;
		if (strcmp(clock_name, "bracket"))
			rules.clock = CLOCK_DEVICE_SUM;
		rc = judge_serve(&judge, &rules, c, *grade == 'q', remember,
				 &e);
	} else {
		check(c);
		if (!judges.n && judge_ready(&judge, remember, &e))
			die_err(&e);
		own_judge(own, self, c);
		share_devices();
		pool.judges = &judges;
		pool.endpoints = &endpoints;
		pool.own_judge = own;
		pool.devices = &devices;
		rc = pool_run(&pool, c, argc, argv, first, &e);
	}
	if (rc < 0)
		die_err(&e);
	return rc;
}

int main(int argc, char **argv)
{
	struct common c;
	int first, rc;

	judge_defaults(&judge);
	first = opt_parse(&tool, argc, argv, &c);
	defaults();
	rc = run(&c, argc, argv, first);
	opt_release(&tool);
	return rc;
}
