/* SPDX-License-Identifier: Apache-2.0
 *
 * The words for a model.
 */
#include "agent/agent.h"

#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "build/device.h"

#define TEXT_CAP ((size_t)1 << 20)

static const char system_head[] =
	"You are an engineer who makes PyTorch models faster by writing %s "
	"kernels for them. You work in the directory /work with the tools "
	"that you are given: every command runs there, without a network, "
	"and nobody will answer questions. model.py holds the reference; it, "
	"SKILL.md, utils/ and examples/ cannot be changed. Write kernels/ "
	"and model_new.py. The commands ca-compile, ca-verify, ca-profile "
	"and ca-profile --reference build, check and time what lies there at "
	"that moment. When you end your turn without a tool call, the files "
	"as they are then are judged, and that is what counts.\n\n"
	"What follows is SKILL.md.\n\n";

static const char user_head[] =
	"Write a faster version of this model. This is /work/model.py:\n\n"
	"```python\n";

/* The text behind the front matter, if there is any. */
static const char *body_of(const char *text)
{
	const char *end;

	if (strncmp(text, "---\n", 4))
		return text;
	end = strstr(text + 4, "\n---\n");
	return end ? end + 5 + strspn(end + 5, "\n") : text;
}

int prompt_system(const struct agent_opts *o, struct str *out, struct err *e)
{
	char path[4200];
	struct str text = STR_INIT;
	int rc = 0;

	if (!o->single_turn)
		str_addf(out, system_head, !strcmp(o->device, "cpu") ?
			 "C or C++" : "CUDA");
	if (o->skill) {
		snprintf(path, sizeof(path), "%s/%s", o->skill,
			 o->single_turn ? "single-turn.md" : "SKILL.md");
		rc = read_file(path, TEXT_CAP, &text, e);
		if (!rc && text.buf)
			str_adds(out, body_of(text.buf));
	}
	str_release(&text);
	return rc;
}

void prompt_user(const struct agent_opts *o, const char *code,
		 struct str *out)
{
	(void)o;
	str_adds(out, user_head);
	str_adds(out, code);
	str_adds(out, ends_with(code, "\n") ? "```\n" : "\n```\n");
}
