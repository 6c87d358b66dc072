/* SPDX-License-Identifier: Apache-2.0
 *
 * File access by path, through landlock.  The interface is spelt out here,
 * since headers lag behind kernels.
 */
#define _GNU_SOURCE
#include "jail/landlock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { N_CREATE_RULESET = 444, N_ADD_RULE = 445, N_RESTRICT_SELF = 446 };
enum { CREATE_VERSION = 1, RULE_PATH_BENEATH = 1 };

#define A_EXECUTE	(1ull << 0)
#define A_WRITE_FILE	(1ull << 1)
#define A_READ_FILE	(1ull << 2)
#define A_READ_DIR	(1ull << 3)
#define A_CHANGE_DIR	(0x1ff0ull)	/* bits 4 to 12: remove and make */
#define A_MAKE_NODES	(1ull << 6 | 1ull << 11)	/* char, block */
#define A_REFER		(1ull << 13)	/* ABI 2 */
#define A_TRUNCATE	(1ull << 14)	/* ABI 3 */
#define A_IOCTL_DEV	(1ull << 15)	/* ABI 5 */
#define A_ON_FILES	(A_EXECUTE | A_WRITE_FILE | A_READ_FILE | \
			 A_TRUNCATE | A_IOCTL_DEV)
#define NET_TCP		3ull		/* ABI 4: bind, connect */
#define SCOPES		3ull		/* ABI 6: abstract sockets, signals */

struct attr {
	uint64_t fs;
	uint64_t net;
	uint64_t scoped;
};

struct beneath {
	uint64_t access;
	int32_t fd;
} __attribute__((packed));

int landlock_abi(void)
{
	long r = syscall(N_CREATE_RULESET, NULL, 0, CREATE_VERSION);

	return r > 0 ? (int)r : 0;
}

static uint64_t handled(int abi)
{
	uint64_t a = A_EXECUTE | A_WRITE_FILE | A_READ_FILE | A_READ_DIR |
		     A_CHANGE_DIR;

	if (abi >= 2)
		a |= A_REFER;
	if (abi >= 3)
		a |= A_TRUNCATE;
	if (abi >= 5)
		a |= A_IOCTL_DEV;
	return a;
}

static uint64_t rights(unsigned access)
{
	uint64_t a = 0;

	if (access & LL_READ)
		a |= A_READ_FILE | A_READ_DIR;
	if (access & LL_EXEC)
		a |= A_EXECUTE;
	if (access & LL_WRITE)
		a |= A_WRITE_FILE | A_TRUNCATE;
	if ((access & LL_WRITE) && !(access & LL_DEVICE))
		a |= (A_CHANGE_DIR & ~A_MAKE_NODES) | A_REFER;
	if (access & LL_DEVICE)
		a |= A_IOCTL_DEV;
	return a;
}

static int add_rule(int set, const struct landlock_rule *r, uint64_t may,
		    struct err *e)
{
	struct beneath b;
	struct stat st;
	int rc = 0;

	b.access = rights(r->access) & may;
	b.fd = open(r->path, O_PATH | O_CLOEXEC);
	if (b.fd < 0) {
		if (r->optional && (errno == ENOENT || errno == EACCES))
			return 0;
		return err_sys(e, CA_CONFIG, "cannot open '%s'", r->path);
	}
	if (fstat(b.fd, &st)) {
		rc = err_sys(e, CA_CONFIG, "cannot stat '%s'", r->path);
		goto out;
	}
	if (!S_ISDIR(st.st_mode))
		b.access &= A_ON_FILES;
	if (syscall(N_ADD_RULE, set, RULE_PATH_BENEATH, &b, 0))
		rc = err_sys(e, CA_UNAVAILABLE, "landlock refuses '%s'",
			     r->path);
out:
	close(b.fd);
	return rc;
}

int landlock_make(const struct landlock_rule *r, size_t n, struct err *e)
{
	int abi = landlock_abi(), set;
	struct attr a = { 0, 0, 0 };
	size_t len = sizeof(a.fs), i;

	if (!abi)
		return err_set(e, CA_UNAVAILABLE,
			       "this kernel has no landlock");
	a.fs = handled(abi);
	if (abi >= 4) {
		a.net = NET_TCP;
		len += sizeof(a.net);
	}
	if (abi >= 6) {
		a.scoped = SCOPES;
		len += sizeof(a.scoped);
	}
	set = (int)syscall(N_CREATE_RULESET, &a, len, 0);
	if (set < 0)
		return err_sys(e, CA_UNAVAILABLE,
			       "cannot make a landlock rule set");
	for (i = 0; i < n; i++) {
		if (add_rule(set, &r[i], a.fs, e)) {
			close(set);
			return -1;
		}
	}
	return set;
}

int landlock_enter(int fd)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -1;
	return (int)syscall(N_RESTRICT_SELF, fd, 0);
}
