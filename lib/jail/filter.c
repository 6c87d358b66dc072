/* SPDX-License-Identifier: Apache-2.0
 *
 * System call filters, built by libseccomp.
 */
#define _GNU_SOURCE
#include "jail/filter.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/io.h"

/* The newest number that was looked at (file_setattr).  Beyond it lie calls
 * that nobody has judged, and x32's. */
#define NEWEST 469

/* Numbers that older headers lack; the same on every architecture. */
enum {
	N_MOUNT_SETATTR = 442, N_QUOTACTL_FD = 443, N_PROCESS_MRELEASE = 448,
	N_STATMOUNT = 457, N_LISTMOUNT = 458, N_OPEN_TREE_ATTR = 467
};

/* Kernel surface that no confined process needs. */
static const int refused[] = {
	SCMP_SYS(mount), SCMP_SYS(umount2), SCMP_SYS(pivot_root),
	SCMP_SYS(chroot), SCMP_SYS(open_tree), SCMP_SYS(move_mount),
	SCMP_SYS(fsopen), SCMP_SYS(fsconfig), SCMP_SYS(fsmount),
	SCMP_SYS(fspick), N_MOUNT_SETATTR, N_STATMOUNT, N_LISTMOUNT,
	N_OPEN_TREE_ATTR, SCMP_SYS(unshare), SCMP_SYS(setns),
	SCMP_SYS(bpf), SCMP_SYS(perf_event_open), SCMP_SYS(userfaultfd),
	SCMP_SYS(keyctl), SCMP_SYS(add_key), SCMP_SYS(request_key),
	SCMP_SYS(io_uring_setup), SCMP_SYS(io_uring_enter),
	SCMP_SYS(io_uring_register), SCMP_SYS(personality),
	SCMP_SYS(name_to_handle_at), SCMP_SYS(open_by_handle_at),
	SCMP_SYS(fanotify_init), SCMP_SYS(pidfd_getfd), SCMP_SYS(kcmp),
	SCMP_SYS(quotactl), N_QUOTACTL_FD, SCMP_SYS(acct), SCMP_SYS(swapon),
	SCMP_SYS(swapoff), SCMP_SYS(reboot), SCMP_SYS(kexec_load),
	SCMP_SYS(kexec_file_load), SCMP_SYS(init_module),
	SCMP_SYS(finit_module), SCMP_SYS(delete_module), SCMP_SYS(syslog),
	SCMP_SYS(settimeofday), SCMP_SYS(clock_settime),
	SCMP_SYS(vhangup), SCMP_SYS(modify_ldt), SCMP_SYS(iopl),
	SCMP_SYS(ioperm), SCMP_SYS(lookup_dcookie)
};

/* Forked processes only: a debugger or a second user is never among them. */
static const int refused_forked[] = {
	SCMP_SYS(ptrace), SCMP_SYS(process_vm_readv),
	SCMP_SYS(process_vm_writev), SCMP_SYS(process_madvise),
	N_PROCESS_MRELEASE, SCMP_SYS(pidfd_open),
	SCMP_SYS(pidfd_send_signal), SCMP_SYS(seccomp),
	SCMP_SYS(truncate), SCMP_SYS(shmget), SCMP_SYS(msgget),
	SCMP_SYS(semget), SCMP_SYS(mq_open)
};

/* Workers only: no second process, no say in how they are scheduled. */
static const int refused_worker[] = {
	SCMP_SYS(fork), SCMP_SYS(vfork), SCMP_SYS(execve),
	SCMP_SYS(execveat), SCMP_SYS(sched_setaffinity),
	SCMP_SYS(sched_setscheduler), SCMP_SYS(sched_setparam),
	SCMP_SYS(sched_setattr), SCMP_SYS(setpriority), SCMP_SYS(ioprio_set),
	/* nor where shared memory lies */
	SCMP_SYS(mbind), SCMP_SYS(set_mempolicy), SCMP_SYS(move_pages),
	SCMP_SYS(migrate_pages)
};

/* prctl: undoing PDEATHSIG, hiding from the judge, another filter. */
static const unsigned refused_prctl[] = {
	PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_PTRACER, PR_SET_SECCOMP,
	PR_SET_CHILD_SUBREAPER, PR_SET_MM
};

static const unsigned long new_flags[] = {
	CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC,
	CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET
};

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define LOW32 0xffffffffu

