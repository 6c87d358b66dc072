/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels of built objects, and what is made of the ones that were seen.
 */
#include "tests.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>

#include "cu/code.h"
#include "judge/origin.h"

/* A cubin with one kernel, and a shared object that has it in its fat binary,
 * behind eight other bytes. */
struct image {
	Elf64_Ehdr head;
	Elf64_Shdr part[3];
	char names[64];
	char code[64];
};
struct object {
	Elf64_Ehdr head;
	Elf64_Shdr part[3];
	char names[64];
	char before[8];
	struct image cubin;
};

static void fill_head(Elf64_Ehdr *h, int machine)
{
	memset(h, 0, sizeof(*h));
	memcpy(h->e_ident, ELFMAG, SELFMAG);
	h->e_ident[EI_CLASS] = ELFCLASS64;
	h->e_machine = (Elf64_Half)machine;
	h->e_shoff = sizeof(*h);
	h->e_shentsize = sizeof(Elf64_Shdr);
	h->e_shnum = 3;
	h->e_shstrndx = 1;
}

static void make_cubin(struct image *m, const char *kernel, const char *code)
{
	memset(m, 0, sizeof(*m));
	fill_head(&m->head, 190);
	m->part[1].sh_offset = offsetof(struct image, names);
	m->part[1].sh_size = sizeof(m->names);
	m->part[2].sh_name = 1;
	m->part[2].sh_type = SHT_PROGBITS;
	m->part[2].sh_offset = offsetof(struct image, code);
	m->part[2].sh_size = sizeof(m->code);
	snprintf(m->names + 1, sizeof(m->names) - 1, ".text.%s", kernel);
	snprintf(m->code, sizeof(m->code), "%s", code);
}

static void make_object(struct object *o, const char *kernel,
			const char *code)
{
	memset(o, 0, sizeof(*o));
	fill_head(&o->head, EM_X86_64);
	o->part[1].sh_offset = offsetof(struct object, names);
	o->part[1].sh_size = sizeof(o->names);
	o->part[2].sh_name = 1;
	o->part[2].sh_type = SHT_PROGBITS;
	o->part[2].sh_offset = offsetof(struct object, before);
	o->part[2].sh_size = sizeof(o->before) + sizeof(o->cubin);
	strcpy(o->names + 1, ".nv_fatbin");
	make_cubin(&o->cubin, kernel, code);
}

struct found {
	size_t n;
	char name[64];
	uint64_t hash;
};

static void found(void *ctx, const char *name, size_t len, uint64_t hash)
{
	struct found *f = ctx;

	f->n++;
	f->hash = hash;
	snprintf(f->name, sizeof(f->name), "%.*s", (int)len, name);
}

static void kernels_are_found(void **state)
{
	struct found a = { 0 }, b = { 0 };
	struct object o;

	(void)state;
	make_object(&o, "axpby", "mul add");
	assert_int_equal(code_object(&o, sizeof(o), found, &a), 1);
	assert_string_equal(a.name, "axpby");
	assert_int_equal(code_object(&o.cubin, sizeof(o.cubin), found, &b), 1);
	assert_true(a.hash == b.hash);
	assert_true(a.hash == code_hash(o.cubin.code, sizeof(o.cubin.code)));
	make_object(&o, "axpby", "mul sub");
	code_object(&o, sizeof(o), found, &b);
	assert_true(a.hash != b.hash);
	assert_int_equal(code_object("no object", 9, found, &a), 0);
}

/* Cut and spoilt in every way: never beyond the end (under ASan). */
static void broken_objects_end(void **state)
{
	struct found f = { 0 };
	struct object o;
	unsigned char *copy;

	(void)state;
	for (size_t n = 0; n <= sizeof(o); n++) {
		make_object(&o, "axpby", "mul add");
		copy = malloc(n ? n : 1);
		assert_non_null(copy);
		memcpy(copy, &o, n);
		code_object(copy, n, found, &f);
		free(copy);
	}
	for (size_t n = 0; n < sizeof(o); n++) {
		make_object(&o, "axpby", "mul add");
		((unsigned char *)&o)[n] ^= 0xff;
		code_object(&o, sizeof(o), found, &f);
	}
}

/* Rows of a trace. */
static struct trace_row rows[4];
static struct trace_table table = { .row = rows };

static void row(enum trace_kind kind, const char *name, uint64_t code,
		double us)
{
	struct trace_row *r = &rows[table.n++];

	memset(r, 0, sizeof(*r));
	r->kind = kind;
	r->code = code;
	r->calls = 10;
	r->ns = (uint64_t)(us * 1e3 * 10);
	snprintf(r->name, sizeof(r->name), "%s", name);
}

static int verdict(const struct origin_known *o)
{
	struct origin g = { 0 };
	char text[256];
	int rc;

	table.iterations = 10;
	origin_add(&g, o, &table, 10);
	rc = origin_judge(&g, 1, text, sizeof(text));
	table.n = 0;
	return rc;
}

static struct origin_known learnt(const char *kernel, uint64_t *code)
{
	struct origin_known known;
	struct object o;

	make_object(&o, kernel, "mul add");
	*code = code_hash(o.cubin.code, sizeof(o.cubin.code));
	assert_int_equal(origin_learn(&known, &o, sizeof(o)), 0);
	assert_int_equal(known.n, 1);
	return known;
}

#define ATEN "_ZN2at6native18elementwise_kernelILi128EEEvv"

