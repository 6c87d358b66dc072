/* SPDX-License-Identifier: Apache-2.0
 *
 * What test/models compares with the real libraries.
 *
 * nn tok DIR LINES: the ids of each line of a file (4 bytes of length, then
 * the text): their number, then they.
 *
 * nn step DIR DEVICE DTYPE IN: one training step's forward and backward.  IN
 * holds int32: sequences, rows of output, sets of targets, recompute; where
 * sequences begin (and the end of the last); ids; the rows; the sets of
 * targets; then fp32: dlp and dent of each row.  Written are fp32: the
 * log-probabilities of each set, the entropies, and for each tensor of the
 * model, in the order of its names on stderr, the gradient of the last set.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "nn/tok.h"
#include "nn/train.h"

static struct err e = ERR_INIT;

static int tokens(const char *dir, const char *path)
{
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

static void write_gradients(struct train *t)
{
	const struct nn_model *m = train_model(t);

	for (size_t i = 0; i < m->nparams; i++) {
		const struct nn_param *p = &m->param[i];
		float *all = malloc(p->n * sizeof *all);

		if (!all || train_read(t, TRAIN_GRADIENT, p, all, &e))
			die_err(&e);
		for (int k = 0; k < p->parts; k++)
			fprintf(stderr, "%s\n", p->name[k]);
		fwrite(all, sizeof *all, p->n, stdout);
		free(all);
	}
}

static int step(const char *dir, const char *device, const char *dtype,
		const char *path)
{
	struct str in = STR_INIT;
	const int32_t *head, *first;
	struct train_opts o = { .dir = dir, .device = device };
	struct train_batch b = { .inv_temp = 1 };
	struct train *t;
	const float *dlp;
	float *lp, *ent;
	size_t n;

	if (read_file(path, (size_t)1 << 28, &in, &e))
		die_err(&e);
	head = (const int32_t *)(const void *)in.buf;
	first = head + 4;
	b.nseq = head[0];
	b.nout = head[1];
	b.first = first;
	b.ids = first + b.nseq + 1;
	b.row = b.ids + first[b.nseq];
	b.target = b.row + b.nout;
	dlp = (const float *)(b.target + (size_t)head[2] * (size_t)b.nout);
	o.type = strcmp(dtype, "bf16") ? GPU_F32 : GPU_BF16;
	o.tokens = first[b.nseq];
	o.seqs = b.nseq;
	o.recompute = head[3];
	for (int s = 0; s < b.nseq; s++)
		if (first[s + 1] - first[s] > o.positions)
			o.positions = first[s + 1] - first[s];
	t = train_open(&o, NULL, &e);
	if (!t)
		die_err(&e);
	n = (size_t)b.nout;
	lp = calloc(2 * n, sizeof *lp);
	ent = lp + n;
	for (int k = 0; k < head[2]; k++, b.target += n) {
		if (train_forward(t, &b, lp, ent, &e))
			die_err(&e);
		fwrite(lp, sizeof *lp, n, stdout);
	}
	fwrite(ent, sizeof *ent, n, stdout);
	if (train_backward(t, dlp, train_model(t)->cfg.head == NN_HEAD_LM ?
			   dlp + n : NULL, &e))
		die_err(&e);
	write_gradients(t);
	train_close(t);
	free(lp);
	str_release(&in);
	return fflush(stdout) ? CA_IOERR : 0;
}

int main(int argc, char **argv)
{
	gpu_calm_threads(argv);
	if (argc == 4 && !strcmp(argv[1], "tok"))
		return tokens(argv[2], argv[3]);
	if (argc == 6 && !strcmp(argv[1], "step"))
		return step(argv[2], argv[3], argv[4], argv[5]);
	die(CA_USAGE, "usage: nn tok DIR LINES | nn step DIR DEVICE DTYPE IN");
}
