/* SPDX-License-Identifier: Apache-2.0
 *
 * ca-torch: gets a torch host as the other tools do, says what it is and how
 * long it took; lists and stops those that are shared.
 */
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/io.h"
#include "base/opt.h"
#include "base/path.h"
#include "jail/jail.h"
#include "rec/json.h"
#include "torch/torch.h"

static int prepare, list, stop;
static double timeout = 60;
static struct common common;

static const struct opt opts[] = {
	{ OPT_FLAG, 0, "prepare", NULL, "find out and keep what torch.compile "
	  "needs to know of this machine", &prepare, 0, 0 },
	{ OPT_FLAG, 0, "list", NULL, "tell of the shared hosts that run",
	  &list, 0, 0 },
	{ OPT_FLAG, 0, "stop", NULL, "end them, when the tools that use them "
	  "have ended", &stop, 0, 0 },
	{ OPT_SECONDS, 0, "timeout", "TIME", "how long the host may take to "
	  "start (60s)", &timeout, 0, 0 },
	{ OPT_END, 0, NULL, NULL, NULL, NULL, 0, 0 }
};

static const struct tool tool = {
	"ca-torch", "", "start, list and stop PyTorch hosts", opts,
	OPTS_OUT | OPTS_PROV, 0, 0
};

struct report {
	char python[CA_PATH_MAX];
	struct jail_caps caps;
	int64_t start_ns, prepare_ns, child_ns;
};

/* A child from its fork to its first answer, confined as far as possible. */
static int time_child(struct torch_host *h, struct report *r, struct err *e)
{
	static const char req[] = "{\"op\":\"jail\"}";
	struct torch_spawn s = { .role = "calib", .device = "cpu",
				 .jail = jail_level_name(r->caps.self) };
	struct torch_child c;
	struct ca_msg m;
	int64_t begin = now_ns();
	int rc;

	if (torch_spawn(h, &s, &c, e))
		return -1;
	rc = torch_send(&c, req, strlen(req), NULL, 0, e);
	if (!rc && torch_recv(&c, &m, deadline_in(10)) != WAIT_OK)
		rc = err_set(e, CA_SOFTWARE, "a child does not answer");
	if (!rc && m.end != END_OK)
		rc = err_set(e, CA_SOFTWARE, "a child cannot enter its jail: "
			     "%.500s", m.text);
	r->child_ns = now_ns() - begin;
	if (torch_kill(h, &c, e))
		rc = -1;
	return rc;
}

static void begin(struct jw *w, struct str *line)
{
	jw_init(w, line);
	jw_obj(w);
	jw_kstr(w, "kind", "torch");
	jw_kint(w, "v", 1);
}

static int end(struct jw *w, struct str *line, struct output *out,
	       struct err *e)
{
	int rc;

	jw_end_obj(w);
	str_addc(line, '\n');
	rc = line->failed ? err_set(e, CA_SOFTWARE, "out of memory") :
	     output_write(out, line->buf, line->len, e);
	str_release(line);
	return rc;
}

static int write_report(const struct torch_host *h, const struct report *r,
			struct output *out, struct err *e)
{
	struct str line = STR_INIT;
	struct jw w;

	begin(&w, &line);
	jw_kstr(&w, "python", r->python);
	jw_kstr(&w, "torch", torch_version(h));
	jw_kbool(&w, "cuda", torch_has_cuda(h));
	jw_kstr(&w, "digest", torch_digest(h));
	jw_kstr(&w, "jail", jail_level_name(r->caps.self));
	jw_kbool(&w, "shared", torch_is_shared(h));
	if (!common.no_prov) {
		jw_key(&w, "prov");
		jw_obj(&w);
		jw_knum(&w, "start_s", (double)r->start_ns / 1e9);
		if (prepare)
			jw_knum(&w, "prepare_s", (double)r->prepare_ns / 1e9);
		jw_knum(&w, "child_s", (double)r->child_ns / 1e9);
		jw_end_obj(&w);
	}
	return end(&w, &line, out, e);
}

/* Starts a host, or finds the one that is shared. */
static int look(struct output *out, struct err *e)
{
	struct report r = { .child_ns = 0 };
	struct torch_host *h;
	int64_t began;
	int rc;

	if (path_python(r.python, e) || jail_probe(&r.caps, e))
		return -1;
	began = now_ns();
	h = torch_start(NULL, r.caps.self >= JAIL_UID, e);
	rc = h ? torch_ready(h, timeout, e) : -1;
	r.start_ns = now_ns() - began;
	began = now_ns();
	if (!rc && prepare)
		rc = torch_prepare(h, "compile", e);
	r.prepare_ns = now_ns() - began;
	if (!rc)
		rc = time_child(h, &r, e);
	if (!rc)
		rc = write_report(h, &r, out, e);
	torch_close(h);
	return rc;
}

/* What a shared host says of itself, with what varies in a member of its
 * own. */
static int told(void *ctx, const struct json *j, struct err *e)
{
	static const char *const numbers[] = { "clients", "children",
					       "parked", "served",
					       "memory_bytes" };
	struct str line = STR_INIT;
	struct jw w;

	begin(&w, &line);
	jw_kint(&w, "pid", json_get_int(j, "pid", 0));
	jw_kstr(&w, "torch", json_get_str(j, "torch", "?"));
	jw_kbool(&w, "leaving", json_get_bool(j, "leaving", 0));
	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
		jw_kint(&w, numbers[i], json_get_int(j, numbers[i], 0));
	jw_knum(&w, "idle_s", json_get_num(j, "idle_s", 0));
	jw_knum(&w, "age_s", json_get_num(j, "age_s", 0));
	return end(&w, &line, ctx, e);
}

static int run(struct err *e)
{
	struct output out;
	int rc;

	if (output_open(&out, common.out, e))
		return -1;
	if (list || stop)
		rc = torch_shared(stop ? "leave" : "status", told, &out, e);
	else
		rc = look(&out, e);
	if (output_close(&out, !rc, rc ? NULL : e))
		rc = -1;
	return rc;
}

int main(int argc, char **argv)
{
	struct err e = ERR_INIT;

	opt_parse(&tool, argc, argv, &common);
	if (list + stop + prepare > 1)
		die(CA_USAGE, "--list, --stop and --prepare exclude "
		    "each other");
	if (run(&e))
		die_err(&e);
	opt_release(&tool);
	return 0;
}
