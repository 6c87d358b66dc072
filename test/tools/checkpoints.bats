#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Checkpoints of a training step: going on from one gives the same bits, and
# a damaged one is refused.

here=$BATS_TEST_DIRNAME
top=$(cd "$here/../.." && pwd)
nn=$top/${B:-build}/test/nn

setup() {
	cd "$BATS_TEST_TMPDIR" || return
	python3 "$here/serve_model.py" model
}

@test "training resumed from a checkpoint is the same training" {
	"$nn" resume model whole 5
	"$nn" resume model parts 2
	[ "$("$nn" resume model parts 3)" = '{"cursor":[7]}' ]
	for f in model.safetensors optimizer.safetensors train.json; do
		cmp whole/$f parts/$f
	done
	cmp -s whole/model.safetensors parts.prev/model.safetensors && return 1
	cmp model/tokenizer.json parts/tokenizer.json
	[ "$(jq .step parts/train.json)" = 5 ]
	[ ! -e parts.new ]
}

@test "a checkpoint is a model" {
	"$nn" resume model saved 3
	echo '{"kind":"prompt","v":1,"text":"in","seed":"3"}' >in
	for m in model saved; do
		"${CA_BIN:-$top/bin}/ca-serve" --generate --device cpu --model $m --max-tokens 5 in >$m.out
		[ "$(jq '.completion.tokens | length' $m.out)" -ge 1 ]
	done
}

@test "a damaged checkpoint is refused by name" {
	"$nn" resume model saved 1
	for f in model.safetensors optimizer.safetensors train.json config.json; do
		cp -r saved hurt
		printf 'x' | dd of=hurt/$f bs=1 seek=100 conv=notrunc 2>/dev/null
		status=0
		"$nn" resume model hurt 1 2>err || status=$?
		[ "$status" = 65 ]
		grep -qF "hurt/$f' is not what was written" err
		truncate -s -1 hurt/$f
		"$nn" resume model hurt 1 2>err && return 1
		rm hurt/$f
		"$nn" resume model hurt 1 2>err && return 1
		grep -qF "$f" err
		rm -r hurt
	done
	for v in '1 earlier' '3 later'; do
		sed "s/\"v\":2/\"v\":${v% *}/" saved/manifest.json >other
		cp -r saved hurt
		mv other hurt/manifest.json
		status=0
		"$nn" resume model hurt 1 2>err || status=$?
		[ "$status" = 65 ]
		grep -qF "'hurt' is a checkpoint of a" err
		grep -qF "${v#* } version, which this one cannot go on from" err
		rm -r hurt
	done
	rm saved/manifest.json
	"$nn" resume model saved 1 2>err && return 1
	grep -qF manifest.json err
}

@test "what a killed save left is in nobody's way" {
	"$nn" resume model saved 1
	mkdir saved.new
	echo half >saved.new/model.safetensors
	"$nn" resume model saved 1
	[ "$(jq .step saved/train.json)" = 2 ]
	[ "$(jq .step saved.prev/train.json)" = 1 ]
}