static void whose_time_it_was(void **state)
{
	uint64_t code;
	struct origin_known o = learnt("axpby", &code);

	(void)state;
	row(TRACE_KERNEL, "axpby", code, 100);
	assert_int_equal(verdict(&o), 0);
	row(TRACE_KERNEL, "axpby", code, 100);
	row(TRACE_KERNEL, ATEN, 77, 20);	/* moving data */
	assert_int_equal(verdict(&o), 0);
	row(TRACE_KERNEL, "axpby", code, 2);	/* a decoy */
	row(TRACE_KERNEL, ATEN, 77, 100);
	assert_int_equal(verdict(&o), 1);
	row(TRACE_KERNEL, ATEN, 77, 100);
	assert_int_equal(verdict(&o), 1);
	row(TRACE_KERNEL, ATEN, 77, 5);		/* however short */
	assert_int_equal(verdict(&o), 1);
	row(TRACE_KERNEL, "axpby", code, 5);	/* nobody minds so little */
	row(TRACE_FILL, "[fill]", 0, 3);
	assert_int_equal(verdict(&o), 0);
	row(TRACE_KERNEL, "axpby", code, 100);
	row(TRACE_COPY, "[copy]", 0, 300);
	assert_int_equal(verdict(&o), 1);
	row(TRACE_KERNEL, "sm90_xmma_gemm_f32", 5, 100);
	row(TRACE_KERNEL, "axpby", code, 100);
	assert_int_equal(verdict(&o), 1);
	o.may_blas = 1;
	row(TRACE_KERNEL, "sm90_xmma_gemm_f32", 5, 100);
	assert_int_equal(verdict(&o), 0);
	row(TRACE_KERNEL, "_Z13reduce_kernelv", 9, 100);	/* its too */
	assert_int_equal(verdict(&o), 0);
	/* cuDNN's own */
	row(TRACE_KERNEL, "_ZN3DSE10vector_fftILi0ELi1ELi128ELi8EEEv", 9, 100);
	assert_int_equal(verdict(&o), 0);
	row(TRACE_KERNEL, "void DSE::regular_fft_pad<0, 1, 256>(float2*)", 9,
	    100);
	assert_int_equal(verdict(&o), 0);
	/* of libraries that an object cannot be linked with */
	row(TRACE_KERNEL, "axpby", code, 2);
	row(TRACE_KERNEL, "_Z10vector_fftILj256ELj4EEv", 9, 100);
	assert_int_equal(verdict(&o), 1);
	row(TRACE_KERNEL, "axpby", code, 2);
	row(TRACE_KERNEL, "_ZN8cusparse15csrmm_v2_kernelE", 9, 100);
	assert_int_equal(verdict(&o), 1);
	row(TRACE_KERNEL, ATEN, 5, 100);
	row(TRACE_KERNEL, "sm90_xmma_gemm_f32", 5, 100);
	assert_int_equal(verdict(&o), 1);
	origin_forget(&o);
}

/* By what a kernel is made of, not by what it is called. */
static void names_prove_little(void **state)
{
	uint64_t code;
	struct origin_known o = learnt(ATEN, &code);

	(void)state;
	row(TRACE_KERNEL, ATEN, code, 100);	/* the object's, truly */
	assert_int_equal(verdict(&o), 0);
	row(TRACE_KERNEL, ATEN, code + 1, 100);
	assert_int_equal(verdict(&o), 1);
	row(TRACE_KERNEL, ATEN, 0, 100);
	assert_int_equal(verdict(&o), 1);
	row(TRACE_KERNEL, ATEN, TRACE_TWO, 100);
	assert_int_equal(verdict(&o), 1);
	origin_forget(&o);
	o = learnt("axpby", &code);
	row(TRACE_KERNEL, "axpby", 0, 100);	/* a driver that tells less */
	assert_int_equal(verdict(&o), 0);
	row(TRACE_KERNEL, "axpby", TRACE_TWO, 100);
	assert_int_equal(verdict(&o), 1);
	origin_forget(&o);
}

static void missing_evidence_is_worse(void **state)
{
	uint64_t code;
	struct origin_known o = learnt("axpby", &code), none = { 0 };
	struct origin g = { 0 };
	char text[256];

	(void)state;
	origin_add(&g, &o, NULL, 10);
	assert_int_equal(origin_judge(&g, 1, text, sizeof(text)), -1);
	memset(&g, 0, sizeof(g));
	row(TRACE_KERNEL, "axpby", code, 100);
	table.iterations = 4;
	origin_add(&g, &o, &table, 10);
	assert_int_equal(origin_judge(&g, 1, text, sizeof(text)), -1);
	memset(&g, 0, sizeof(g));
	table.iterations = 10;
	table.lost = 1;
	origin_add(&g, &o, &table, 10);
	assert_int_equal(origin_judge(&g, 1, text, sizeof(text)), -1);
	table.lost = 0;
	row(TRACE_KERNEL, "sm90_xmma_gemm_f32", 5, 100);
	assert_int_equal(verdict(&none), -1);
	none.may_blas = 1;			/* nothing else is needed */
	row(TRACE_KERNEL, "sm90_xmma_gemm_f32", 5, 100);
	assert_int_equal(verdict(&none), 0);
	memset(&g, 0, sizeof(g));		/* nobody asked */
	assert_int_equal(origin_judge(&g, 1, text, sizeof(text)), 0);
	origin_forget(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kernels_are_found),
		cmocka_unit_test(broken_objects_end),
		cmocka_unit_test(whose_time_it_was),
		cmocka_unit_test(names_prove_little),
		cmocka_unit_test(missing_evidence_is_worse),
	};

	return RUN_TESTS(tests);
}
