/* SPDX-License-Identifier: Apache-2.0
 *
 * A thread for each request on its way.
 */
#include "synth/inflight.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"

struct slot {
	struct chat *chat;
	pthread_t thread;
	struct str body;
	int64_t deadline;
	struct chat_answer answer;
	struct err err;
	int rc, tag;
};

struct inflight {
	struct slot *slot;
	size_t n, first, count;
	double answer_s;
};

struct inflight *inflight_open(const struct chat_opts *o, double answer_s,
			       size_t n, struct err *e)
{
	struct inflight *f = calloc(1, sizeof(*f));

	if (!f || !(f->slot = calloc(n, sizeof(*f->slot)))) {
		free(f);
		err_set(e, CA_SOFTWARE, "out of memory");
		return NULL;
	}
	f->answer_s = answer_s;
	for (f->n = 0; f->n < n; f->n++) {
		f->slot[f->n].chat = chat_open(o, e);
		if (!f->slot[f->n].chat) {
			inflight_close(f);
			return NULL;
		}
	}
	return f;
}

void inflight_close(struct inflight *f)
{
	if (!f)
		return;
	for (size_t i = 0; i < f->n; i++) {
		chat_close(f->slot[i].chat);
		str_release(&f->slot[i].body);
		chat_answer_release(&f->slot[i].answer);
	}
	free(f->slot);
	free(f);
}

size_t inflight_count(const struct inflight *f)
{
	return f->count;
}

static void *ask(void *arg)
{
	struct slot *s = arg;

	s->rc = chat_ask(s->chat, s->body.buf, s->body.len, s->deadline,
			 &s->answer, &s->err);
	return NULL;
}

int inflight_send(struct inflight *f, struct str *body, int tag,
		  struct err *e)
{
	struct slot *s = &f->slot[(f->first + f->count) % f->n];

	str_release(&s->body);
	s->body = *body;
	*body = (struct str)STR_INIT;
	chat_answer_release(&s->answer);
	err_clear(&s->err);
	s->tag = tag;
	s->deadline = now_ns() + (int64_t)(f->answer_s * 1e9);
	if (s->body.failed || pthread_create(&s->thread, NULL, ask, s))
		return err_set(e, CA_SOFTWARE, "cannot start a request");
	f->count++;
	return 0;
}

int inflight_take(struct inflight *f, const struct chat_answer **a, int *tag,
		  struct err *e)
{
	struct slot *s = &f->slot[f->first];

	pthread_join(s->thread, NULL);
	f->first = (f->first + 1) % f->n;
	f->count--;
	*a = &s->answer;
	*tag = s->tag;
	if (s->rc)
		*e = s->err;
	return s->rc;
}
