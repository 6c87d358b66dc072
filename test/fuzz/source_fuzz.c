/* SPDX-License-Identifier: Apache-2.0
 *
 * Sources of a candidate: two files from one input (split at a NUL, the first
 * byte chooses their kinds), through lexer, declarations, launchers and form.
 * Tokens stay inside the text and their lines never fall; what is found has
 * names and types, and its JSON is valid.
 */
#include <stdlib.h>
#include <string.h>

#include "build/form.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int yes)
{
	if (!yes)
		abort();
}

static void check_tokens(struct arena *a, const char *text, size_t len)
{
	struct lexer x;
	struct token t;
	unsigned line = 1;
	size_t n = 0, k;
	const char *name;
	int quoted;

	require(lex_init(&x, a, text, len) == 0);
	for (lex_next(&x, &t); t.type != TOK_END; lex_next(&x, &t)) {
		require(t.len > 0 && t.p >= x.base && t.p + t.len <= x.end);
		require(t.line >= line);
		line = t.line;
		require(++n <= len);
		name = lex_include(&t, &k, &quoted);
		require(!name || (name > t.p && name + k < t.p + t.len));
	}
}

static void check_launchers(const struct launch_set *s)
{
	struct str out = STR_INIT;
	struct jw w;
	size_t i, k;

	for (i = 0; i < s->n; i++) {
		require(s->v[i].name[0] && s->v[i].ret && s->v[i].line > 0);
		for (k = 0; k < s->v[i].narg; k++)
			require(s->v[i].arg[k].type && s->v[i].arg[k].name);
	}
	require(!s->error || (s->error_file && s->error_line > 0));
	jw_init(&w, &out);
	launch_json(s, &w);
	require(!out.failed &&
		json_check(out.buf, out.len, out.len, NULL, NULL) == 0);
	str_release(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const kind[] = { "kernels/a.cu", "kernels/a.c",
					    "kernels/a.cpp", "kernels/a.h" };
	struct arena a = ARENA_INIT;
	struct source_file file[3];
	struct source_tree tree = { file, 3 };
	struct launch_set set;
	struct decls d;
	char *text, *second;

	if (size < 1)
		return 0;
	text = malloc(size);
	require(text != NULL);
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	second = text + strlen(text);
	second += second < text + size - 1;
	memset(file, 0, sizeof(file));
	file[0].path = kind[data[0] % 4];
	file[0].text = text;
	file[1].path = "kernels/b.cuh";
	file[1].text = second;
	file[2].path = "model_new.py";
	file[2].text = text;
	file[0].len = file[2].len = strlen(text);
	file[1].len = strlen(second);
	check_tokens(&a, text, file[0].len);
	require(decl_scan(&tree, &a, &d, NULL) == 0);
	require(launch_find(&d, NULL, &a, &set, NULL) == 0);
	check_launchers(&set);
	form_detect(&tree, &d, &set, data[0] & 4);
	arena_release(&a);
	free(text);
	return 0;
}
