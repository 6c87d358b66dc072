/* SPDX-License-Identifier: Apache-2.0
 *
 * nn tok DIR LINES: the ids of each line of a file (4 bytes of length, then
 * the text), as test/models/lines.py writes them: their number, then they.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn/tok.h"

static int tokens(const char *dir, const char *path)
{
	struct err e = ERR_INIT;
	struct tok *t = tok_open(dir, &e);
	struct tok_ids ids = TOK_IDS_INIT;
	FILE *f = fopen(path, "rb");
	static char line[4 << 20];
	uint32_t len, n;

	if (!t)
		die_err(&e);
	if (!f)
		die(CA_NOINPUT, "cannot open '%s'", path);
	while (fread(&len, 4, 1, f) == 1 && len <= sizeof line &&
	       fread(line, 1, len, f) == len) {
		ids.n = 0;
		if (tok_encode(t, line, len, 0, &ids, &e))
			die_err(&e);
		n = (uint32_t)ids.n;
		fwrite(&n, 4, 1, stdout);
		fwrite(ids.id, sizeof *ids.id, n, stdout);
	}
	fclose(f);
	tok_ids_release(&ids);
	tok_free(t);
	return fflush(stdout) ? CA_IOERR : 0;
}

int main(int argc, char **argv)
{
	if (argc == 4 && !strcmp(argv[1], "tok"))
		return tokens(argv[2], argv[3]);
	die(CA_USAGE, "usage: nn tok DIR LINES");
}
