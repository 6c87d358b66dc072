/* SPDX-License-Identifier: Apache-2.0
 *
 * Locks: the query's own may be held when wake is called and when nothing of
 * gen is; the core's is innermost.  The engine's thread takes only the core's.
 */
#define _GNU_SOURCE
#include "serve/query.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/io.h"
#include "serve/reply.h"
#include "serve/tell.h"

#define RETRY_MOST 60
#define EXPECT_MOST (1 << 18)	/* bytes that are believed before they come */

static void prepare_task(struct task *t);

struct query *query_new(struct core *c, enum want_kind kind, uint64_t party,
			void (*wake)(void *ctx), void *ctx)
{
	struct query *q = calloc(1, sizeof *q);
	uint64_t number;

	if (!q)
		return NULL;
	pthread_mutex_lock(&c->lock);
	number = ++c->queries;
	pthread_mutex_unlock(&c->lock);
	q->c = c;
	q->teller = &c->teller[number % (unsigned)c->ntellers];
	q->task.run = prepare_task;
	q->created = (int64_t)time(NULL);
	q->body.cap = JSON_MAX_LINE;
	q->w.kind = kind;
	q->home = -1;
	q->party = party;
	q->refs = 1;
	q->wake = wake;
	q->wake_ctx = ctx;
	snprintf(q->id, sizeof q->id, "%s-%llx-%llu", kind == WANT_CHAT ?
		 "chatcmpl" : "cmpl", (unsigned long long)q->created,
		 (unsigned long long)number);
	pthread_mutex_init(&q->lock, NULL);
	return q;
}

static void free_query(struct query *q)
{
	for (int i = 0; i < q->nchoices; i++) {
		struct choice *h = &q->choice[i];

		free(h->r.id);
		free(h->r.logprob);
		free(h->r.top);
		free(h->r.prompt_logprob);
		free(h->r.prompt_top);
		free(h->end);
		str_release(&h->text);
	}
	for (int i = 0; q->prompt && i < q->w.nprompts; i++)
		tok_ids_release(&q->prompt[i]);
	free(q->prompt);
	free(q->choice);
	guide_free(q->guide);
	shape_free(q->shape);
	want_release(&q->w);
	str_release(&q->body);
	str_release(&q->out);
	str_release(&q->news);
	pthread_mutex_destroy(&q->lock);
	free(q);
}

static void drop_ref(struct query *q)
{
	int left;

	pthread_mutex_lock(&q->lock);
	left = --q->refs;
	pthread_mutex_unlock(&q->lock);
	if (!left)
		free_query(q);
}

void query_expect(struct query *q, int64_t len)
{
	if (len > 0)
		str_reserve(&q->body, (size_t)(len < EXPECT_MOST ? len :
					       EXPECT_MOST));
}

int query_add(struct query *q, const char *p, size_t len)
{
	return str_add(&q->body, p, len);
}

/* With the lock. */
static void wake(struct query *q)
{
	if (!q->gone)
		q->wake(q->wake_ctx);
}

/* The answer is a fault, or the stream ends with one.  With the lock. */
static void set_fault(struct query *q, const struct fault *f)
{
	if (q->done || q->fault.status)
		return;
	q->fault = *f;
	if (q->state == QUERY_STREAM) {
		reply_fault(f, &q->out);
	} else {
		fault_write(f, &q->out);
		q->state = QUERY_ANSWER;
	}
	q->done = 1;
	wake(q);
}

static void fail(struct query *q, const struct fault *f)
{
	pthread_mutex_lock(&q->lock);
	set_fault(q, f);
	pthread_mutex_unlock(&q->lock);
}

void query_has_news(struct query *q)
{
	struct teller *t = q->teller;

	if (q->is_ready)
		return;
	q->is_ready = 1;
	q->ready_next = NULL;
	*t->last = q;
	t->last = &q->ready_next;
	if (t->ready == q)
		pthread_cond_signal(&t->news);
}

