/* SPDX-License-Identifier: Apache-2.0 */
#include "build/stub.h"

#include <elf.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#ifdef __aarch64__
#define MACHINE EM_AARCH64
#else
#define MACHINE EM_X86_64
#endif

enum { NONE, DYNSYM, DYNSTR, DYNAMIC, NAMES, SECTIONS };

struct image {
	Elf64_Ehdr head;
	Elf64_Sym sym;			/* the first one is none */
	Elf64_Dyn dyn[6];
	Elf64_Shdr section[SECTIONS];
	char names[40];
	char text[8 + STUB_NAME];	/* "", then the library's name */
};

static void section(struct image *m, int i, uint32_t name, uint32_t type,
		    size_t at, size_t size)
{
	m->section[i] = (Elf64_Shdr){
		.sh_name = name, .sh_type = type, .sh_offset = at,
		.sh_addr = at, .sh_size = size, .sh_addralign = 8,
		.sh_flags = i == NAMES ? 0 : SHF_ALLOC, .sh_link = DYNSTR,
	};
}

static void head(struct image *m)
{
	static const unsigned char ident[EI_NIDENT] = {
		ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB,
		EV_CURRENT,
	};

	memcpy(m->head.e_ident, ident, sizeof(ident));
	m->head.e_type = ET_DYN;
	m->head.e_machine = MACHINE;
	m->head.e_version = EV_CURRENT;
	m->head.e_ehsize = sizeof(m->head);
	m->head.e_shoff = offsetof(struct image, section);
	m->head.e_shentsize = sizeof(m->section[0]);
	m->head.e_shnum = SECTIONS;
	m->head.e_shstrndx = NAMES;
}

int stub_library(const char *soname, struct str *out)
{
	static const char names[] = "\0.dynsym\0.dynstr\0.dynamic\0.shstrtab";
	const size_t text = offsetof(struct image, text);
	struct image m;
	size_t i = 0;

	memset(&m, 0, sizeof(m));
	head(&m);
	memcpy(m.names, names, sizeof(names));
	strncpy(m.text + 1, soname, STUB_NAME - 1);
	m.dyn[i++] = (Elf64_Dyn){ DT_SONAME, { 1 } };
	m.dyn[i++] = (Elf64_Dyn){ DT_STRTAB, { text } };
	m.dyn[i++] = (Elf64_Dyn){ DT_STRSZ, { sizeof(m.text) } };
	m.dyn[i++] = (Elf64_Dyn){ DT_SYMTAB, { offsetof(struct image, sym) } };
	m.dyn[i++] = (Elf64_Dyn){ DT_SYMENT, { sizeof(m.sym) } };
	section(&m, DYNSYM, 1, SHT_DYNSYM, offsetof(struct image, sym),
		sizeof(m.sym));
	section(&m, DYNSTR, 9, SHT_STRTAB, text, sizeof(m.text));
	section(&m, DYNAMIC, 17, SHT_DYNAMIC, offsetof(struct image, dyn),
		sizeof(m.dyn));
	section(&m, NAMES, 26, SHT_STRTAB, offsetof(struct image, names),
		sizeof(m.names));
	m.section[DYNSYM].sh_entsize = sizeof(m.sym);
	m.section[DYNSYM].sh_info = 1;		/* local symbols */
	m.section[DYNAMIC].sh_entsize = sizeof(m.dyn[0]);
	return str_add(out, (const char *)&m, sizeof(m));
}

static int add(const char *name, struct arena *a, struct source_tree *out)
{
	struct source_file *f = &out->file[out->n];
	struct str s = STR_INIT;
	char *text = NULL;

	if (!stub_library(name, &s))
		text = arena_alloc(a, s.len, 1);
	if (text)
		memcpy(text, s.buf, s.len);
	f->path = arena_printf(a, "torch-lib/%s", name);
	f->text = text;
	f->len = s.len;
	str_release(&s);
	if (!text || !f->path)
		return -1;
	out->n++;
	return 0;
}

int stub_torch(const char *torch, int cuda, struct arena *a,
	       struct source_tree *out)
{
	static const char *const lib[] = {
		"libtorch_cpu.so", "libtorch.so", "libc10.so",
		"libtorch_python.so", "libtorch_cuda.so", "libc10_cuda.so",
	};
	size_t n = cuda ? 6 : 4;

	out->n = 0;
	out->file = arena_alloc(a, n, sizeof(*out->file));
	for (size_t i = 0; out->file && i < n; i++) {
		const char *path = arena_printf(a, "%s/lib/%s", torch, lib[i]);

		/* A torch that was built without CUDA lacks some. */
		if (!path || (!access(path, F_OK) && add(lib[i], a, out)))
			return -1;
	}
	return out->file ? 0 : -1;
}
