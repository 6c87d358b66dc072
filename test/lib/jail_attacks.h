/* SPDX-License-Identifier: Apache-2.0
 *
 * What a confined process may try.  Each attack returns 0 when it was
 * refused, 1 when it got somewhere, 2 when it could not even be tried; the
 * same functions run by command (the test program executes itself in the
 * jail) and in a forked process.
 */
#ifndef CA_TEST_JAIL_ATTACKS_H
#define CA_TEST_JAIL_ATTACKS_H

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* What there is to attack. */
struct prey {
	char secret[256];	/* a 0600 file of the caller's */
	char outside[256];	/* a 0777 directory */
	char abstract[64];	/* an abstract unix socket that listens */
	char path[256];		/* the same on a path, 0777 */
	int port;		/* TCP on 127.0.0.1 */
	int pid;		/* of the judge */
	char *mem;		/* "judge" in its memory */
};

typedef int attack_fn(const struct prey *p);

/* 1 with a note when the call went through. */
static int got(const char *what, int success)
{
	if (success)
		fprintf(stderr, "# '%s' went through\n", what);
	return success ? 1 : 0;
}

static int opens(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC, 0644);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static int try_files(const struct prey *p)
{
	char path[300];
	int bad = 0;

	bad |= got("read a secret", opens(p->secret, O_RDONLY));
	bad |= got("truncate a secret", !truncate(p->secret, 0));
	bad |= got("chmod a secret", !chmod(p->secret, 0666));
	bad |= got("remove a secret", !unlink(p->secret));
	bad |= got("read shadow", opens("/etc/shadow", O_RDONLY));
	bad |= got("read hostname", opens("/etc/hostname", O_RDONLY));
	bad |= got("read the disk", opens("/dev/vda", O_RDONLY));
	snprintf(path, sizeof(path), "%s/x", p->outside);
	bad |= got("write outside", opens(path, O_WRONLY | O_CREAT));
	bad |= got("mkdir outside", !mkdir(path, 0777));
	bad |= got("link outside", !symlink("/etc/passwd", path));
	snprintf(path, sizeof(path), "%s/old", p->outside);
	bad |= got("append outside", opens(path, O_WRONLY | O_APPEND));
	bad |= got("truncate outside", !truncate(path, 0));
	bad |= got("write /usr", opens("/usr/x", O_WRONLY | O_CREAT));
	bad |= got("make a device",
		   !mknod("/tmp/node", S_IFBLK | 0666, 0xfe00));
	return bad;
}

static int try_proc(const struct prey *p)
{
	static const char *const files[] = {
		"/proc/sys/kernel/core_pattern", "/proc/sys/vm/drop_caches",
		"/proc/sys/kernel/hostname", "/proc/sys/net/ipv4/ip_forward",
		"/proc/sysrq-trigger", "/proc/kcore", "/proc/kmsg",
		"/proc/1/root/etc/shadow", "/proc/1/cwd/../etc/shadow", NULL
	};
	char path[64];
	int bad = 0, i;

	for (i = 0; files[i]; i++)
		bad |= got(files[i],
			   opens(files[i], i < 5 ? O_WRONLY : O_RDONLY));
	snprintf(path, sizeof(path), "/proc/%d/mem", p->pid);
	bad |= got("open the judge's memory", opens(path, O_RDWR));
	snprintf(path, sizeof(path), "/proc/%d/environ", p->pid);
	bad |= got("read the judge's environment", opens(path, O_RDONLY));
	snprintf(path, sizeof(path), "/proc/%d/fd/0", p->pid);
	bad |= got("open the judge's files", opens(path, O_RDONLY));
	return bad;
}

static int try_judge(const struct prey *p)
{
	char buf[8] = "";
	struct iovec to = { buf, 5 }, from = { p->mem, 5 };
	int bad = 0;

	bad |= got("signal the judge", !kill(p->pid, SIGUSR1));
	bad |= got("trace the judge",
		   !ptrace(PTRACE_SEIZE, p->pid, NULL, NULL));
	if (process_vm_readv(p->pid, &to, 1, &from, 1, 0) == 5)
		bad |= got("read the judge's memory", !memcmp(buf, "judge", 5));
	bad |= got("write the judge's memory",
		   process_vm_writev(p->pid, &to, 1, &from, 1, 0) > 0);
	bad |= got("copy the judge's descriptor",
		   syscall(SYS_pidfd_getfd,
			   syscall(SYS_pidfd_open, p->pid, 0), 0, 0) >= 0);
	bad |= got("slow the judge",
		   !setpriority(PRIO_PROCESS, (id_t)p->pid, 19));
	return bad;
}

