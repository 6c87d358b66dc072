/* SPDX-License-Identifier: Apache-2.0
 *
 * Which form a candidate has.
 */
#include "build/form.h"

#include <ctype.h>
#include <string.h>

const char *form_name(enum build_form f)
{
	static const char *const name[] = { "light", "kernel", "paper",
					    "inline" };

	return name[f];
}

size_t form_python_string(const char *text)
{
	const char *s = text;
	char q = *s;
	int triple;

	if (q != '"' && q != '\'')
		return 0;
	triple = s[1] == q && s[2] == q;
	for (s += triple ? 3 : 1; *s; s++) {
		if (*s == '\\' && s[1])
			s++;
		else if (*s == '\n' && !triple)
			break;
		else if (*s == q && !triple)
			return (size_t)(s + 1 - text);
		else if (*s == q && s[1] == q && s[2] == q)
			return (size_t)(s + 3 - text);
	}
	return (size_t)(s - text);
}

size_t form_python_word(const char *text)
{
	const char *s = text;

	while (isalnum((unsigned char)*s) || *s == '_' ||
	       (unsigned char)*s >= 0x80)
		s++;
	return (size_t)(s - text);
}

int form_python_calls(const char *s, const char *name)
{
	size_t n = strlen(name), word, string;
	const char *w;
	int def = 0;

	while (*s) {
		string = form_python_string(s);
		word = form_python_word(s);
		if (*s == '#') {
			s += strcspn(s, "\n");
		} else if (string) {
			s += string;
		} else if (word) {
			w = s;
			s += word;
			s += strspn(s, " \t");
			if (!def && *s == '(' && word == n &&
			    memcmp(w, name, n) == 0)
				return 1;
			def = word == 3 && memcmp(w, "def", 3) == 0;
		} else {
			s++;
		}
	}
	return 0;
}

/* torch.load and np.load are calls of `load` too, so that one counts only
 * where the extension loader is in sight. */
static int is_inline(const char *text)
{
	return form_python_calls(text, "load_inline") ||
	       (strstr(text, "cpp_extension") &&
		form_python_calls(text, "load"));
}

static int has_binding(const struct source_tree *t)
{
	size_t i;

	for (i = 0; i < t->n; i++)
		if (source_compiled(t->file[i].path) &&
		    ends_with(t->file[i].path, "_binding.cpp"))
			return 1;
	return 0;
}

static int only_cuda(const struct source_tree *t)
{
	size_t i;
	int any = 0;

	for (i = 0; i < t->n; i++) {
		if (!source_compiled(t->file[i].path) ||
		    !starts_with(t->file[i].path, "kernels/"))
			continue;
		if (!ends_with(t->file[i].path, ".cu"))
			return 0;
		any = 1;
	}
	return any;
}

enum build_form form_detect(const struct source_tree *t,
			    const struct decls *d,
			    const struct launch_set *l, int cuda)
{
	const struct source_file *m = source_find(t, "model_new.py");

	if (has_binding(t))
		return FORM_PAPER;
	if (m && is_inline(m->text))
		return FORM_INLINE;
	if (cuda && only_cuda(t) && !d->launches && l->n > 0 &&
	    (size_t)l->kernels == l->n)
		return FORM_KERNEL;
	return FORM_LIGHT;
}
