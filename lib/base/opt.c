/* SPDX-License-Identifier: Apache-2.0
 *
 * The option table, turned into argp's.  Of argp only its parser and its help
 * text are used; usage errors are worded here.
 */
#define _GNU_SOURCE
#include "base/opt.h"

#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"

#define ROWS_MAX 80
#define KEY_FIRST 0x200		/* rows without a letter */

/* Rows of the shared block, by their own destinations. */
struct shared {
	int help, version, prov;
	const char *completion, *seed;
	struct opt rows[12];
	size_t n;
};

/* State of one parse. */
struct parse {
	const struct tool *tool;
	const struct opt *row[ROWS_MAX];
	struct argp_option arg[ROWS_MAX + 1];
	size_t n;
};

static void add_row(struct shared *s, struct opt o)
{
	s->rows[s->n++] = o;
}

static void shared_rows(struct shared *s, const struct tool *t,
			struct common *c)
{
	unsigned on = t->common;

	if (on & OPTS_OUT)
		add_row(s, (struct opt){ OPT_STR, 'o', "output", "FILE",
			"write to FILE, whole or not at all", &c->out, 0, 0 });
	if (on & OPTS_JOBS)
		add_row(s, (struct opt){ OPT_INT, 'j', "jobs", "N",
			"work on N records at once", &c->jobs, 1, 1024 });
	if (on & OPTS_LIMIT)
		add_row(s, (struct opt){ OPT_INT, 'n', "limit", "N",
			"read at most N records", &c->limit, 0, 0x1p53 });
	if (on & OPTS_SEED)
		add_row(s, (struct opt){ OPT_STR, 0, "seed", "N",
			"draw everything random from N", &s->seed, 0, 0 });
	if (on & OPTS_PROV)
		add_row(s, (struct opt){ OPT_FLAG, 0, "no-prov", NULL,
			"leave out what varies from run to run", &s->prov,
			0, 0 });
	add_row(s, (struct opt){ OPT_FLAG, 'v', "verbose", NULL,
		"say more, and totals at the end", &c->verbose, 0, 0 });
	add_row(s, (struct opt){ OPT_FLAG, 'q', "quiet", NULL,
		"no warnings", &c->quiet, 0, 0 });
	add_row(s, (struct opt){ OPT_FLAG, 'h', "help", NULL,
		"print this and exit", &s->help, 0, 0 });
	add_row(s, (struct opt){ OPT_FLAG, 0, "version", NULL,
		"print the version and exit", &s->version, 0, 0 });
	add_row(s, (struct opt){ OPT_CHOICE, 0, "completion", "bash",
		"print a completion script and exit", &s->completion, 0, 0 });
}

static void usage_error(const struct tool *t) CA_NORETURN;
static void usage_error(const struct tool *t)
{
	fprintf(stderr, "try '%s --help'\n", t->name);
	exit(CA_USAGE);
}

static void bad_value(const struct tool *t, const struct opt *o,
		      const char *text, const char *want) CA_NORETURN;
static void bad_value(const struct tool *t, const struct opt *o,
		      const char *text, const char *want)
{
	struct err e = ERR_INIT;

	err_set(&e, CA_USAGE, "option '--%s' takes %s, not '%s'", o->name, want,
		text);
	fprintf(stderr, "%s: %s\n", t->name, e.msg);
	usage_error(t);
}

static void check_range(const struct tool *t, const struct opt *o,
			const char *text, double v)
{
	char want[80];

	if (o->lo >= o->hi || (v >= o->lo && v <= o->hi))
		return;
	/* Such a limit is only that of the number's type. */
	if (o->hi >= 0x1p53 - 1)
		snprintf(want, sizeof want, "%.15g or more", o->lo);
	else
		snprintf(want, sizeof want, "%.15g to %.15g", o->lo, o->hi);
	bad_value(t, o, text, want);
}

static void set_int(const struct tool *t, const struct opt *o,
		    const char *text)
{
	char *end;
	long long v;

	errno = 0;
	v = strtoll(text, &end, 10);
	if (end == text || *end || *text == ' ')
		bad_value(t, o, text, "an integer");
	if (errno) {
		check_range(t, o, text, (double)v);
		bad_value(t, o, text, "an integer below 2^63");
	}
	check_range(t, o, text, (double)v);
	*(int64_t *)o->dest = v;
}