static int try_net(const struct prey *p)
{
	struct sockaddr_in in = { .sin_family = AF_INET };
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) +
				    1 + strlen(p->abstract));
	int bad = 0, fd;

	in.sin_port = htons((unsigned short)p->port);
	in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	fd = socket(AF_INET, SOCK_STREAM, 0);
	bad |= got("connect", fd >= 0 && !connect(fd, (struct sockaddr *)&in,
						  sizeof(in)));
	memcpy(un.sun_path + 1, p->abstract, strlen(p->abstract));
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	bad |= got("connect to an abstract socket",
		   fd >= 0 && !connect(fd, (struct sockaddr *)&un, len));
	strcpy(un.sun_path, p->path);
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	bad |= got("connect to a host's socket",
		   fd >= 0 && !connect(fd, (struct sockaddr *)&un,
				       sizeof(un)));
	bad |= got("netlink", socket(AF_NETLINK, SOCK_RAW, 0) >= 0);
	bad |= got("raw packets", socket(AF_PACKET, SOCK_RAW, 0) >= 0);
	bad |= got("raw IP", socket(AF_INET, SOCK_RAW, IPPROTO_ICMP) >= 0);
	return bad;
}

static int try_kernel(const struct prey *p)
{
	struct perf_event_attr perf = { .type = PERF_TYPE_SOFTWARE,
					.size = sizeof(perf) };
	char attr[128] = "", c = 'x';
	int bad = 0;

	(void)p;
	bad |= got("mount", !mount("t", "/tmp", "tmpfs", 0, NULL));
	bad |= got("remount", !mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND,
				     NULL));
	bad |= got("umount", !umount2("/proc", MNT_DETACH));
	bad |= got("unshare users", !unshare(CLONE_NEWUSER));
	bad |= got("unshare mounts", !unshare(CLONE_NEWNS));
	bad |= got("chroot", !chroot("/tmp"));
	bad |= got("become root", !setuid(0));
	bad |= got("raise a limit",
		   !setrlimit(RLIMIT_CORE, &(struct rlimit){ 1, 1 }));
	bad |= got("io_uring", syscall(SYS_io_uring_setup, 4, attr) >= 0);
	bad |= got("bpf", syscall(SYS_bpf, 0, attr, sizeof(attr)) >= 0);
	bad |= got("perf", syscall(SYS_perf_event_open, &perf, 0, -1, -1, 0)
		   >= 0);
	bad |= got("userfaultfd", syscall(SYS_userfaultfd, 1) >= 0);
	bad |= got("keyrings", syscall(SYS_add_key, "user", "k", &c, 1, -4)
		   >= 0);
	bad |= got("personality", syscall(SYS_personality, 0x40000) >= 0);
	/* Not ENOTTY: it must be refused whatever descriptor it is. */
	errno = 0;
	bad |= got("fake key strokes", !ioctl(0, TIOCSTI, &c) ||
		   errno != EPERM);
	errno = 0;
	syscall(0x40000000 | SYS_getpid);	/* x32's */
	bad |= got("an unknown call", errno != ENOSYS);
	return bad;
}

/* How many children can sleep at once; -1 when there is no end. */
static int try_forks(int limit)
{
	int n;

	for (n = 0; n < 2 * limit; n++) {
		pid_t pid = fork();

		if (pid < 0)
			return n;
		if (!pid) {
			pause();
			_exit(0);
		}
	}
	return -1;
}

static int try_memory(const struct prey *p)
{
	size_t step = 64 << 20, n;

	(void)p;
	for (n = 0; n < 64; n++) {
		char *m = malloc(step);

		if (!m)
			return 0;
		memset(m, 1, step);
	}
	return got("4 GiB of memory", 1);
}

/* Writes to dir until it is refused; MiB written, in files of 8. */
static int fill(const char *dir)
{
	static char mib[1 << 20];
	char path[300];
	int n, fd = -1;

	signal(SIGXFSZ, SIG_IGN);
	for (n = 0; n < 1024; n++) {
		if (n % 8 == 0) {
			if (fd >= 0)
				close(fd);
			snprintf(path, sizeof(path), "%s/f%d", dir, n);
			fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
		}
		if (fd < 0 || write(fd, mib, sizeof(mib)) != sizeof(mib))
			break;
	}
	if (fd >= 0)
		close(fd);
	return n;
}