void query_take_news(struct query *q)
{
	q->is_ready = 0;
	q->late = q->expired;
	q->runs = q->submitted;
	q->settled = q->aborted || q->runs;
	for (int i = 0; q->runs && i < q->nchoices; i++) {
		struct choice *h = &q->choice[i];

		h->got = h->avail;
		h->ended = h->over;
		h->weights = h->weights_now;
		q->settled &= h->ended;
	}
}

/* From the engine's thread. */
static int note_token(void *ctx, int32_t token, float logprob)
{
	struct choice *h = ctx;
	struct query *q = h->q;
	struct burst *b = &q->c->burst[h->home];
	int over = q->guide && guide_take(q->guide, &h->at, token);

	(void)logprob;
	if (!h->in_burst) {
		h->in_burst = 1;
		h->burst_next = b->first;
		b->first = h;
	}
	return !over;
}

void query_burst(void *ctx, int asleep)
{
	struct burst *b = ctx;
	struct choice *h;

	pthread_mutex_lock(&b->c->lock);
	b->c->asleep[b - b->c->burst] = asleep;
	while ((h = b->first)) {
		b->first = h->burst_next;
		h->in_burst = 0;
		h->avail = h->r.n;
		h->weights_now = h->r.weights[1];
		query_has_news(h->q);
	}
	pthread_mutex_unlock(&b->c->lock);
}

static int mask_tokens(void *ctx, float *logits, struct err *e)
{
	struct choice *h = ctx;
	int vocab = gen_config(h->q->c->gen[0])->vocab;

	return guide_mask(h->q->guide, &h->at, logits, vocab, e);
}

static void ready_tokens(void *ctx)
{
	struct choice *h = ctx;

	guide_ready(h->q->guide, &h->at);
}

static void note_end(void *ctx)
{
	struct choice *h = ctx;
	struct core *c = h->q->c;

	pthread_mutex_lock(&c->lock);
	/* Nothing may have been drawn: scores alone were wanted. */
	if (h->r.weights[1].version)
		h->weights_now = h->r.weights[1];
	h->over = 1;
	c->choices--;
	c->load[h->home]--;
	query_has_news(h->q);
	pthread_mutex_unlock(&c->lock);
}

/* Nothing runs for it any more; if there are news, they are told first. */
static void end_work(struct query *q)
{
	struct core *c = q->c;
	int wait;

	pthread_mutex_lock(&c->lock);
	wait = q->is_ready;
	if (!wait) {
		*(q->before ? &q->before->after : &c->live) = q->after;
		if (q->after)
			q->after->before = q->before;
		q->is_live = 0;
		c->mean_s += 0.1 * ((double)(now_ns() - q->started) * 1e-9 -
				    c->mean_s);
	}
	pthread_mutex_unlock(&c->lock);
	if (!wait)
		drop_ref(q);
}

void query_start(struct query *q)
{
	struct core *c = q->c;
	struct fault f;
	int draining;

	q->started = now_ns();
	q->deadline = deadline_in(c->o.timeout_s);
	q->state = QUERY_WORK;
	pthread_mutex_lock(&c->lock);
	draining = c->draining;
	if (!draining) {
		q->refs++;
		q->is_live = 1;
		q->before = NULL;
		q->after = c->live;
		if (c->live)
			c->live->before = q;
		c->live = q;
	}
	pthread_mutex_unlock(&c->lock);
	if (!draining) {
		core_do(c, &c->prompts, &q->task);
		return;
	}
	fault_shutdown(&f);
	fail(q, &f);
}

enum query_state query_state(struct query *q, int *status, int *retry_s,
			     char **body, size_t *len)
{
	enum query_state state;

	pthread_mutex_lock(&q->lock);
	state = q->state;
	*status = q->fault.status ? q->fault.status : 200;
	*retry_s = q->fault.retry_s;
	if (state == QUERY_ANSWER) {
		*len = q->out.len;
		*body = str_detach(&q->out);
	}
	pthread_mutex_unlock(&q->lock);
	return state;
}

ssize_t query_read(struct query *q, char *buf, size_t max)
{
	size_t n;
	int done, torn;

	pthread_mutex_lock(&q->lock);
	n = q->out.len - q->sent;
	n = n < max ? n : max;
	if (n)
		memcpy(buf, q->out.buf + q->sent, n);
	q->sent += n;
	torn = q->out.failed;
	done = q->done;
	if (q->sent == q->out.len && !torn) {
		str_reset(&q->out);
		q->sent = 0;
	}
	pthread_mutex_unlock(&q->lock);
	return n ? (ssize_t)n : torn ? -2 : done ? -1 : 0;
}

