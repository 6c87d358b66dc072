/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "peer.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "cu/cu.h"
#include "judge/cuda_move.h"
#include "judge/cuda_source.h"

struct setup {
	uint64_t mode, bytes, in_size, pool_size;
};

struct peer {
	struct setup s;
	struct cu_dev *d;
	struct cu_mem in[2], pool, sink, own;
	cu_fn move, spin, sweep;
	cu_event from, to;
	int fd;
};

static int send_setup(int fd, const struct setup *s, const int fds[3])
{
	char ctl[CMSG_SPACE(3 * sizeof(int))];
	struct iovec v = { (void *)s, sizeof(*s) };
	struct msghdr m = {
		.msg_iov = &v, .msg_iovlen = 1,
		.msg_control = ctl, .msg_controllen = sizeof(ctl),
	};
	struct cmsghdr *c;

	memset(ctl, 0, sizeof(ctl));
	c = CMSG_FIRSTHDR(&m);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(3 * sizeof(int));
	memcpy(CMSG_DATA(c), fds, 3 * sizeof(int));
	return sendmsg(fd, &m, MSG_NOSIGNAL) == (ssize_t)sizeof(*s) ? 0 : -1;
}

static int recv_setup(int fd, struct setup *s, int fds[3])
{
	char ctl[CMSG_SPACE(3 * sizeof(int))];
	struct iovec v = { s, sizeof(*s) };
	struct msghdr m = {
		.msg_iov = &v, .msg_iovlen = 1,
		.msg_control = ctl, .msg_controllen = sizeof(ctl),
	};

	if (recvmsg(fd, &m, 0) != (ssize_t)sizeof(*s) || !CMSG_FIRSTHDR(&m))
		return -1;
	memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&m)), 3 * sizeof(int));
	return 0;
}

static int make_memory(struct device *d, struct runner *r, size_t bytes,
		       struct err *e)
{
	return d->ops->shared(d, bytes, 0, &r->in[0], e) ||
		d->ops->shared(d, bytes, 0, &r->in[1], e) ||
		d->ops->shared(d, bytes, 0, &r->pool, e) ? -1 : 0;
}

int peer_start(struct device *d, struct runner *r, enum peer_mode mode,
	       size_t bytes, struct err *e)
{
	int fds[3], pair[2];
	struct setup s = { mode, bytes, 0, 0 };
	char text[16], ready;

	memset(r, 0, sizeof(*r));
	r->in[0] = r->in[1] = r->pool = (struct mem)MEM_NONE;
	r->child.fd = -1;
	if (make_memory(d, r, bytes, e))
		return -1;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair))
		return err_sys(e, CA_SOFTWARE, "socketpair");
	snprintf(text, sizeof(text), "%d", pair[1]);
	r->child.fd = pair[0];
	r->child.pid = fork();
	if (r->child.pid == 0) {
		close(pair[0]);
		execl("/proc/self/exe", "peer", "peer", text, (char *)NULL);
		_exit(127);
	}
	close(pair[1]);
	s.in_size = r->in[0].bytes;
	s.pool_size = r->pool.bytes;
	fds[0] = r->in[0].fd;
	fds[1] = r->in[1].fd;
	fds[2] = r->pool.fd;
	if (send_setup(pair[0], &s, fds) ||
	    wait_readable(pair[0], deadline_in(30), e) != 1 ||
	    read(pair[0], &ready, 1) != 1)
		return err_set(e, CA_SOFTWARE, "peer did not start");
	return 0;
}

void peer_stop(struct device *d, struct runner *r)
{
	if (r->child.pid > 0) {
		kill(r->child.pid, SIGKILL);
		waitpid(r->child.pid, NULL, 0);
	}
	if (r->child.fd >= 0)
		close(r->child.fd);
	d->ops->release(d, &r->in[0]);
	d->ops->release(d, &r->in[1]);
	d->ops->release(d, &r->pool);
}

static int copy(struct peer *p, unsigned set)
{
	struct moves t = {
		.chunks = (p->s.bytes + MOVE_CHUNK - 1) / MOVE_CHUNK, .n = 1,
	};
	void *args[] = { &t };
	unsigned most = (unsigned)p->d->info.sms * 8;

	t.m[0].dst = p->pool.ptr;
	t.m[0].src = p->in[set].ptr;
	t.m[0].bytes = p->s.bytes;
	return cu_launch(p->d, p->move, t.chunks < most ?
			 (unsigned)t.chunks : most, MOVE_THREADS, args, NULL);
}

static int spin(struct peer *p, uint64_t ns)
{
	cu_ptr sink = p->sink.ptr;
	void *args[] = { &ns, &sink };

	return cu_launch(p->d, p->spin, 1, 32, args, NULL);
}

/* From cuda.h: CUaccessPolicyWindow, CU_LIMIT_PERSISTING_L2_CACHE_SIZE,
 * CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, CU_ACCESS_PROPERTY_PERSISTING. */
union stream_attr {
	struct {
		void *base;
		size_t bytes;
		float ratio;
		int hit, miss;
	} window;
	char pad[64];
};

static int persist(struct peer *p)
{
	union stream_attr a;
	void *lib = dlopen("libcuda.so.1", RTLD_NOW);
	int (*limit)(int, size_t), (*set)(cu_stream, int, void *);

	*(void **)&limit = dlsym(lib, "cuCtxSetLimit");
	*(void **)&set = dlsym(lib, "cuStreamSetAttribute");
	memset(&a, 0, sizeof(a));
	a.window.base = (void *)(uintptr_t)p->own.ptr;
	a.window.bytes = p->s.bytes;
	a.window.ratio = 1;
	a.window.hit = 2;
	return limit(6, 2 * p->s.bytes) || set(p->d->stream, 1, &a) ? -1 : 0;
}