/* A finite number; *end is where it stops. */
static double number(const struct tool *t, const struct opt *o,
		     const char *text, const char *want, char **end)
{
	double v;

	errno = 0;
	v = strtod(text, end);
	if (errno || *end == text || *text == ' ' || !isfinite(v))
		bad_value(t, o, text, want);
	return v;
}

static void set_num(const struct tool *t, const struct opt *o,
		    const char *text)
{
	char *end;
	double v = number(t, o, text, "a number", &end);

	if (*end)
		bad_value(t, o, text, "a number");
	check_range(t, o, text, v);
	*(double *)o->dest = v;
}

static void set_seconds(const struct tool *t, const struct opt *o,
			const char *text)
{
	static const char want[] = "a time such as 90, 30s, 5m or 1h";
	char *end;
	double v = number(t, o, text, want, &end);

	if (*end == 'm')
		v *= 60;
	else if (*end == 'h')
		v *= 3600;
	if (*end && (!strchr("smh", *end) || end[1]))
		bad_value(t, o, text, want);
	if (!(v > 0))
		bad_value(t, o, text, want);
	check_range(t, o, text, v);
	*(double *)o->dest = v;
}

static void set_size(const struct tool *t, const struct opt *o,
		     const char *text)
{
	static const char want[] = "a size such as 4096, 64K, 16M or 2G";
	char *end;
	double v = number(t, o, text, want, &end);

	if (*end == 'K')
		v *= 1024;
	else if (*end == 'M')
		v *= 1048576;
	else if (*end == 'G')
		v *= 1073741824;
	if (*end && (!strchr("KMG", *end) || end[1]))
		bad_value(t, o, text, want);
	if (v < 0 || v > 0x1p60)
		bad_value(t, o, text, want);
	check_range(t, o, text, v);
	*(int64_t *)o->dest = (int64_t)v;
}

static void set_choice(const struct tool *t, const struct opt *o,
		       const char *text)
{
	const char *c = o->arg;
	size_t len = strlen(text);
	char want[256];

	while (c && *c) {
		size_t n = strcspn(c, "|");

		if (n == len && memcmp(c, text, n) == 0) {
			*(const char **)o->dest = text;
			return;
		}
		c += n + (c[n] == '|');
	}
	snprintf(want, sizeof want, "one of %s", o->arg);
	bad_value(t, o, text, want);
}

static void add_item(struct opt_list *l, const char *text)
{
	const char **item = realloc(l->item, (l->n + 1) * sizeof *item);

	if (!item)
		die(CA_SOFTWARE, "no memory");
	item[l->n++] = text;
	l->item = item;
}

static void set_row(const struct tool *t, const struct opt *o,
		    const char *text)
{
	switch (o->type) {
	case OPT_FLAG:
		*(int *)o->dest = 1;
		break;
	case OPT_STR:
		*(const char **)o->dest = text;
		break;
	case OPT_INT:
		set_int(t, o, text);
		break;
	case OPT_NUM:
		set_num(t, o, text);
		break;
	case OPT_SECONDS:
		set_seconds(t, o, text);
		break;
	case OPT_SIZE:
		set_size(t, o, text);
		break;
	case OPT_CHOICE:
		set_choice(t, o, text);
		break;
	case OPT_LIST:
		add_item(o->dest, text);
		break;
	case OPT_END:
		break;
	}
}