static int refuse(scmp_filter_ctx f, const int *nr, size_t n)
{
	size_t i;
	int rc;

	for (i = 0; i < n; i++) {
		rc = seccomp_rule_add(f, SCMP_ACT_ERRNO(EPERM), nr[i], 0);
		if (rc)
			return rc;
	}
	return 0;
}

static int refuse_if(scmp_filter_ctx f, int nr, struct scmp_arg_cmp cmp)
{
	return seccomp_rule_add(f, SCMP_ACT_ERRNO(EPERM), nr, 1, cmp);
}

/* Namespaces by clone, fake key strokes, and clone3, whose flags a filter
 * cannot see: libc falls back to clone. */
static int common_rules(scmp_filter_ctx f)
{
	size_t i;
	int rc = refuse(f, refused, COUNT(refused));

	for (i = 0; i < COUNT(new_flags) && !rc; i++)
		rc = refuse_if(f, SCMP_SYS(clone),
			       SCMP_A0_64(SCMP_CMP_MASKED_EQ, new_flags[i],
					  new_flags[i]));
	if (!rc)
		rc = seccomp_rule_add(f, SCMP_ACT_ERRNO(ENOSYS),
				      SCMP_SYS(clone3), 0);
	if (!rc)
		rc = refuse_if(f, SCMP_SYS(ioctl),
			       SCMP_A1_64(SCMP_CMP_MASKED_EQ, LOW32, TIOCSTI));
	if (!rc)
		rc = refuse_if(f, SCMP_SYS(ioctl),
			       SCMP_A1_64(SCMP_CMP_MASKED_EQ, LOW32,
					  TIOCLINUX));
	return rc;
}

/*
 * cuInit() fails (304) without two sockets: one to look for a server that
 * shares GPUs (MPS), which hears that nobody is there, also to keep a worker
 * away from such a server; and one that it listens on, by an abstract name.
 */
static int cuda_socket_rules(scmp_filter_ctx f)
{
	static const unsigned type[] = { SOCK_STREAM, SOCK_DGRAM, SOCK_RAW };
	size_t i;
	int rc = 0;

	for (i = 0; i < COUNT(type) && !rc; i++)
		rc = refuse_if(f, SCMP_SYS(socket),
			       SCMP_A1_64(SCMP_CMP_MASKED_EQ, 0xf, type[i]));
	if (!rc)
		rc = seccomp_rule_add(f, SCMP_ACT_ERRNO(ENOENT),
				      SCMP_SYS(connect), 0);
	return rc;
}

static int socket_rules(scmp_filter_ctx f, enum filter_kind k, int cuda)
{
	static const int all[] = { SCMP_SYS(socket) };

	if (k != FILTER_COMMAND && !cuda)
		return refuse(f, all, 1);
	if (k != FILTER_COMMAND && cuda_socket_rules(f))
		return -EINVAL;
	return refuse_if(f, SCMP_SYS(socket),
			 SCMP_A0_64(SCMP_CMP_NE, AF_UNIX, 0));
}

static int forked_rules(scmp_filter_ctx f)
{
	size_t i;
	int rc = refuse(f, refused_forked, COUNT(refused_forked));

	for (i = 0; i < COUNT(refused_prctl) && !rc; i++)
		rc = refuse_if(f, SCMP_SYS(prctl),
			       SCMP_A0_64(SCMP_CMP_MASKED_EQ, LOW32,
					  refused_prctl[i]));
	return rc;
}

/*
 * Nothing reports whose code a mapping was that is moved, be it over another's
 * or into a hole that was made for it; CUDA has its own witness (realloc copies
 * where mremap is refused).  And memory that the judge shares goes from one
 * process to the next: holes in it are for the next one to fill.
 */
static int memory_rules(scmp_filter_ctx f, int cuda)
{
	static const int move[] = { SCMP_SYS(mremap) };
	static const unsigned advice[] = { MADV_REMOVE, 20 /* COLD */,
					   21 /* PAGEOUT */ };
	size_t i;
	int rc = cuda ? refuse_if(f, SCMP_SYS(mremap),
				  SCMP_A3_64(SCMP_CMP_MASKED_EQ, MREMAP_FIXED,
					     MREMAP_FIXED)) :
			refuse(f, move, 1);

	for (i = 0; i < COUNT(advice) && !rc; i++)
		rc = refuse_if(f, SCMP_SYS(madvise),
			       SCMP_A2_64(SCMP_CMP_MASKED_EQ, LOW32,
					  advice[i]));
	if (!rc)
		rc = refuse_if(f, SCMP_SYS(fallocate),
			       SCMP_A1_64(SCMP_CMP_NE, 0, 0));
	return rc;
}