static int read_own(struct peer *p)
{
	cu_ptr from = p->own.ptr, sink = p->sink.ptr;
	uint64_t words = p->s.bytes / 16;
	void *args[] = { &from, &words, &sink };

	return cu_launch(p->d, p->sweep, (unsigned)p->d->info.sms * 4, 512,
			 args, NULL);
}

static void leaf(const struct peer *p, struct ca_msg *m)
{
	m->nleaf = 1;
	m->leaf[0].kind = LEAF_TENSOR;
	m->leaf[0].dtype = DT_U8;
	m->leaf[0].ndim = 1;
	m->leaf[0].shape[0] = (int64_t)p->s.bytes;
	if (p->s.mode == PEER_OUTSIDE)
		m->leaf[0].offset = p->s.pool_size - p->s.bytes + 64;
}

static int work(struct peer *p, const struct ca_go *go)
{
	unsigned times = p->s.mode == PEER_SPIN ? 1 : go->idle_us;

	cu_event_record(p->d, p->from, NULL);
	if (p->s.mode == PEER_READ || p->s.mode == PEER_PERSIST)
		return read_own(p) ? -1 :
			cu_event_record(p->d, p->to, NULL);
	for (unsigned i = 0; i < times; i++)
		if (copy(p, go->set))
			return -1;
	if (p->s.mode == PEER_SPIN && spin(p, go->idle_us * 1000ull))
		return -1;
	return cu_event_record(p->d, p->to, NULL);
}

static int answer(struct peer *p, const struct ca_go *go)
{
	struct ca_msg m;
	double ns;

	memset(&m, 0, sizeof(m));
	m.magic = CA_MAGIC_MSG;
	m.seq = go->seq;
	if (p->s.mode != PEER_UNWRITTEN && p->s.mode != PEER_EARLY &&
	    work(p, go))
		return -1;
	if (p->s.mode == PEER_BEHIND)
		spin(p, 5000000);
	/* What the last iteration took, when this one is not awaited. */
	if (go->flags & GO_SYNC && p->s.mode != PEER_BEHIND) {
		cu_wait(p->d, deadline_in(10), NULL);
		ns = cu_event_ns(p->d, p->from, p->to, NULL);
		m.own_ns = ns > 0 ? (uint64_t)ns : 0;
	}
	leaf(p, &m);
	if (send(p->fd, &m, sizeof(m), MSG_NOSIGNAL) != (ssize_t)sizeof(m))
		return -1;
	return p->s.mode == PEER_EARLY ? work(p, go) : 0;
}

static int open_peer(struct peer *p)
{
	struct err e = ERR_INIT;
	struct str cubin = STR_INIT;
	int fds[3];
	cu_mod mod;

	if (recv_setup(p->fd, &p->s, fds))
		return -1;
	p->d = cu_dev_open(0, &e);
	if (!p->d ||
	    cu_mem_import(p->d, fds[0], p->s.in_size, &p->in[0], &e) ||
	    cu_mem_import(p->d, fds[1], p->s.in_size, &p->in[1], &e) ||
	    cu_mem_import(p->d, fds[2], p->s.pool_size, &p->pool, &e) ||
	    cu_mem_new(p->d, 4096, 0, &p->sink, &e) ||
	    cu_mem_new(p->d, p->s.bytes, 0, &p->own, &e) ||
	    cuda_source_compile(p->d->info.major, p->d->info.minor, &cubin,
				&e) ||
	    cu_module(p->d, cubin.buf, &mod, &e) ||
	    cu_function(p->d, mod, "move", &p->move, &e) ||
	    cu_function(p->d, mod, "spin", &p->spin, &e) ||
	    cu_function(p->d, mod, "sweep", &p->sweep, &e) ||
	    cu_event_new(p->d, &p->from, &e) ||
	    cu_event_new(p->d, &p->to, &e)) {
		fprintf(stderr, "peer: %s\n", e.msg);
		return -1;
	}
	str_release(&cubin);
	if (p->s.mode == PEER_PERSIST && persist(p)) {
		fprintf(stderr, "peer: cannot set lines aside\n");
		return -1;
	}
	return write(p->fd, "", 1) == 1 ? 0 : -1;
}

static void be_stranger(char **argv)
{
	struct cu_dev *d = cu_dev_open(0, NULL);
	char c;

	if (!d || write(atoi(argv[2]), "", 1) != 1)
		_exit(1);
	while (read(atoi(argv[3]), &c, 1) > 0)
		;
	cu_dev_close(d);
	_exit(0);
}

int peer_main(int argc, char **argv)
{
	struct peer p;
	struct ca_go go;

	if (argc == 4 && !strcmp(argv[1], "stranger"))
		be_stranger(argv);
	if (argc != 3 || strcmp(argv[1], "peer"))
		return 0;
	memset(&p, 0, sizeof(p));
	p.fd = atoi(argv[2]);
	if (open_peer(&p))
		_exit(1);
	for (;;) {
		ssize_t n;

		/* Awake when go comes, as a shim is. */
		do
			n = recv(p.fd, &go, sizeof(go), MSG_DONTWAIT);
		while (n < 0);
		if (n != (ssize_t)sizeof(go) || p.s.mode == PEER_GONE)
			_exit(0);
		if (answer(&p, &go))
			_exit(1);
	}
}
