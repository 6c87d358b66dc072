#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The tokenizer against the library `tokenizers`, on 10,000 lines: code, CJK,
# emoji, combining marks, control characters, lines of a megabyte.

load models

@test "ids are those of tokenizers, for three families" {
	need_models
	cd "$BATS_TEST_TMPDIR" || return
	"$py" "$here/lines.py" .
	for family in smol qwen llama; do
		"$nn" tok $family lines.bin >ours
		cmp ours $family/ids.bin
	done
}

@test "ids are those of tokenizers, for SmolLM2's own tokenizer" {
	need_models
	smol=$(cache_dir)/smol
	[ -f "$smol/tokenizer.json" ] || skip "no SmolLM2 in $smol"
	cd "$BATS_TEST_TMPDIR" || return
	"$py" "$here/lines.py" . "$smol/tokenizer.json"
	"$nn" tok "$smol" lines.bin >ours
	cmp ours smol/ids.bin
}
