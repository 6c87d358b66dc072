/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/fault.h"

#include <stdarg.h>
#include <stdio.h>

#include "rec/json.h"

int fault_set(struct fault *f, int status, const char *code,
	      const char *param, const char *fmt, ...)
{
	va_list ap;

	f->status = status;
	f->code = code;
	f->retry_s = 0;
	snprintf(f->param, sizeof f->param, "%s", param ? param : "");
	va_start(ap, fmt);
	vsnprintf(f->text, sizeof f->text, fmt, ap);
	va_end(ap);
	return -1;
}

int fault_of(struct fault *f, const struct err *e, const char *param)
{
	int bad = e->code == CA_DATAERR || e->code == CA_CONFIG ||
		  e->code == CA_NOINPUT;

	return fault_set(f, bad ? 400 : e->code == CA_UNAVAILABLE ? 503 : 500,
			 NULL, bad ? param : NULL, "%s", e->msg);
}

int fault_shutdown(struct fault *f)
{
	fault_set(f, 503, "shutting_down", NULL, "the server is shutting "
		  "down");
	f->retry_s = 5;
	return -1;
}

static const char *type_of(int status)
{
	if (status == 429)
		return "rate_limit_error";
	return status < 500 ? "invalid_request_error" : "server_error";
}

void fault_write(const struct fault *f, struct str *out)
{
	struct jw w;

	jw_init(&w, out);
	jw_obj(&w);
	jw_key(&w, "error");
	jw_obj(&w);
	jw_kstr(&w, "message", f->text);
	jw_kstr(&w, "type", type_of(f->status));
	jw_kstr(&w, "param", *f->param ? f->param : NULL);
	jw_kstr(&w, "code", f->code);
	jw_end_obj(&w);
	jw_end_obj(&w);
}
