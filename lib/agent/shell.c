/* SPDX-License-Identifier: Apache-2.0
 *
 * Commands in the work directory.
 */
#define _GNU_SOURCE
#include "agent/shell.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/files.h"
#include "agent/room.h"
#include "agent/search.h"
#include "agent/shell_tree.h"
#include "base/child.h"
#include "base/io.h"
#include "base/sig.h"
#include "cu/lease.h"

#define SHOWN 30000		/* characters, head and tail */
#define OUTPUT_MAX ((int64_t)256 << 20)
#define RUNNING_MAX 8		/* background commands at once */
#define ENDED_MAX 32		/* whose output is still to be had */
#define KEPT_OUTPUTS 4
#define DEFAULT_MS 120000
#define BEYOND_NS 3000000000	/* where more is than can be counted */
#define BEYOND_FILE ((int64_t)1 << 20)	/* what these may write */
#define TICK_MS 200
/* Of a process; or half of what is there. */
#define MEMORY ((int64_t)32 << 30)

/* First the output, then where the command was when it ended; what eval runs
 * may use all of bash. */
static const char wrapper[] =
	"eval \"exec >&$1 2>&1 $1>&-\"; "
	"trap \"pwd -P >&$2\" EXIT; export PATH=\"$3:$PATH\"; "
	"eval \"$4\"";

/* What the helper says at the end. */
struct report {
	int rc;			/* of jail_run */
	struct child_result res;
	char text[512];
};

struct command {
	int number;
	pid_t helper;		/* 0: reaped */
	int pipe, out, cwd;	/* descriptors; -1: none */
	int64_t start, excused;
	int64_t read;		/* of the output, so far returned */
	int background, over_disk, over_output, stopped;
	struct report end;	/* valid once helper is 0 */
	struct command *next;
};

struct shells {
	struct shells_opts o;
	struct command *list;
	int count, leased, awake, frozen;
	struct room room;
	char cwd[4096];
	int kept[KEPT_OUTPUTS];	/* numbers of long outputs */
};

struct shells *shells_open(const struct shells_opts *o, struct err *e)
{
	struct shells *s = calloc(1, sizeof(*s));

	if (!s) {
		err_set(e, CA_SOFTWARE, "out of memory");
		return NULL;
	}
	s->o = *o;
	strcpy(s->cwd, PLACE_SHOWN);
	room_init(&s->room, o->place, o->disk);
	return s;
}

const char *shells_cwd(const struct shells *s)
{
	return s->cwd;
}

void shells_set_cwd(struct shells *s, const char *cwd)
{
	snprintf(s->cwd, sizeof(s->cwd), "%s", cwd);
}

int shells_count(const struct shells *s)
{
	return s->count;
}

void shells_set_count(struct shells *s, int n)
{
	s->count = n;
}

static void output_name(int number, char out[64])
{
	snprintf(out, 64, PLACE_OUTPUT "/bash_%d.txt", number);
}

/* Address space of one process. */
static int64_t memory(void)
{
	int64_t half = (int64_t)sysconf(_SC_PHYS_PAGES) / 2 *
		       sysconf(_SC_PAGESIZE);

	return half > 0 && half < MEMORY ? half : MEMORY;
}

/* Of one file. */
static int64_t file_limit(const struct shells *s)
{
	int64_t most = s->o.disk < OUTPUT_MAX ? s->o.disk : OUTPUT_MAX;

	return s->room.beyond || most < BEYOND_FILE ? BEYOND_FILE : most;
}

/* In the helper: the jail, from start to end. */
static void helper(const struct shells *s, const struct command *c,
		   const char *text, int report_fd) CA_NORETURN;
static void helper(const struct shells *s, const struct command *c,
		   const char *text, int report_fd)
{
	char out[16], cwd[16];
	const int keep[] = { c->out, c->cwd };
	const char *argv[] = { "bash", "-c", wrapper, "bash", out, cwd,
			       s->o.path, text, NULL };
	struct child_opts o = { .argv = argv, .keep = keep, .nkeep = 2 };
	struct jail_cmd j = {
		.level = JAIL_FULL, .at = s->o.at, .ro = s->o.ro,
		.dir = s->cwd, .mem_bytes = memory(),
		.file_bytes = file_limit(s)
	};
	struct report r = { .rc = -1 };
	struct err e = ERR_INIT;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(out, sizeof(out), "%d", c->out);
	snprintf(cwd, sizeof(cwd), "%d", c->cwd);
	if (!sig_forked(&e))
		r.rc = jail_run(&j, &o, &r.res, &e);
	snprintf(r.text, sizeof(r.text), "%.500s", e.msg);
	write_full(report_fd, &r, sizeof(r), NULL);
	_exit(0);
}