void query_leave(struct query *q)
{
	struct core *c = q->c;

	pthread_mutex_lock(&q->lock);
	q->gone = 1;
	pthread_mutex_unlock(&q->lock);
	pthread_mutex_lock(&c->lock);
	if (q->is_live)
		query_has_news(q);
	pthread_mutex_unlock(&c->lock);
	drop_ref(q);
}

/* Finds the longest beginning of the conversation whose last answer is ours,
 * and takes its tokens as they were drawn: how many messages; 0: none. */
static size_t recall_start(struct query *q, struct tok_ids *out)
{
	size_t n = json_len(q->w.messages), i = 0;
	struct recall_key *k = calloc(n + 1, sizeof *k);
	const struct json *m = json_first(q->w.messages);
	char *ours = calloc(n + 1, 1);

	if (!k || !ours || recall_begin(q->c->recall, &k[0], q->w.tools))
		n = 0;
	for (; i < n; m = json_next(m), i++) {
		k[i + 1] = k[i];
		if (recall_add(q->c->recall, &k[i + 1], m))
			break;
		ours[i] = !strcmp(json_get_str(m, "role", ""), "assistant");
	}
	if (k)
		q->key = k[i];
	while (i > 0 && !(ours[i - 1] &&
			  recall_get(q->c->recall, &k[i], out,
				     &q->home)))
		i--;
	free(ours);
	free(k);
	return i;
}

static int encode_chat(struct query *q, struct tok_ids *out, struct fault *f)
{
	struct prompt *p = q->c->prompt;
	struct err e = ERR_INIT;
	size_t known = recall_start(q, out);
	int rc = 0;

	if (known)
		rc = prompt_chat_on(p, q->w.messages, known, q->w.tools, out,
				    &e);
	if (rc == 0) {
		out->n = 0;
		rc = prompt_chat(p, q->w.messages, q->w.tools, out, &e);
	}
	return rc < 0 ? fault_of(f, &e, "messages") : 0;
}

/* The ids of prompt number i. */
static int encode(struct query *q, int i, struct fault *f)
{
	struct tok_ids *out = &q->prompt[i];
	struct err e = ERR_INIT;
	const struct json *p;

	if (q->w.kind == WANT_CHAT)
		return encode_chat(q, out, f);
	if (q->w.ids.n) {
		*out = q->w.ids;
		q->w.ids = (struct tok_ids)TOK_IDS_INIT;
		return 0;
	}
	p = want_prompt(&q->w, i);
	if (json_type(p) == JSON_STRING) {
		const char *text = json_str(p, "");

		if (prompt_text(q->c->prompt, text, strlen(text), out, &e))
			return fault_of(f, &e, "prompt");
		return 0;
	}
	for (p = json_first(p); p; p = json_next(p))
		if (tok_ids_add(out, (int32_t)json_int(p, 0)))
			return fault_set(f, 500, NULL, NULL, "no memory");
	return 0;
}

static int encode_all(struct query *q, struct fault *f)
{
	int n = q->w.kind == WANT_CHAT ? 1 : q->w.nprompts;

	q->w.nprompts = n;
	q->prompt = calloc((size_t)n, sizeof *q->prompt);
	if (!q->prompt)
		return fault_set(f, 500, NULL, NULL, "no memory");
	for (int i = 0; i < n; i++)
		if (encode(q, i, f))
			return -1;
	return 0;
}

/* How many new tokens there may be behind a prompt. */
static int room(const struct query *q, const struct tok_ids *p,
		struct fault *f)
{
	int ctx = gen_ctx(q->c->gen[0]);
	int64_t left = (int64_t)ctx - (int64_t)p->n;

