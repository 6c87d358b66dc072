/* SPDX-License-Identifier: Apache-2.0
 *
 * sign KEYFILE: signs the fields build, verify and profile of the records on
 * stdin, as the stages that make them would.
 */
#include <stdio.h>
#include <string.h>

#include "rec/mac.h"

static const char *const fields[] = { "build", "verify", "profile" };

static int sign(const struct mac_key *k, struct rec *r, struct err *e)
{
	const char *uses[4] = { NULL };

	for (int i = 0; i < 3; i++) {
		size_t len;
		const char *text = rec_text(r, fields[i], &len);

		if (text && mac_set(k, r, fields[i], text, len, uses, e))
			return -1;
		uses[i] = fields[i];
	}
	return 0;
}

int main(int argc, char **argv)
{
	char line[65536];
	struct mac_key k;
	struct err e = ERR_INIT;

	if (argc != 2 || mac_key_load(&k, argv[1], &e))
		die(CA_USAGE, "no key: %s", e.msg);
	while (fgets(line, sizeof(line), stdin)) {
		struct str out = STR_INIT;
		struct rec r;
		size_t at;

		rec_init(&r);
		if (rec_parse(&r, line, strcspn(line, "\n"), &at, &e) ||
		    sign(&k, &r, &e) || rec_write(&r, &out))
			die_err(&e);
		puts(out.buf);
		str_release(&out);
		rec_release(&r);
	}
	return 0;
}
