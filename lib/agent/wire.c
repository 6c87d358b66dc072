/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages with a length in front.
 */
#include "agent/wire.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <sys/socket.h>

#include "base/io.h"

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

int wire_send(int fd, const void *p, size_t len, struct err *e)
{
	uint32_t n = (uint32_t)len;

	if (len > WIRE_MAX)
		return err_set(e, CA_DATAERR, "the message is too long");
	if (write_full(fd, &n, sizeof(n), e) || write_full(fd, p, len, e))
		return -1;
	return 0;
}

int wire_put(struct str *out, const void *p, size_t len)
{
	uint32_t n = (uint32_t)len;

	if (len > WIRE_MAX)
		return -1;
	str_add(out, &n, sizeof(n));
	return str_add(out, p, len);
}

int wire_next(struct str *in, char **msg, size_t *len)
{
	uint32_t n;

	if (in->len < sizeof(n))
		return 0;
	memcpy(&n, in->buf, sizeof(n));
	if (n > WIRE_MAX)
		return -1;
	if (in->len < sizeof(n) + n)
		return 0;
	*msg = in->buf + sizeof(n);
	*len = n;
	return 1;
}

int wire_read(int fd, struct str *in, char **msg, size_t *len)
{
	char buf[65536];
	ssize_t n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT);

	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		return -1;
	if (n > 0 && str_add(in, buf, (size_t)n))
		return -1;
	return wire_next(in, msg, len);
}

void wire_drop(struct str *in)
{
	uint32_t n;
	size_t all;

	memcpy(&n, in->buf, sizeof(n));
	all = sizeof(n) + n;
	if (in->len > all) {
		memmove(in->buf, in->buf + all, in->len - all);
		in->len -= all;
	} else if (all > 65536) {
		str_release(in);
	} else {
		str_reset(in);
	}
}