	if (left < 0 || (left == 0 && q->w.max_tokens))
		return fault_set(f, 400, "context_length_exceeded",
				 q->w.kind == WANT_CHAT ? "messages" :
				 "prompt", "this model's maximum context "
				 "length is %d tokens, and the prompt has %zu",
				 ctx, p->n);
	if (q->w.max_tokens >= 0 && q->w.max_tokens < left)
		left = q->w.max_tokens;
	return (int)left;
}

/* One for all choices: what may come is the same for those that have come to
 * the same place. */
static int find_guide(struct query *q, struct fault *f)
{
	const struct words *words = q->shape ? core_words(q->c) : NULL;

	if (!q->shape)
		return 0;
	q->guide = words ? guide_new(words, q->shape, !q->w.ignore_eos) : NULL;
	return q->guide ? 0 : fault_set(f, 500, NULL, NULL, "no memory");
}

/* Of all choices with one prompt the first has it scored. */
static int fill_echo(struct query *q, struct choice *h, struct fault *f)
{
	const struct want *w = &q->w;
	size_t n = (size_t)h->r.nprompt;

	h->lead = w->echo ? h->r.nprompt : 0;
	if (!w->echo || !w->logprobs || h->index % w->n)
		return 0;
	if (w->top && h->r.nprompt > QUERY_SCORED)
		return fault_set(f, 400, "invalid_value", "echo", "'echo' with "
				 "'logprobs' above 0 is for prompts of at most "
				 "%d tokens, and this one has %zu",
				 QUERY_SCORED, n);
	h->r.prompt_logprob = calloc(n, sizeof *h->r.prompt_logprob);
	if (w->top)
		h->r.prompt_top = calloc(n * (size_t)w->top,
					 sizeof *h->r.prompt_top);
	return h->r.prompt_logprob && (!w->top || h->r.prompt_top) ? 0 :
	       fault_set(f, 500, NULL, NULL, "no memory");
}

static int fill_choice(struct query *q, int i, uint64_t seed,
		       const struct gen_weights *now, struct fault *f)
{
	const struct want *w = &q->w;
	struct choice *h = &q->choice[i];
	const struct tok_ids *p = &q->prompt[i / w->n];
	struct err e = ERR_INIT;
	int most = room(q, p, f);

	if (most < 0)
		return -1;
	h->q = q;
	h->index = i;
	h->weights_now = h->weights = *now;
	h->limit = SIZE_MAX;
	h->r = (struct gen_req){
		.prompt = p->id, .nprompt = (int)p->n, .max_new = most,
		.temp = (float)w->temperature, .top_p = (float)w->top_p,
		.min_p = (float)w->min_p, .top_k = (int)w->top_k,
		.seed = seed + (uint64_t)i, .ignore_eos = w->ignore_eos,
		.party = w->party ? w->party : q->party,
		.ntop = w->top, .more = note_token, .ended = note_end,
		.ctx = h };
	if (gen_check(q->c->gen[0], &h->r, &e))
		return fault_of(f, &e, w->kind == WANT_CHAT ? "messages" :
				"prompt");
	h->r.id = calloc((size_t)most + 1, sizeof *h->r.id);
	h->r.logprob = calloc((size_t)most + 1, sizeof *h->r.logprob);
	if (fill_echo(q, h, f))
		return -1;
	h->end = calloc((size_t)(most + h->lead) + 1, sizeof *h->end);
	if (w->top)
		h->r.top = calloc((size_t)most * (size_t)w->top + 1,
				  sizeof *h->r.top);
	if (!h->r.id || !h->r.logprob || !h->end || (w->top && !h->r.top))
		return fault_set(f, 500, NULL, NULL, "no memory");
	if (!q->guide)
		return 0;
	shape_begin(q->shape, &h->at);
	h->r.mask = mask_tokens;
	h->r.ready = ready_tokens;
	h->r.mask_ctx = h;
	return 0;
}

static int fill_choices(struct query *q, struct fault *f)
{
	struct core *c = q->c;
	uint64_t seed = q->w.seed;
	int n = q->w.nprompts * q->w.n;
	struct gen_stats now;

	gen_get_stats(c->gen[0], &now);
	if (!q->w.seeded) {
		pthread_mutex_lock(&c->lock);
		seed = rng_u64(&c->seeds);
		pthread_mutex_unlock(&c->lock);
	}
	q->choice = calloc((size_t)n, sizeof *q->choice);
	if (!q->choice)
		return fault_set(f, 500, NULL, NULL, "no memory");
	q->nchoices = n;
	for (int i = 0; i < n; i++)
		if (fill_choice(q, i, seed, &now.weights, f))
			return -1;
	return 0;
}