static void release(struct command *c)
{
	if (c->pipe >= 0)
		close(c->pipe);
	if (c->out >= 0)
		close(c->out);
	if (c->cwd >= 0)
		close(c->cwd);
	c->pipe = c->out = c->cwd = -1;
}

static int open_files(struct shells *s, struct command *c, struct err *e)
{
	char name[64];
	int old;

	output_name(c->number, name);
	/* One of a process before this one, which could have any mode. */
	unlinkat(s->o.place->fd, name, 0);
	c->out = place_file(s->o.place, name, O_RDWR | O_CREAT | O_EXCL |
			    O_APPEND | O_NOFOLLOW, 0644, e);
	if (c->out < 0)
		return -1;
	/* Not O_NONBLOCK for whoever writes. */
	old = fcntl(c->out, F_GETFL);
	fcntl(c->out, F_SETFL, old & ~O_NONBLOCK);
	c->cwd = memfd_create("cwd", MFD_CLOEXEC);
	return c->cwd >= 0 ? 0 : err_sys(e, CA_SOFTWARE,
					 "cannot make a memory file");
}

static struct command *start(struct shells *s, const char *text,
			     int background, struct err *e)
{
	struct command *c = calloc(1, sizeof(*c));
	int fd[2] = { -1, -1 };

	if (!c) {
		err_set(e, CA_SOFTWARE, "out of memory");
		return NULL;
	}
	c->number = ++s->count;
	c->background = background;
	c->pipe = c->out = c->cwd = -1;
	if (open_files(s, c, e))
		goto out;
	if (pipe2(fd, O_CLOEXEC)) {
		err_sys(e, CA_SOFTWARE, "cannot make a pipe");
		goto out;
	}
	c->start = now_ns();
	c->helper = child_fork();
	if (!c->helper)
		helper(s, c, text, fd[1]);
	close(fd[1]);
	c->pipe = fd[0];
	if (c->helper > 0) {
		c->next = s->list;
		s->list = c;
		return c;
	}
	err_sys(e, CA_SOFTWARE, "cannot fork");
out:
	release(c);
	free(c);
	return NULL;
}

/* Takes the report if it is there; 1 once the command has ended. */
static int reap(struct command *c)
{
	ssize_t n;

	if (!c->helper)
		return 1;
	if (wait_readable(c->pipe, now_ns(), NULL) != 1)
		return 0;
	n = read_full(c->pipe, &c->end, sizeof(c->end), NULL);
	if (n != sizeof(c->end)) {
		c->end.rc = -1;
		snprintf(c->end.text, sizeof(c->end.text),
			 "its supervisor was killed");
	}
	while (waitpid(c->helper, NULL, 0) < 0 && errno == EINTR)
		;
	c->helper = 0;
	close(c->pipe);
	c->pipe = -1;
	return 1;
}

/* TERM to all of it, two seconds of grace, then the helper kills the rest. */
static void end_command(struct command *c, double grace)
{
	struct timespec nap = { 0, 5000000 };
	int64_t end = deadline_in(grace), last = deadline_in(grace + 10);
	int told = 0, round;

	if (!c->helper)
		return;
	tree_signal(c->helper, SIGCONT);
	for (round = 0; !reap(c); round++) {
		/* One that has only just begun grows while it is told. */
		if (grace > 0 && round % 8 == 0 && now_ns() < end &&
		    tree_signal(c->helper, 0) > told)
			told = tree_signal(c->helper, SIGTERM);
		if (now_ns() >= last)
			kill(c->helper, SIGKILL);
		else if (now_ns() >= end && !c->stopped) {
			kill(c->helper, SIGTERM);
			c->stopped = 1;
		}
		nanosleep(&nap, NULL);
	}
}

static void drop_lease(struct shells *s)
{
	if (s->leased)
		lease_unlock(s->o.cpu);
	s->leased = 0;
}

void shells_close(struct shells *s)
{
	struct command *c, *next;

	if (!s)
		return;
	for (c = s->list; c; c = next) {
		next = c->next;
		end_command(c, 0);
		release(c);
		free(c);
	}
	drop_lease(s);
	free(s);
}

static int any_running(const struct shells *s)
{
	const struct command *c;

	for (c = s->list; c; c = c->next)
		if (c->helper)
			return 1;
	return 0;
}

static void signal_all(const struct shells *s, int signo)
{
	const struct command *c;

	for (c = s->list; c; c = c->next)
		if (c->helper)
			tree_signal(c->helper, signo);
}