static error_t on_key(int key, char *arg, struct argp_state *state)
{
	struct parse *p = state->input;
	size_t i;

	if (key == ARGP_KEY_INIT) {
		/* argp then neither prints its "Try ..." nor exits. */
		state->err_stream = NULL;
		return 0;
	}
	for (i = 0; i < p->n; i++) {
		if (p->arg[i].key != key)
			continue;
		set_row(p->tool, p->row[i], arg);
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

static void add_arg(struct parse *p, const struct opt *o)
{
	struct argp_option *a = &p->arg[p->n];

	if (p->n == ROWS_MAX)
		die(CA_SOFTWARE, "too many options");
	p->row[p->n] = o;
	a->name = o->name;
	a->key = o->letter ? o->letter : KEY_FIRST + (int)p->n;
	a->arg = o->type == OPT_FLAG ? NULL : o->arg;
	a->doc = o->help;
	a->group = 1;
	p->n++;
}

static void print_completion(const struct parse *p)
{
	size_t i;

	printf("complete -o default -W '");
	for (i = 0; i < p->n; i++)
		printf("%s--%s", i ? " " : "", p->row[i]->name);
	printf("' %s\n", p->tool->name);
}

/* A closed standard descriptor would be taken by the next file that is
 * opened.  What replaces it cannot be read or written, so that using it still
 * fails as it should. */
static void fill_standard(void)
{
	static const int mode[] = { O_WRONLY, O_RDONLY, O_RDWR };
	int fd;

	for (fd = 0; fd < 3; fd++)
		if (fcntl(fd, F_GETFD) < 0 && errno == EBADF &&
		    open("/dev/null", mode[fd]) != fd)
			_exit(CA_SOFTWARE);
}

/* Prints and leaves; a failed write is an I/O error like any other. */
static void leave(void) CA_NORETURN;
static void leave(void)
{
	if (fflush(stdout) || ferror(stdout))
		die(CA_IOERR, "cannot write 'stdout'");
	exit(CA_OK);
}

static void print_help(const struct argp *a, const struct tool *t)
{
	setenv("ARGP_HELP_FMT", "no-dup-args-note", 0);
	argp_help(a, stdout, ARGP_HELP_SHORT_USAGE | ARGP_HELP_PRE_DOC |
		  ARGP_HELP_LONG, (char *)t->name);
}

static void parse_seed(const struct tool *t, struct shared *s,
		       struct common *c)
{
	static const struct opt row = { OPT_STR, 0, "seed", "N", "", NULL,
					0, 0 };
	char *end;

	if (!s->seed)
		return;
	errno = 0;
	c->seed = strtoull(s->seed, &end, 10);
	if (errno || end == s->seed || *end || *s->seed < '0' ||
	    *s->seed > '9')
		bad_value(t, &row, s->seed, "an integer from 0 to 2^64 - 1");
	c->seeded = 1;
}

static void check_operands(const struct tool *t, int n)
{
	if (n < t->min_operands) {
		fprintf(stderr, "%s: operand missing\n", t->name);
		usage_error(t);
	}
	if (t->max_operands >= 0 && n > t->max_operands) {
		fprintf(stderr, "%s: too many operands\n", t->name);
		usage_error(t);
	}
}

static void collect(struct parse *p, const struct shared *s)
{
	const struct opt *o;
	size_t i;

	for (o = p->tool->opts; o && o->type != OPT_END; o++)
		add_arg(p, o);
	for (i = 0; i < s->n; i++)
		add_arg(p, &s->rows[i]);
}

int opt_parse(const struct tool *t, int argc, char **argv, struct common *c)
{
	struct shared s = { 0 };
	struct parse p = { 0 };
	struct argp a = { p.arg, on_key, t->operands, t->purpose, NULL, NULL,
			  NULL };
	unsigned flags = ARGP_NO_HELP | ARGP_NO_EXIT;
	int first = argc;

	fill_standard();
	signal(SIGPIPE, SIG_DFL);
	memset(c, 0, sizeof *c);
	c->out = "-";
	c->limit = -1;
	p.tool = t;
	shared_rows(&s, t, c);
	collect(&p, &s);
	if (argc > 0)	/* messages of getopt name the program by it */
		argv[0] = program_invocation_name =
			program_invocation_short_name = (char *)t->name;
	if (t->common & OPTS_COMMAND)
		flags |= ARGP_IN_ORDER;
	if (argp_parse(&a, argc, argv, flags, &first, &p))
		usage_error(t);
	if (s.help)
		print_help(&a, t);
	else if (s.version)
		printf("%s %s\n", t->name, ca_version);
	else if (s.completion)
		print_completion(&p);
	if (s.help || s.version || s.completion)
		leave();
	parse_seed(t, &s, c);
	c->no_prov = s.prov;
	warn_quiet(c->quiet);
	mention_wanted(c->verbose);
	check_operands(t, argc - first);
	return first;
}

void opt_release(const struct tool *t)
{
	const struct opt *o;

	for (o = t->opts; o && o->type != OPT_END; o++) {
		struct opt_list *l = o->dest;

		if (o->type != OPT_LIST)
			continue;
		free(l->item);
		l->item = NULL;
		l->n = 0;
	}
}