/* A replica for each prompt.  A guide is for one thread at a time: what has one
 * is a chat, of one prompt.  With the core's lock. */
static void spread(struct query *q)
{
	struct core *c = q->c;
	int at = q->home;

	for (int i = 0; i < q->nchoices; i++) {
		if (i % q->w.n == 0)
			at = core_choose(c, i ? -1 : at);
		q->choice[i].home = at;
		c->load[at]++;
	}
	q->home = q->choice[0].home;
}

/* Counts the choices in, unless there is too much to do already. */
static int enter(struct query *q, int slots, struct fault *f)
{
	struct core *c = q->c;
	int most = slots + c->o.queue, waiting, full;
	double wait;

	pthread_mutex_lock(&c->lock);
	waiting = c->choices - slots;
	full = c->choices > 0 && c->choices + q->nchoices > most;
	if (!full) {
		c->choices += q->nchoices;
		spread(q);
		q->submitted = 1;
	}
	wait = c->mean_s * (waiting > 0 ? waiting : 1) / slots;
	pthread_mutex_unlock(&c->lock);
	if (!full)
		return 0;
	fault_set(f, 429, "too_many_requests", NULL, "%d completions are "
		  "being worked on or wait; try again later", most);
	f->retry_s = wait < 1 ? 1 : wait > RETRY_MOST ? RETRY_MOST :
		     (int)wait;
	return -1;
}

static int find_shape(struct query *q, struct fault *f)
{
	const struct want *w = &q->w;
	int marks;

	if (w->form == WANT_FREE)
		return 0;
	marks = tok_id(prompt_tok(q->c->prompt), "<tool_call>", 11) >= 0;
	q->shape = w->form == WANT_CALL ?
		   shape_call(w->tools, w->tool, marks, f) :
		   shape_json(w->form == WANT_SCHEMA ? w->schema : NULL,
			      "response_format", f);
	return q->shape ? 0 : -1;
}

static int prepare(struct query *q, struct fault *f)
{
	struct core *c = q->c;

	if (want_parse(&q->w, q->w.kind, q->body.buf ? q->body.buf : "",
		       q->body.len, &c->o.defaults, f))
		return -1;
	str_release(&q->body);
	if (q->w.model && strcmp(q->w.model, c->o.name))
		return fault_set(f, 404, "model_not_found", "model",
				 "there is no model '%.200s' here; '%s' is",
				 q->w.model, c->o.name);
	return find_shape(q, f) || find_guide(q, f) || encode_all(q, f) ||
	       fill_choices(q, f) ? -1 : 0;
}

/* Opens the stream; -1: the answer is there already (time is over). */
static int open_stream(struct query *q)
{
	int over;

	pthread_mutex_lock(&q->lock);
	over = q->done || q->gone;
	if (!over && q->w.stream) {
		q->state = QUERY_STREAM;
		for (int i = 0; i < q->nchoices; i++)
			reply_open(q, &q->choice[i], &q->out);
		wake(q);
	}
	pthread_mutex_unlock(&q->lock);
	return over ? -1 : 0;
}

/* When the last one runs, q may be gone. */
static void submit(struct query *q)
{
	struct core *c = q->c;
	struct err e = ERR_INIT;
	struct fault f;
	int n = q->nchoices;

	for (int i = 0; i < n; i++) {
		struct choice *h = &q->choice[i];

		if (!gen_submit(c->gen[h->home], &h->r, &e))
			continue;
		fault_of(&f, &e, NULL);
		fail(q, &f);
		note_end(h);
	}
}

/* Instead of submit. */
static void end_all(struct query *q)
{
	int n = q->nchoices;

	for (int i = 0; i < n; i++)
		note_end(&q->choice[i]);
}

