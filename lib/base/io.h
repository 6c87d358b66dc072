/* SPDX-License-Identifier: Apache-2.0
 *
 * Files and descriptors: whole reads and writes, atomic files, deadlines.
 */
#ifndef CA_BASE_IO_H
#define CA_BASE_IO_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/str.h"

/* Nanoseconds of CLOCK_MONOTONIC. */
int64_t now_ns(void);

/* A point in time `seconds` from now, for the deadlines below; <= 0 seconds
 * has passed already. */
int64_t deadline_in(double seconds);

/* Milliseconds left, rounded up, for poll(2); 0 when it has passed. */
int deadline_ms(int64_t deadline);

/* Writes or reads exactly len bytes, restarting after EINTR.  read_full
 * returns the number of bytes read, less than len only at end of file. */
int write_full(int fd, const void *p, size_t len, struct err *e);
ssize_t read_full(int fd, void *p, size_t len, struct err *e);

/* Waits until fd can be read (or has hung up): 1 yes, 0 deadline, -1 error. */
int wait_readable(int fd, int64_t deadline, struct err *e);

/* The same, but 0 also when a signal that sig_catch handles has come. */
int wait_unless_signal(int fd, int64_t deadline, struct err *e);

/* Appends a regular file of at most cap bytes to s.  FIFOs, devices and
 * directories are refused without blocking.  CA_NOINPUT or CA_DATAERR. */
int read_file(const char *path, size_t cap, struct str *s, struct err *e);
int read_file_at(int dirfd, const char *name, size_t cap, int follow,
		 struct str *s, struct err *e);

/* Writes path by temporary file, fsync and rename; mode as given. */
int write_file_atomic(const char *path, const void *p, size_t len,
		      unsigned mode, struct err *e);

int mkdir_p(const char *path, unsigned mode, struct err *e);
/* Removes a tree without following links or leaving its file system. */
int remove_tree(const char *path, struct err *e);
/* The same for what is in a directory, which stays. */
int empty_tree(const char *path, struct err *e);
/* A fresh directory under $TMPDIR or /tmp, 0700; out holds at least 4096. */
int make_temp_dir(const char *prefix, char *out, size_t outlen,
		  struct err *e);

/* Output with a checked close: "-" is stdout, a regular file is written to a
 * temporary one that output_close(…, 1) renames into place and
 * output_close(…, 0) removes; devices and pipes are written as they are. */
struct output {
	int fd;
	char path[4096];
	char temp[4096];
};
int output_open(struct output *o, const char *path, struct err *e);
int output_write(struct output *o, const void *p, size_t n, struct err *e);
int output_close(struct output *o, int commit, struct err *e);

#endif