/* One round of waiting for a descriptor, the idle ones and signals. */
static void wait_round(struct shells *s, int fd, int ms)
{
	struct pollfd p[66] = { { fd, POLLIN, 0 }, { sig_fd(), POLLIN, 0 } };
	size_t n = 2;

	if (s->o.idle)
		n += s->o.idle->fds(s->o.idle->ctx, p + 2, 64);
	poll(p, n, ms);
	if (s->o.idle)
		s->o.idle->ready(s->o.idle->ctx);
}

static int out_of_time(const struct shells *s)
{
	return sig_caught() || (s->o.deadline && now_ns() >= s->o.deadline);
}

/* Waits until none of its own tries is judged, and on the CPU for the lease,
 * which the judge's clock may hold for long. */
static void take_lease(struct shells *s)
{
	while (((s->o.cpu && !s->leased) || s->frozen) && !out_of_time(s)) {
		if (s->o.cpu && !s->frozen)
			s->leased = !lease_lock(s->o.cpu, "cpu", 0, 0, NULL);
		if (!s->leased)
			wait_round(s, -1, 50);
	}
}

void shells_wake(struct shells *s)
{
	s->awake = 1;
	if (!s->o.cpu || !any_running(s))
		return;
	take_lease(s);
	signal_all(s, SIGCONT);
}

void shells_rest(struct shells *s)
{
	s->awake = 0;
	if (!s->o.cpu)
		return;
	signal_all(s, SIGSTOP);
	drop_lease(s);
}

void shells_freeze(struct shells *s)
{
	if (s->frozen++)
		return;
	signal_all(s, SIGSTOP);
	drop_lease(s);
}

void shells_thaw(struct shells *s)
{
	int64_t began = now_ns();

	if (--s->frozen || !any_running(s) || (s->o.cpu && !s->awake))
		return;
	take_lease(s);
	if (s->frozen)
		return;
	signal_all(s, SIGCONT);
	shells_excuse(s, now_ns() - began);
}

void shells_excuse(struct shells *s, int64_t ns)
{
	struct command *c;

	for (c = s->list; c; c = c->next)
		c->excused += ns;
}

static int64_t output_size(const struct command *c)
{
	struct stat st;

	return fstat(c->out, &st) ? 0 : st.st_size;
}

static int64_t count_bytes(struct shells *s)
{
	const struct command *c;
	int64_t held = 0;

	for (c = s->list; c; c = c->next)
		if (c->helper)
			held += tree_unlinked(c->helper, s->room.dev);
	return room_count(&s->room, held);
}

/* Whether the tree has grown beyond its limit.  Where it cannot be counted
 * already, there is a moment to put that right. */
static int over_disk(struct shells *s, const struct command *c,
		     int64_t before)
{
	int64_t bytes;

	if (!room_due(&s->room))
		return 0;
	bytes = count_bytes(s);
	if (bytes >= PLACE_BEYOND && before >= PLACE_BEYOND)
		return now_ns() - c->start - c->excused > BEYOND_NS;
	if (before < s->o.disk || before >= PLACE_BEYOND)
		before = s->o.disk;
	return bytes > before;
}

/* There is no room left: whatever is running may be why. */
static void end_all(struct shells *s)
{
	struct command *c;

	for (c = s->list; c; c = c->next)
		if (c->helper) {
			end_command(c, 0);
			c->stopped = c->over_disk = 1;
		}
}

void shells_watch(struct shells *s)
{
	if (any_running(s) && room_due(&s->room) && count_bytes(s) > s->o.disk)
		end_all(s);
}

/* Until a foreground command has ended, one way or another; 1: in time.
 * `before`: bytes of the tree when it began. */
static int supervise(struct shells *s, struct command *c, int64_t limit_ms,
		     int64_t before)
{
	while (!reap(c)) {
		int64_t end = c->start + c->excused + limit_ms * 1000000;
		int ms = deadline_ms(end);

		if (!s->frozen && !ms)
			return 0;
		if (out_of_time(s))
			return 0;
		c->over_output = output_size(c) > OUTPUT_MAX;
		c->over_disk = over_disk(s, c, before);
		if (c->over_output || c->over_disk)
			return 1;
		wait_round(s, c->pipe, ms && ms < TICK_MS ? ms : TICK_MS);
	}
	return 1;
}

/* Appends bytes [from, to) of the output. */
static void add_range(const struct command *c, int64_t from, int64_t to,
		      struct str *out)
{
	char *buf = malloc((size_t)(to - from) + 1);
	ssize_t n = buf ? pread(c->out, buf, (size_t)(to - from), from) : -1;