/* Nothing was submitted, and nothing will be. */
static void abort_work(struct query *q)
{
	struct core *c = q->c;

	pthread_mutex_lock(&c->lock);
	q->aborted = 1;
	query_has_news(q);
	pthread_mutex_unlock(&c->lock);
}

static void note_prepared(const struct query *q)
{
	struct core *c = q->c;

	pthread_mutex_lock(&c->lock);
	c->prepare_s += (double)(now_ns() - q->started) * 1e-9;
	pthread_mutex_unlock(&c->lock);
}

static void prepare_task(struct task *t)
{
	struct query *q = (struct query *)(void *)
		((char *)t - offsetof(struct query, task));
	struct fault f = { 0 };
	int rc = prepare(q, &f) || enter(q, core_slots(q->c), &f);

	note_prepared(q);
	if (rc) {
		fail(q, &f);
		abort_work(q);
	} else if (open_stream(q)) {
		end_all(q);
	} else {
		submit(q);
	}
}

/* Of a choice that the engine failed on. */
static void find_failure(struct query *q)
{
	struct fault f;

	for (int i = 0; i < q->nchoices; i++) {
		struct choice *h = &q->choice[i];

		if (!h->ended || h->r.end != GEN_FAILED)
			continue;
		fault_of(&f, &h->r.err, NULL);
		f.status = f.status < 500 ? 500 : f.status;
		set_fault(q, &f);
	}
}

/* Asking again would end the same way: 400. */
static void refuse_answer(struct query *q)
{
	struct fault f;

	fault_set(&f, 400, "answer_too_large", NULL, "the answer would be "
		  "longer than 256 MiB; ask for fewer choices, tokens or "
		  "top_logprobs at once");
	set_fault(q, &f);
}

/* The answer is there.  With the lock. */
static void hand_over(struct query *q, int no_memory)
{
	struct fault f;

	if (no_memory) {
		fault_set(&f, 500, NULL, NULL, "no memory");
		set_fault(q, &f);
	} else if (q->news.failed) {
		refuse_answer(q);
	} else {
		str_release(&q->out);
		q->out = q->news;
		q->news = (struct str)STR_INIT;
		q->state = QUERY_ANSWER;
	}
	q->done = 1;
}

/* What was written is to be sent, unless a fault has ended it meanwhile.
 * With the lock. */
static void publish(struct query *q, int no_memory)
{
	if (!q->done && q->w.stream) {
		if (q->news.failed)
			q->out.failed = 1;
		else if (q->news.len)
			str_add(&q->out, q->news.buf, q->news.len);
		q->done = q->settled;
	} else if (!q->done && q->settled) {
		hand_over(q, no_memory);
	}
	str_reset(&q->news);
	wake(q);
}

/* Cancels what need not go on; without the lock, since gen has its own. */
static void cancel(struct query *q, int all)
{
	for (int i = 0; i < q->nchoices; i++)
		if (!q->choice[i].ended && (all || q->choice[i].stopped))
			gen_cancel(q->c->gen[q->choice[i].home],
				   &q->choice[i].r);
}

/* Ends it if its time is over, or the engine has failed.  Whether there is
 * something to write.  With the lock. */
static int is_open(struct query *q)
{
	struct fault f;

	if (q->late > 1 && !q->done) {
		fault_shutdown(&f);
		set_fault(q, &f);
	} else if (q->late && !q->done) {
		fault_set(&f, 504, "timeout", NULL, "the request took longer "
			  "than %g s", q->c->o.timeout_s);
		set_fault(q, &f);
	}
	if (q->runs && !q->done && !q->gone)
		find_failure(q);
	return q->runs && !q->done && !q->gone;
}

void query_tell(struct query *q)
{
	int all, open, rc;

	pthread_mutex_lock(&q->lock);
	open = is_open(q);
	pthread_mutex_unlock(&q->lock);
	rc = open ? tell_write(q) : 0;
	pthread_mutex_lock(&q->lock);
	if (open)
		publish(q, rc);
	all = q->done || q->gone;
	pthread_mutex_unlock(&q->lock);
	if (q->runs)
		cancel(q, all);
	if (q->settled)
		end_work(q);
}
