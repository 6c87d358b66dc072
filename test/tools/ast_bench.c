/* SPDX-License-Identifier: Apache-2.0
 *
 * ast_bench TASKS REFERENCES: what comparing costs, in CPU seconds: parsing
 * 20,000 files, the 0.9 verdict of 10^6 x 250 pairs, the exact maxima of
 * 6,000 x 250.  The files are repeated as often as it takes; what is known of
 * pairs is forgotten between rounds.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "ast/match.h"
#include "ast/parser.h"
#include "base/err.h"
#include "base/io.h"
#include "rec/json.h"

#define FILES_MAX 20000

struct corpus {
	struct ast_doc *doc;
	char **code;
	size_t n;
};

static double cpu(int who)
{
	struct rusage u;

	getrusage(who, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
		(double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static void read_corpus(const char *path, struct corpus *c)
{
	struct str s = STR_INIT;
	struct err e = ERR_INIT;
	char *line, *save = NULL;

	if (read_file(path, (size_t)250 << 20, &s, &e))
		die_err(&e);
	c->doc = calloc(FILES_MAX, sizeof(*c->doc));
	c->code = calloc(FILES_MAX, sizeof(*c->code));
	line = strtok_r(s.buf, "\n", &save);
	for (; line && c->n < FILES_MAX; line = strtok_r(NULL, "\n", &save)) {
		struct json *j = json_parse(line, strlen(line),
					    JSON_MAX_LINE, NULL, &e);

		if (!j)
			die_err(&e);
		c->code[c->n++] = strdup(json_get_str(j, "code", ""));
		json_free(j);
	}
	str_release(&s);
}

static void parse_all(struct ast_parser *p, struct corpus *c, size_t from)
{
	struct ast_doc normal;
	struct err e = ERR_INIT;

	for (size_t i = from; i < c->n; i++) {
		if (ast_parse(p, c->code[i], strlen(c->code[i]), &c->doc[i],
			      &normal, &e))
			die_err(&e);
		ast_doc_release(&normal);
	}
}

static void time_parsing(struct corpus *c)
{
	struct ast_store *s = ast_store_new();
	struct ast_parser *p = ast_parser_new(s);
	double began = cpu(RUSAGE_SELF) + cpu(RUSAGE_CHILDREN);
	size_t n = 0;

	for (; n < 20000; n += c->n) {
		parse_all(p, c, 0);
		for (size_t i = 0; i < c->n; i++)
			ast_doc_release(&c->doc[i]);
	}
	ast_parser_free(p);
	ast_store_free(s);
	printf("parse %zu files: %.2f s\n", n, cpu(RUSAGE_SELF) +
	       cpu(RUSAGE_CHILDREN) - began);
}

int main(int argc, char **argv)
{
	struct corpus task = { NULL, NULL, 0 }, ref = { NULL, NULL, 0 };
	struct ast_store *s;
	struct ast_parser *p;
	struct ast_set set;
	struct err e = ERR_INIT;
	size_t which, over = 0, n = 0;
	double began;

	if (argc != 3)
		die(CA_USAGE, "ast_bench TASKS REFERENCES");
	read_corpus(argv[1], &task);
	read_corpus(argv[2], &ref);
	if (!task.n || !ref.n)
		die(CA_DATAERR, "no tasks or no references");
	time_parsing(&task);
	s = ast_store_new();
	p = ast_parser_new(s);
	parse_all(p, &ref, 0);
	parse_all(p, &task, 0);
	if (ast_set_init(&set, ref.doc, ref.n, &e))
		die_err(&e);
	began = cpu(RUSAGE_SELF);
	for (n = 0; n < 1000000; n++)
		over += ast_exceeds(s, &set, &task.doc[n % task.n], 0.9,
				    &which) > 0;
	printf("verdicts %zu x %zu: %.2f s, %zu exceed\n", n, ref.n,
	       cpu(RUSAGE_SELF) - began, over);
	ast_store_free(s);
	began = cpu(RUSAGE_SELF);
	for (n = 0; n < 6000; n += task.n) {
		double parsing = cpu(RUSAGE_SELF);

		s = ast_store_new();
		ast_parser_free(p);
		p = ast_parser_new(s);
		parse_all(p, &ref, 0);
		parse_all(p, &task, 0);
		began += cpu(RUSAGE_SELF) - parsing;
		ast_set_init(&set, ref.doc, ref.n, &e);
		for (size_t i = 0; i < task.n; i++)
			ast_nearest(s, &set, &task.doc[i], &which);
		ast_store_free(s);
	}
	printf("maxima %zu x %zu: %.2f s\n", n, ref.n,
	       cpu(RUSAGE_SELF) - began);
	ast_parser_free(p);
	return 0;
}
