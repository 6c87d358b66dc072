/* SPDX-License-Identifier: Apache-2.0
 *
 * Error reports: formatted once, escaped, always NUL-terminated.
 */
#include "base/err.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MSG_MAX sizeof ((struct err *)0)->msg

void err_clear(struct err *e)
{
	if (!e)
		return;
	e->code = 0;
	e->msg[0] = '\0';
}

/* C0 controls and DEL; C1 controls come as two bytes, 0xc2 and this one. */
static int is_control(unsigned char prev, unsigned char c)
{
	return c < 0x20 || c == 0x7f || (prev == 0xc2 && c >= 0x80 && c < 0xa0);
}

/* Copies text into e->msg, controls as \xNN; "..." where it does not fit. */
static void put_escaped(struct err *e, const char *text)
{
	unsigned char prev = 0;
	size_t n = 0;

	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;
		size_t need = is_control(prev, c) ? 4 : 1;

		if (n + need > MSG_MAX - 4) {
			memcpy(e->msg + n, "...", 3);
			n += 3;
			break;
		}
		if (need == 4)
			snprintf(e->msg + n, 5, "\\x%02x", c);
		else
			e->msg[n] = (char)c;
		n += need;
		prev = c;
	}
	e->msg[n] = '\0';
}

int err_set(struct err *e, int code, const char *fmt, ...)
{
	char text[MSG_MAX];
	va_list ap;

	if (!e)
		return -1;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	e->code = code;
	put_escaped(e, text);
	return -1;
}

int err_sys(struct err *e, int code, const char *fmt, ...)
{
	int error = errno;
	char text[MSG_MAX + 128], why[128] = "";
	size_t n;
	va_list ap;

	if (!e)
		return -1;
	va_start(ap, fmt);
	vsnprintf(text, MSG_MAX, fmt, ap);
	va_end(ap);
	if (strerror_r(error, why, sizeof why))
		snprintf(why, sizeof why, "error %d", error);
	n = strlen(text);
	snprintf(text + n, sizeof text - n, ": %s", why);
	e->code = code;
	put_escaped(e, text);
	errno = error;
	return -1;
}

int err_wrap(struct err *e, const char *fmt, ...)
{
	char text[2 * MSG_MAX];
	size_t n;
	va_list ap;

	if (!e)
		return -1;
	va_start(ap, fmt);
	vsnprintf(text, MSG_MAX, fmt, ap);
	va_end(ap);
	n = strlen(text);
	snprintf(text + n, sizeof text - n, ": %s", e->msg);
	put_escaped(e, text);
	return -1;
}