	if (n > 0)
		text_add(out, buf, text_cut(buf, (size_t)n));
	free(buf);
}

/* Long outputs are kept as files, the last few of them. */
static void keep_output(struct shells *s, int number)
{
	char name[64];
	int i;

	if (s->kept[0]) {
		output_name(s->kept[0], name);
		unlinkat(s->o.place->fd, name, 0);
	}
	for (i = 0; i + 1 < KEPT_OUTPUTS; i++)
		s->kept[i] = s->kept[i + 1];
	s->kept[i] = number;
}

static void add_output(struct shells *s, const struct command *c,
		       struct str *out)
{
	int64_t size = output_size(c), from = c->read;
	char name[64];

	output_name(c->number, name);
	if (size - from <= SHOWN) {
		if (size > from)
			add_range(c, from, size, out);
		if (!c->background)
			unlinkat(s->o.place->fd, name, 0);
		return;
	}
	add_range(c, from, from + SHOWN / 2, out);
	str_addf(out, "\n[%lld bytes left out; all of it is in " PLACE_SHOWN
		 "/%s]\n", (long long)(size - from - SHOWN / 2 * 2), name);
	/* Not the rest of a character. */
	from = size - SHOWN / 2;
	add_range(c, from, size, out);
	if (!c->background)
		keep_output(s, c->number);
}

static void end_with_line(struct str *out)
{
	if (out->len && out->buf[out->len - 1] != '\n')
		str_addc(out, '\n');
}

/* "[exit code 2]", in words where it was not the command's own doing. */
static int add_status(const struct shells *s, const struct command *c,
		      int in_time, int64_t limit_ms, struct str *out)
{
	const struct child_result *r = &c->end.res;

	if (!in_time || c->over_disk || c->over_output || c->end.rc)
		end_with_line(out);
	if (!in_time && out_of_time(s))
		str_adds(out, "[killed: the rollout is out of time]");
	else if (!in_time)
		str_addf(out, "[killed after %.3g s with all that it started; "
			 "exit code 124]", (double)limit_ms / 1000);
	else if (c->over_output)
		str_adds(out, "[killed: more than 256 MiB of output]");
	else if (c->over_disk)
		room_text(&s->room, "killed: ", out);
	else if (c->end.rc)
		str_addf(out, "[could not be run: %s]", c->end.text);
	else if (r->how == CHILD_EXITED && !r->code)
		return 1;
	else {
		end_with_line(out);
		str_addf(out, "[exit code %d]", r->how == CHILD_EXITED ?
			 r->code : 128 + r->code);
	}
	return 0;
}

/* Takes over where the command ended, if that is a directory of the tree. */
static void follow_cwd(struct shells *s, const struct command *c)
{
	char text[4200];
	struct err e = ERR_INIT;
	ssize_t n = pread(c->cwd, text, sizeof(text) - 1, 0);
	const char *name;
	int fd;

	if (n <= 1 || text[n - 1] != '\n')
		return;
	text[n - 1] = '\0';
	if (strchr(text, '\n') || text[0] != '/')
		return;
	name = place_below(text, &e);
	fd = name ? place_file(s->o.place, name, O_PATH | O_DIRECTORY, 0, &e) :
		    -1;
	if (fd < 0)
		return;
	close(fd);
	shells_set_cwd(s, text);
}

static void check_cwd(struct shells *s, struct str *out)
{
	const char *name = place_below(s->cwd, NULL);
	int fd = name ? place_file(s->o.place, name, O_PATH | O_DIRECTORY, 0,
				   NULL) : -1;

	if (fd >= 0) {
		close(fd);
		return;
	}
	str_addf(out, "[%s is gone; back in " PLACE_SHOWN "]\n", s->cwd);
	strcpy(s->cwd, PLACE_SHOWN);
}

static void forget(struct shells *s, struct command *c)
{
	struct command **p = &s->list;

	while (*p != c)
		p = &(*p)->next;
	*p = c->next;
	release(c);
	free(c);
}

/* How many run; of those that have ended the oldest are forgotten. */
static int count_running(struct shells *s)
{
	struct command *c, *next;
	int running = 0, ended = 0;

	for (c = s->list; c; c = next) {
		next = c->next;
		if (c->helper && !reap(c))
			running++;
		else if (++ended > ENDED_MAX)
			forget(s, c);
	}
	return running;
}