/* Signals only to itself: abort() and raise() go through tgkill. */
static int worker_rules(scmp_filter_ctx f, int cuda)
{
	static const int send[] = { SCMP_SYS(kill), SCMP_SYS(tgkill),
				    SCMP_SYS(rt_sigqueueinfo),
				    SCMP_SYS(rt_tgsigqueueinfo) };
	static const int tkill[] = { SCMP_SYS(tkill) };
	size_t i;
	int rc = refuse(f, refused_worker, COUNT(refused_worker));

	if (!rc)
		rc = refuse(f, tkill, 1);
	if (!rc)
		rc = memory_rules(f, cuda);
	for (i = 0; i < COUNT(send) && !rc; i++)
		rc = refuse_if(f, send[i],
			       SCMP_A0_64(SCMP_CMP_NE, (unsigned)getpid(),
					  0));
	if (!rc)
		rc = refuse_if(f, SCMP_SYS(clone),
			       SCMP_A0_64(SCMP_CMP_MASKED_EQ, CLONE_THREAD,
					  0));
	return rc;
}

static int all_rules(scmp_filter_ctx f, enum filter_kind k, int cuda)
{
	int rc = seccomp_attr_set(f, SCMP_FLTATR_ACT_BADARCH,
				  SCMP_ACT_KILL_PROCESS);

	if (!rc)
		rc = common_rules(f);
	if (!rc)
		rc = socket_rules(f, k, cuda);
	if (!rc && (k == FILTER_HELPER || k == FILTER_WORKER))
		rc = forked_rules(f);
	if (!rc && k == FILTER_WORKER)
		rc = worker_rules(f, cuda);
	return rc;
}

/* Reads what libseccomp wrote to fd, behind a check for unknown numbers. */
static int read_program(int fd, struct sock_fprog *prog, struct err *e)
{
	static const struct sock_filter head[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, NEWEST, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS)
	};
	struct stat st;
	size_t n;

	if (fstat(fd, &st) || lseek(fd, 0, SEEK_SET))
		return err_sys(e, CA_SOFTWARE, "cannot read a filter");
	n = (size_t)st.st_size / sizeof(head[0]) + COUNT(head);
	if (n > BPF_MAXINSNS)
		return err_set(e, CA_SOFTWARE, "filter too long");
	prog->filter = malloc(n * sizeof(head[0]));
	if (!prog->filter)
		return err_set(e, CA_SOFTWARE, "out of memory");
	memcpy(prog->filter, head, sizeof(head));
	prog->len = (unsigned short)n;
	if (read_full(fd, prog->filter + COUNT(head), (size_t)st.st_size, e)
	    == st.st_size)
		return 0;
	free(prog->filter);
	prog->filter = NULL;
	return err_set(e, CA_SOFTWARE, "cannot read a filter");
}

int filter_make(enum filter_kind k, int cuda, struct sock_fprog *prog,
		struct err *e)
{
	scmp_filter_ctx f;
	int fd = -1, rc = -1;

	prog->filter = NULL;
	prog->len = 0;
	f = seccomp_init(SCMP_ACT_ALLOW);
	if (!f)
		return err_set(e, CA_SOFTWARE, "cannot make a filter");
	rc = all_rules(f, k, cuda);
	if (rc) {
		rc = err_set(e, CA_SOFTWARE, "cannot make a filter: %s",
			     strerror(-rc));
		goto out;
	}
	fd = memfd_create("filter", MFD_CLOEXEC);
	if (fd < 0 || seccomp_export_bpf(f, fd)) {
		rc = err_sys(e, CA_SOFTWARE, "cannot export a filter");
		goto out;
	}
	rc = read_program(fd, prog, e);
out:
	if (fd >= 0)
		close(fd);
	seccomp_release(f);
	return rc;
}

int filter_enter(const struct sock_fprog *prog)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -1;
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, prog, 0, 0);
}