/* Leaves a process of a session of its own, which holds all descriptors. */
static int try_daemon(const struct prey *p)
{
	pid_t pid = fork();

	(void)p;
	if (pid < 0)
		return 2;
	if (!pid) {
		setsid();
		if (fork())
			_exit(0);
		signal(SIGTERM, SIG_IGN);
		signal(SIGHUP, SIG_IGN);
		for (;;)
			pause();
	}
	waitpid(pid, NULL, 0);
	return 0;
}

static void *thread_body(void *arg)
{
	*(int *)arg = 1;
	return NULL;
}

static int thread_works(void)
{
	pthread_t t;
	int ran = 0;

	if (pthread_create(&t, NULL, thread_body, &ran))
		return 0;
	pthread_join(t, NULL);
	return ran;
}

/* Mappings moved, over others too, and holes in memory that is shared. */
static int try_mappings(void)
{
	int prot = PROT_READ | PROT_WRITE, bad;
	int fd = (int)syscall(SYS_memfd_create, "shared", 0);
	char *a = mmap(NULL, 8192, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *b, *s;

	if (fd < 0 || a == MAP_FAILED || ftruncate(fd, 8192))
		return 2;
	s = mmap(NULL, 8192, prot, MAP_SHARED, fd, 0);
	b = mmap(NULL, 4096, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (s == MAP_FAILED || b == MAP_FAILED)
		return 2;
	s[0] = s[4096] = 1;
	bad = got("move a mapping over another",
		  mremap(b, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, a) == a);
	bad |= got("give shared pages back", !madvise(s, 4096, MADV_REMOVE));
	bad |= got("punch a hole", !fallocate(fd, FALLOC_FL_PUNCH_HOLE |
					      FALLOC_FL_KEEP_SIZE, 0, 4096));
	close(fd);
	return bad;
}

/* On the CPU a mapping is not moved at all, and realloc copies. */
static int try_growing(const struct prey *p)
{
	char *a = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		       0);
	char *grown = realloc(malloc(1 << 20), 1 << 24);

	(void)p;
	if (a == MAP_FAILED || !grown)
		return 2;
	free(grown);
	return got("grow a mapping elsewhere",
		   mremap(a, 8192, 1 << 20, MREMAP_MAYMOVE) != MAP_FAILED);
}

/* What only workers are refused: another process, another's schedule. */
static int try_worker(const struct prey *p)
{
	static char *const argv[] = { (char *)"true", NULL };
	struct { uint64_t flags, rest[10]; } clone3 = { 0, { 0 } };
	cpu_set_t cpus;
	int bad = 0, fd;

	(void)p;
	bad |= got("fork", fork() >= 0);
	bad |= got("raw fork", syscall(SYS_fork) >= 0);
	bad |= got("clone", syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) >= 0);
	bad |= got("clone with shared memory",
		   syscall(SYS_clone, CLONE_VM | CLONE_FILES, 0, 0, 0, 0)
		   >= 0);
	bad |= got("clone3", syscall(SYS_clone3, &clone3, sizeof(clone3))
		   >= 0);
	bad |= got("exec", !execv("/bin/true", argv));
	fd = open("/usr/bin/env", O_PATH | O_CLOEXEC);
	bad |= got("fexecve", !syscall(SYS_execveat, fd, "", argv, argv,
				       AT_EMPTY_PATH));
	CPU_ZERO(&cpus);
	CPU_SET(0, &cpus);
	bad |= got("set affinity",
		   !sched_setaffinity(0, sizeof(cpus), &cpus));
	bad |= got("set priority", !setpriority(PRIO_PROCESS, 0, 5));
	bad |= got("hide from tracing", !prctl(PR_SET_DUMPABLE, 0, 0, 0, 0));
	bad |= got("outlive the parent",
		   !prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0));
	bad |= got("signal the group", !kill(0, 0));
	bad |= got("signal everybody", !kill(-1, 0));
	bad |= try_mappings();
	bad |= got("shared memory of System V",
		   shmget(IPC_PRIVATE, 4096, 0600) >= 0);
	if (!thread_works()) {
		fprintf(stderr, "# no threads\n");
		return 2;
	}
	return bad;
}

/* Everything from 3 up is a descriptor that leaked. */
static int count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	struct dirent *de;
	int n = 0;

	if (!d)
		return -1;
	while ((de = readdir(d)))
		n += atoi(de->d_name) > 2 && atoi(de->d_name) != dirfd(d);
	closedir(d);
	return n;
}

#endif