static int run_background(struct shells *s, const char *text, struct str *out)
{
	struct err e = ERR_INIT;
	struct command *c;
	int n = count_running(s);

	c = n < RUNNING_MAX ? start(s, text, 1, &e) : NULL;
	if (n == RUNNING_MAX)
		err_set(&e, CA_DATAERR, "%d commands are running in the "
			"background already", n);
	if (!c) {
		str_addf(out, "Error: %s", e.msg);
		return 0;
	}
	str_addf(out, "Running in the background as bash_%d", c->number);
	return 1;
}

/* What a command has left behind when it ends. */
static int add_left(struct shells *s, const struct command *c,
		    struct str *out)
{
	if (count_bytes(s) <= s->o.disk)
		return 0;
	end_all(s);
	if (!c->over_disk) {
		end_with_line(out);
		room_text(&s->room, "", out);
	}
	return 1;
}

int shells_bash(struct shells *s, const struct json *args, struct str *out)
{
	const char *text = json_get_str(args, "command", "");
	int64_t limit = json_get_int(args, "timeout", DEFAULT_MS);
	struct err e = ERR_INIT;
	struct command *c;
	int in_time, ok;

	if (!room_begin(&s->room, count_bytes(s))) {
		str_addf(out, "Error: the work directory holds more than %lld "
			 "MiB, or more than can be counted; commands did not "
			 "change that, and no command runs any more",
			 (long long)(s->o.disk >> 20));
		return 0;
	}
	check_cwd(s, out);
	take_lease(s);
	if (json_get_bool(args, "run_in_background", 0))
		return run_background(s, text, out);
	c = start(s, text, 0, &e);
	if (!c) {
		str_addf(out, "Error: %s", e.msg);
		return 0;
	}
	in_time = supervise(s, c, limit, s->room.before);
	if (c->over_disk)
		end_all(s);
	end_command(c, 0);
	if (in_time && !c->end.rc)
		follow_cwd(s, c);
	add_output(s, c, out);
	ok = add_status(s, c, in_time, limit, out);
	if (add_left(s, c, out))
		ok = 0;
	if (!out->len)
		str_adds(out, "(no output)");
	forget(s, c);
	return ok;
}

static struct command *find(struct shells *s, const char *id,
			    struct str *out)
{
	int number = starts_with(id, "bash_") ? atoi(id + 5) : 0;
	struct command *c;

	for (c = s->list; c; c = c->next)
		if (c->background && c->number == number)
			return c;
	if (number > 0 && number <= s->count)
		str_addf(out, "Error: '%.40s' has ended and its output is "
			 "gone", id);
	else
		str_addf(out, "Error: there is no background command '%.40s'",
			 id);
	return NULL;
}

static void add_state(const struct shells *s, const struct command *c,
		      struct str *out)
{
	const struct child_result *r = &c->end.res;

	end_with_line(out);
	if (c->helper)
		str_adds(out, "[running]");
	else if (c->end.rc)
		str_addf(out, "[failed: %s]", c->end.text);
	else if (c->over_disk)
		room_text(&s->room, "killed: ", out);
	else if (r->how == CHILD_INTERRUPTED || c->stopped)
		str_adds(out, "[killed]");
	else
		str_addf(out, "[ended: exit code %d]", r->how == CHILD_EXITED ?
			 r->code : 128 + r->code);
}

int shells_output(struct shells *s, const struct json *args, struct str *out)
{
	const char *filter = json_get_str(args, "filter", NULL);
	struct command *c = find(s, json_get_str(args, "bash_id", ""), out);
	struct str text = STR_INIT;
	struct err e = ERR_INIT;
	int rc = 0;

	if (!c)
		return 0;
	reap(c);
	if (c->helper && output_size(c) > OUTPUT_MAX)
		end_command(c, 0);
	add_output(s, c, filter ? &text : out);
	if (filter)
		rc = search_filter(filter, text.buf ? text.buf : "", text.len,
				   out, &e);
	str_release(&text);
	if (rc) {
		str_addf(out, "Error: %s", e.msg);
		return 0;
	}
	c->read = output_size(c);
	if (!out->len)
		str_adds(out, "(no new output)\n");
	add_state(s, c, out);
	return 1;
}

int shells_kill(struct shells *s, const struct json *args, struct str *out)
{
	struct command *c = find(s, json_get_str(args, "shell_id", ""), out);

	if (!c)
		return 0;
	if (reap(c)) {
		str_adds(out, "It had ended already. ");
	} else {
		end_command(c, 2);
		c->stopped = 1;
		str_adds(out, "Killed. ");
	}
	add_state(s, c, out);
	return 1;
}
