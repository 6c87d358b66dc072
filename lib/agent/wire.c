/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages with a length and a number in front.
 */
#include "agent/wire.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <sys/socket.h>

#include "base/io.h"

struct head {
	uint32_t len, n;
};

static const char *const stages[ASK_COUNT] = {
	"compile", "verify", "profile", "reference", "reward"
};

const char *ask_name(enum ask s)
{
	return stages[s];
}

enum ask ask_parse(const char *name)
{
	int i;

	for (i = 0; name && i < ASK_COUNT; i++)
		if (!strcmp(name, stages[i]))
			return (enum ask)i;
	return ASK_NONE;
}

int wire_send(int fd, uint32_t n, const void *p, size_t len, struct err *e)
{
	struct head h = { (uint32_t)len, n };

	if (len > WIRE_MAX)
		return err_set(e, CA_DATAERR, "the message is too long");
	if (write_full(fd, &h, sizeof(h), e) || write_full(fd, p, len, e))
		return -1;
	return 0;
}

int wire_put(struct str *out, uint32_t n, const void *p, size_t len)
{
	struct head h = { (uint32_t)len, n };

	if (len > WIRE_MAX)
		return -1;
	str_add(out, &h, sizeof(h));
	return str_add(out, p, len);
}

int wire_next(struct str *in, struct wire_msg *m)
{
	struct head h;

	if (in->len < sizeof(h))
		return 0;
	memcpy(&h, in->buf, sizeof(h));
	if (h.len > WIRE_MAX)
		return -1;
	if (in->len < sizeof(h) + h.len)
		return 0;
	*m = (struct wire_msg){ h.n, in->buf + sizeof(h), h.len };
	return 1;
}

int wire_read(int fd, struct str *in, struct wire_msg *m)
{
	char buf[65536];
	ssize_t n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT);

	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		return -1;
	if (n > 0 && str_add(in, buf, (size_t)n))
		return -1;
	return wire_next(in, m);
}

void wire_drop(struct str *in)
{
	struct head h;
	size_t all;

	memcpy(&h, in->buf, sizeof(h));
	all = sizeof(h) + h.len;
	if (in->len > all) {
		memmove(in->buf, in->buf + all, in->len - all);
		in->len -= all;
	} else if (all > 65536) {
		str_release(in);
	} else {
		str_reset(in);
	}
}
