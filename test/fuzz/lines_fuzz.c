/* SPDX-License-Identifier: Apache-2.0
 *
 * The line reader: its lines, put together again, are its input, however the
 * input comes in pieces.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/socket.h>

#include "rec/reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int yes)
{
	if (!yes)
		abort();
}

/* A socket keeps the pieces apart: each read gives one. */
static int pieces(const uint8_t *data, size_t size)
{
	size_t step = size ? 1 + data[0] % 61 : 1, i;
	int fd[2];

	require(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fd) == 0);
	for (i = 0; i < size; i += step) {
		size_t n = size - i < step ? size - i : step;

		require(write(fd[1], data + i, n) == (ssize_t)n);
	}
	close(fd[1]);
	return fd[0];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct err e = ERR_INIT;
	struct reader r;
	size_t done = 0, len = 0;
	uint64_t n = 0;
	char *line = NULL;
	enum line how;
	int fd;

	if (size > 200)	/* what a socket holds unread */
		size = 200;
	fd = pieces(data, size);
	reader_init(&r, fd, -1);
	while ((how = reader_next(&r, &line, &len, &e)) != LINE_END) {
		require(how == LINE_OK || how == LINE_TRUNCATED);
		require(r.lineno == ++n);
		require(done + len <= size && !memchr(line, '\n', len));
		require(memcmp(data + done, line, len) == 0);
		done += len;
		if (how == LINE_OK)
			require(data[done++] == '\n');
	}
	require(done == size && r.bytes == size);
	reader_release(&r);
	close(fd);
	return 0;
}
