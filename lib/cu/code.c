/* SPDX-License-Identifier: Apache-2.0 */
#include "cu/code.h"

#include <elf.h>
#include <string.h>

#ifndef EM_CUDA
#define EM_CUDA 190
#endif

#define TEXT ".text."

struct sections {
	const unsigned char *image;
	size_t len;
	const unsigned char *head;	/* may lie unaligned */
	unsigned n;
	const char *names;
	size_t nnames;
};

uint64_t code_hash(const void *p, size_t n)
{
	const unsigned char *b = p;
	uint64_t h = 0xcbf29ce484222325u;

	for (size_t i = 0; i < n; i++)
		h = (h ^ b[i]) * 0x100000001b3u;
	return h;
}

static Elf64_Shdr section(const struct sections *s, unsigned i)
{
	Elf64_Shdr h;

	memcpy(&h, s->head + i * sizeof(h), sizeof(h));
	return h;
}

/* Whether its bytes lie within the image. */
static int is_inside(const struct sections *s, const Elf64_Shdr *h)
{
	return h->sh_offset <= s->len && h->sh_size <= s->len - h->sh_offset;
}

/* 0, or -1: no 64-bit ELF image whose sections can be read. */
static int open_image(struct sections *s, const void *p, size_t len,
		      Elf64_Ehdr *h)
{
	Elf64_Shdr names;

	if (len < sizeof(*h))
		return -1;
	memcpy(h, p, sizeof(*h));
	if (memcmp(h->e_ident, ELFMAG, SELFMAG) ||
	    h->e_ident[EI_CLASS] != ELFCLASS64 ||
	    h->e_shentsize != sizeof(Elf64_Shdr) || h->e_shoff > len ||
	    (len - h->e_shoff) / sizeof(Elf64_Shdr) < h->e_shnum ||
	    h->e_shstrndx >= h->e_shnum)
		return -1;
	s->image = p;
	s->len = len;
	s->head = s->image + h->e_shoff;
	s->n = h->e_shnum;
	names = section(s, h->e_shstrndx);
	if (!is_inside(s, &names))
		return -1;
	s->names = (const char *)s->image + names.sh_offset;
	s->nnames = names.sh_size;
	return 0;
}

/* Its name and the name's length; NULL when that has no end. */
static const char *name_of(const struct sections *s, const Elf64_Shdr *h,
			   size_t *len)
{
	const char *name;

	if (h->sh_name >= s->nnames)
		return NULL;
	name = s->names + h->sh_name;
	*len = strnlen(name, s->nnames - h->sh_name);
	return *len < s->nnames - h->sh_name ? name : NULL;
}

size_t code_cubin(const void *p, size_t len, code_seen *fn, void *ctx)
{
	size_t found = 0, skip = strlen(TEXT), n;
	struct sections s;
	Elf64_Ehdr e;

	if (open_image(&s, p, len, &e) || e.e_machine != EM_CUDA)
		return 0;
	for (unsigned i = 0; i < s.n; i++) {
		Elf64_Shdr h = section(&s, i);
		const char *name = name_of(&s, &h, &n);

		if (!name || n <= skip || memcmp(name, TEXT, skip) ||
		    h.sh_type == SHT_NOBITS || !is_inside(&s, &h))
			continue;
		fn(ctx, name + skip, n - skip,
		   code_hash(s.image + h.sh_offset, h.sh_size));
		found++;
	}
	return found;
}

/* Cubins begin at multiples of eight bytes. */
static size_t fat_binary(const unsigned char *p, size_t len, code_seen *fn,
			 void *ctx)
{
	size_t found = 0;

	for (size_t at = 0; at + sizeof(Elf64_Ehdr) <= len; at += 8)
		if (!memcmp(p + at, ELFMAG, SELFMAG))
			found += code_cubin(p + at, len - at, fn, ctx);
	return found;
}

size_t code_object(const void *p, size_t len, code_seen *fn, void *ctx)
{
	static const char fat[] = ".nv_fatbin";
	size_t found = 0, n;
	struct sections s;
	Elf64_Ehdr e;

	if (open_image(&s, p, len, &e))
		return 0;
	if (e.e_machine == EM_CUDA)
		return code_cubin(p, len, fn, ctx);
	for (unsigned i = 0; i < s.n; i++) {
		Elf64_Shdr h = section(&s, i);
		const char *name = name_of(&s, &h, &n);

		if (name && n == strlen(fat) && !memcmp(name, fat, n) &&
		    h.sh_type != SHT_NOBITS && is_inside(&s, &h))
			found += fat_binary(s.image + h.sh_offset, h.sh_size,
					    fn, ctx);
	}
	return found;
}
