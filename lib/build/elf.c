/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions that a built object offers, and the names it wants.
 */
#include "build/elf.h"

#include <gelf.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define SYMBOLS_MAX 1000000

/* libelf keeps no promise about threads. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int by_name(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The section of dynamic symbols, else the one of all symbols. */
static Elf_Scn *symbol_section(Elf *elf, GElf_Shdr *hdr)
{
	Elf_Scn *s = NULL, *plain = NULL;
	GElf_Shdr h;

	while ((s = elf_nextscn(elf, s))) {
		if (!gelf_getshdr(s, &h))
			continue;
		if (h.sh_type == SHT_DYNSYM) {
			*hdr = h;
			return s;
		}
		if (h.sh_type == SHT_SYMTAB)
			plain = s;
	}
	return plain && gelf_getshdr(plain, hdr) ? plain : NULL;
}

/* Functions for others, or what it wants of others: data too. */
static int is_meant(const GElf_Sym *sym, int wanted)
{
	if (GELF_ST_BIND(sym->st_info) == STB_LOCAL)
		return 0;
	if (wanted)
		return sym->st_shndx == SHN_UNDEF;
	return sym->st_shndx != SHN_UNDEF &&
	       GELF_ST_TYPE(sym->st_info) == STT_FUNC;
}

static int collect(Elf *elf, int wanted, struct arena *a, const char ***names,
		   size_t *n, struct err *e)
{
	GElf_Shdr hdr;
	GElf_Sym sym;
	Elf_Scn *s = symbol_section(elf, &hdr);
	Elf_Data *data = s ? elf_getdata(s, NULL) : NULL;
	const char *name;
	size_t count, i;

	*n = 0;
	if (!data || !hdr.sh_entsize)
		return err_set(e, CA_DATAERR, "object has no symbols");
	count = data->d_size / hdr.sh_entsize;
	if (count > SYMBOLS_MAX)
		return err_set(e, CA_DATAERR, "object has %zu symbols", count);
	*names = arena_alloc(a, count + 1, sizeof(**names));
	if (!*names)
		return err_set(e, CA_SOFTWARE, "out of memory");
	for (i = 0; i < count; i++) {
		if (!gelf_getsym(data, (int)i, &sym) || !is_meant(&sym, wanted))
			continue;
		name = elf_strptr(elf, hdr.sh_link, sym.st_name);
		if (name && *name)
			(*names)[(*n)++] = arena_strdup(a, name);
	}
	for (i = 0; i < *n; i++)
		if (!(*names)[i])
			return err_set(e, CA_SOFTWARE, "out of memory");
	qsort(*names, *n, sizeof(**names), by_name);
	return 0;
}

static int read_names(const void *image, size_t len, int wanted,
		      struct arena *a, const char ***names, size_t *n,
		      struct err *e)
{
	char *copy = malloc(len ? len : 1);
	Elf *elf = NULL;
	int rc = -1;

	if (!copy)
		return err_set(e, CA_SOFTWARE, "out of memory");
	memcpy(copy, image, len);	/* libelf may convert in place */
	pthread_mutex_lock(&lock);
	if (elf_version(EV_CURRENT) != EV_NONE)
		elf = elf_memory(copy, len);
	if (!elf || elf_kind(elf) != ELF_K_ELF)
		err_set(e, CA_DATAERR, "object is no ELF file");
	else
		rc = collect(elf, wanted, a, names, n, e);
	if (elf)
		elf_end(elf);
	pthread_mutex_unlock(&lock);
	free(copy);
	return rc;
}

int elf_functions(const void *image, size_t len, struct arena *a,
		  const char ***names, size_t *n, struct err *e)
{
	return read_names(image, len, 0, a, names, n, e);
}

int elf_wanted(const void *image, size_t len, struct arena *a,
	       const char ***names, size_t *n, struct err *e)
{
	return read_names(image, len, 1, a, names, n, e);
}
