/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels by the code they were made of.
 */
#include "judge/origin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "build/audit.h"
#include "cu/code.h"
#include "judge/kernels.h"

#define KERNELS_MAX 65536
#define FOREIGN_SHARE 0.25	/* ATen may move data for so much of a call */
#define FREE_NS 10e3		/* nobody minds, in a call, */
#define FREE_PART 10e3		/* and for each result */
#define SEEN_SHARE 0.5		/* of the calls, at least */

struct learner {
	struct origin_known *o;
	size_t alloc;
	int failed;
};

static void learn(void *ctx, const char *name, size_t len, uint64_t hash)
{
	struct learner *l = ctx;
	struct origin_known *o = l->o;
	size_t alloc = l->alloc ? 2 * l->alloc : 64;
	struct origin_kernel *k;

	if (o->n == l->alloc) {
		k = alloc > KERNELS_MAX ? NULL :
		    realloc(o->k, alloc * sizeof(*k));
		if (!k) {
			l->failed = 1;
			return;
		}
		o->k = k;
		l->alloc = alloc;
	}
	o->k[o->n++] = (struct origin_kernel){ code_hash(name, len), hash };
}

int origin_learn(struct origin_known *o, const void *image, size_t len)
{
	struct learner l = { o, 0, 0 };

	memset(o, 0, sizeof(*o));
	code_object(image, len, learn, &l);
	o->may_blas = audit_wants_blas(image, len);
	if (!l.failed)
		return 0;
	origin_forget(o);
	return -1;
}

void origin_forget(struct origin_known *o)
{
	free(o->k);
	memset(o, 0, sizeof(*o));
}

static int has_part(const char *name, const char *const *part)
{
	for (; *part; part++)
		if (strstr(name, *part))
			return 1;
	return 0;
}

/* cuFFT's, not cuDNN's for convolutions, which have a namespace of theirs. */
static int is_fft(const char *name)
{
	static const char *const part[] = {
		"vector_fft", "regular_fft", "way_fft", "bluestein", "Radix0",
		NULL,
	};

	return has_part(name, part) && !strstr(name, "DSE::") &&
	       !strstr(name, "3DSE");
}

/* ATen's, and those of the libraries that only ATen may call (cuFFT, cuSPARSE,
 * cuSOLVER, cuRAND). */
static int is_atens(const char *name)
{
	static const char *const part[] = {
		"2at6native", "at::native", "2at4cuda", "triton_", "flash_fwd",
		"fmha", "cub::", "3cub", "thrust", "cufft", "cusparse",
		"cusolver", "curand", NULL,
	};

	return has_part(name, part) || is_fft(name);
}

/* Names as the libraries' own kernels have them, mangled or not: nobody else's
 * kernel is known by such a name alone. */
static int is_librarys(const char *name)
{
	static const char *const part[] = {
		"cutlass", "cublas", "cudnn", "gemm", "gemv", "splitK",
		"nvjet", "xmma", "cask", "implicit_convolve", "winograd", NULL,
	};

	return is_atens(name) || has_part(name, part);
}

/* 2: a kernel of the object, instruction by instruction (a long name is cut in
 * a trace); 1: one of its names, and what it is made of is not known, or not
 * what was built; 0: neither. */
static int is_own(const struct origin_known *o, const struct trace_row *r)
{
	uint64_t name = code_hash(r->name, strlen(r->name));
	int known = 0;

	for (size_t i = 0; i < o->n; i++) {
		if (r->code != TRACE_TWO && r->code &&
		    o->k[i].code == r->code)
			return 2;
		known |= o->k[i].name == name;
	}
	return known;
}

enum origin_place origin_place(const struct origin_known *o,
			       const struct trace_row *r)
{
	int own;

	if (r->kind != TRACE_KERNEL)
		return ORIGIN_MOVED;
	own = is_own(o, r);
	if (own == 2 || (own && r->code != TRACE_TWO && !is_librarys(r->name)))
		return ORIGIN_OWN;
	/* cuBLAS has kernels of every name. */
	return o->may_blas && !is_atens(r->name) ? ORIGIN_BLAS :
						   ORIGIN_FOREIGN;
}

void origin_add(struct origin *sum, const struct origin_known *o,
		const struct trace_table *t, uint64_t expected)
{
	sum->expected += expected;
	sum->known = o->n || o->may_blas;
	if (!t)
		return;
	sum->calls += t->iterations;
	sum->lost += t->lost;
	for (size_t i = 0; i < t->n; i++) {
		const struct trace_row *r = &t->row[i];
		enum origin_place p = origin_place(o, r);

		sum->ns[p] += (double)r->ns;
		if (p != ORIGIN_FOREIGN || (double)r->ns <= sum->foreign_ns)
			continue;
		sum->foreign_ns = (double)r->ns;
		kernels_name(r->name, sum->foreign, sizeof(sum->foreign));
	}
}

int origin_judge(const struct origin *g, unsigned parts, char *text,
		 size_t len)
{
	double own = g->ns[ORIGIN_OWN] + g->ns[ORIGIN_BLAS];
	double other = g->ns[ORIGIN_FOREIGN] + g->ns[ORIGIN_MOVED];
	double all = own + other, calls = (double)g->calls;

	if (!g->expected)
		return 0;
	if (!g->known) {
		snprintf(text, len, "the kernels of the built object cannot "
			 "be read");
		return -1;
	}
	if (calls < SEEN_SHARE * (double)g->expected || g->lost) {
		snprintf(text, len, "of %llu calls the kernels of %llu were "
			 "seen, and %llu records are lost",
			 (unsigned long long)g->expected,
			 (unsigned long long)g->calls,
			 (unsigned long long)g->lost);
		return -1;
	}
	if (!(own > 0)) {
		snprintf(text, len, "no kernel of the candidate's ran in %llu "
			 "calls", (unsigned long long)g->calls);
		return 1;
	}
	if (other <= FOREIGN_SHARE * all ||
	    other <= (FREE_NS + FREE_PART * parts) * calls)
		return 0;
	snprintf(text, len, "%.0f %% of a call's time on the GPU (%.0f us) "
		 "went to kernels that are not the candidate's, most of it to "
		 "%s", 100 * other / all, other / calls / 1e3,
		 *g->foreign ? g->foreign : "copies");
	return 1;
}

void origin_write(const struct origin *g, int measured, struct jw *w)
{
	static const char *const name[ORIGIN_PLACES] = {
		"own", "blas", "other", "moved",
	};
	double per = g->calls ? 1e3 * (double)g->calls : 1;

	if (!g->calls) {
		jw_null(w);
		return;
	}
	jw_obj(w);
	jw_kstr(w, "by", "cupti");
	jw_kint(w, "calls", (int64_t)g->calls);
	if (measured) {
		jw_key(w, "us");
		jw_obj(w);
		for (int i = 0; i < ORIGIN_PLACES; i++)
			jw_knum(w, name[i], g->ns[i] / per);
		jw_end_obj(w);
		jw_kint(w, "lost", (int64_t)g->lost);
		jw_kstr(w, "foreign", *g->foreign ? g->foreign : NULL);
	}
	jw_end_obj(w);
}
