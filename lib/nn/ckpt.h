/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints of a training: a folder that transformers loads as a model
 * (config.json, model.safetensors in fp32, the tokenizer's files), with what
 * it takes to go on: optimizer.safetensors and train.json.  manifest.json,
 * written last, has every file's size and sum.
 */
#ifndef CA_NN_CKPT_H
#define CA_NN_CKPT_H

#include "base/str.h"
#include "nn/train.h"
#include "rec/json.h"

/*
 * Writes checkpoint `dir` under another name, syncs and renames it, so that
 * `dir` is whole or was never there; one that was there before becomes
 * "DIR.prev".  `from` is the folder with the model's other files.  `state` is
 * a JSON value of the caller's (cursor, random numbers), given back by
 * ckpt_load.  A critic made of a language model gets a config.json that says
 * so.  CA_DATAERR, and nothing is changed, when a weight is not finite.
 */
int ckpt_save(struct train *t, const char *dir, const char *from,
	      const char *state, struct err *e);
/* Among ranks one calls ckpt_save, and all others this, which gives it their
 * parts. */
int ckpt_share(struct train *t, struct err *e);

/* Writes the weights alone, as a model's folder: `dir` is whole or as it was,
 * or, after an end between two renames, still there as "DIR.old".  Among ranks
 * all others call ckpt_share_weights. */
int ckpt_publish(struct train *t, const char *dir, const char *from,
		 struct err *e);
int ckpt_share_weights(struct train *t, struct err *e);

/* Makes the folders above `dir`, and sees whether ckpt_save can write there:
 * CA_CANTCREAT.  Nothing that is there is touched. */
int ckpt_try(const char *dir, struct err *e);

/* Checks the manifest: CA_DATAERR names a file that is missing or not what
 * was written, or says that another version wrote it. */
int ckpt_verify(const char *dir, struct err *e);

/* Loads the optimiser's state of a verified checkpoint into a training that
 * was opened on `dir`, and appends the caller's state. */
int ckpt_load(struct train *t, const char *dir, struct str *state,
	      struct err *e);

#endif
