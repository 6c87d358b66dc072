#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# ca-reward on records that were signed here, with a key of the test's own.
# Goldens stand beside reward/in.ndjson.

bats_require_minimum_version 1.5.0

setup_file() {
	cd "$BATS_TEST_DIRNAME/../.." || return
	export TOP=$PWD B=${B:-build} GOLD=$BATS_TEST_DIRNAME/reward
	export KEY=$BATS_FILE_TMPDIR/key IN=$BATS_FILE_TMPDIR/in
	head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' >"$KEY"
	chmod 600 "$KEY"
	"$B/test/sign" "$KEY" <"$GOLD/in.ndjson" >"$IN"
}

setup() {
	command -v jq >/dev/null || skip 'no jq'
	bin=${CA_BIN:-$TOP/bin}
	cd "$BATS_TEST_TMPDIR" || return
}

# reward OPTION...: the signed records through the tool, into `out`
reward() {
	"$bin/ca-reward" --trust-key "$KEY" --allow-trivial "$@" "$IN" >out
}

# What `out` says: name, value, provisional, reason.
verdicts() {
	jq -r 'select(.kind == "candidate") | [.name,
		.reward.value // "null", .reward.provisional,
		.reward.reason] | @tsv' out
}

# only NAME...: just these records, in `some`, byte for byte
only() {
	local name
	for name; do
		grep -F "\"name\": \"$name\"," "$IN"
	done >some
	[ "$(wc -l <some)" -eq $# ]
}

# says NAME TEST: whether `out` says this of a reward
says() {
	jq -es "map(select(.name == \"$1\")) | .[0].reward | $2" out
}

@test "rewards by lower bounds" {
	run -75 reward
	diff "$GOLD/plain.golden" <(verdicts)
}

@test "the rule of the paper: medians of device times" {
	run -75 reward --point-estimate --clock device-sum
	diff "$GOLD/paper.golden" <(verdicts)
}

@test "rewards by medians" {
	run -75 reward --point-estimate
	diff "$GOLD/point.golden" <(verdicts)
}

@test "raw speedups over compile and over eager" {
	run -75 reward --scheme raw
	diff "$GOLD/raw.golden" <(verdicts)
	run -75 reward --scheme raw --over eager
	says no-compile '.value == 2.5'
}

@test "a table for people" {
	run -75 reward --table
	diff "$GOLD/table.golden" out
}

@test "a table nobody reads ends quietly, one that cannot be written does not" {
	for _ in {1..300}; do cat "$IN"; done >many
	# shellcheck disable=SC2016 # the inner shell expands
	run -0 bash -c '"$1" --trust-key "$2" --allow-trivial --table many 2>err |
		head -1; echo "${PIPESTATUS[0]}"' _ "$bin/ca-reward" "$KEY"
	[ "${lines[1]}" = 141 ]
	[ ! -s err ]
	# shellcheck disable=SC2016
	run -74 bash -c '"$1" --trust-key "$2" --table many >/dev/full' \
		_ "$bin/ca-reward" "$KEY"
}

@test "one record out for each in, in order, the other fields untouched" {
	run -75 reward --no-prov
	diff <(sed 's/,"reward":{.*$/}/' out) "$IN"
	cp out first
	run -75 reward --no-prov
	cmp out first
	says fast 'has("prov") == false and (.mac | length) == 64'
	run -75 reward
	says fast .prov.date
}

@test "a record that was paid is paid the same again" {
	only fast wrong
	run -0 "$bin/ca-reward" --trust-key "$KEY" --no-prov -o once some
	run -0 "$bin/ca-reward" --trust-key "$KEY" --no-prov -o twice once
	cmp once twice
}

@test "--require tells by the exit status" {
	only fast beats-eager
	run -0 "$bin/ca-reward" --trust-key "$KEY" --require 2 some
	run -1 "$bin/ca-reward" --trust-key "$KEY" --require 3 some
	[ "${#lines[@]}" -eq 3 ]
	[ "$(grep -c 'ca-reward: .* is worth [0-9-]*, less than 3$' <<<"$output")" = 1 ]
	only shared
	run -1 "$bin/ca-reward" --trust-key "$KEY" --require -1 some
	run -0 "$bin/ca-reward" --trust-key "$KEY" --allow-shared \
		--require 3 some
	printf '' >none
	run -1 "$bin/ca-reward" --trust-key "$KEY" --require 3 none
}

@test "--no-folding, --allow-replay and --same-math" {
	only folded replayed
	"$bin/ca-reward" --trust-key "$KEY" --no-folding some >out
	[ "$(jq -c .reward.value out)" = $'1\nnull' ]
	"$bin/ca-reward" --trust-key "$KEY" --allow-replay some >out
	[ "$(jq -c .reward.value out)" = $'3\n3' ]
	"$bin/ca-reward" --trust-key "$KEY" --same-math some >out
	[ "$(jq -r .reward.reason out | head -1)" = "the profile does not say \
in which math each competitor computed" ]
}

@test "--same-math is refused where nothing tells the math" {
	run -64 "$bin/ca-reward" --same-math -d cpu "$IN"
	[[ $output == *'--same-math is for CUDA'* ]]
}

@test "options that contradict each other are refused" {
	run -64 "$bin/ca-reward" --over eager "$IN"
	[[ $output == *'--over is for --scheme raw'* ]]
	run -64 "$bin/ca-reward" --scheme cubic "$IN"
	run -66 "$bin/ca-reward" --trust-key nowhere "$IN"
	chmod 644 "$KEY"
	run -78 "$bin/ca-reward" --trust-key "$KEY" "$IN"
	chmod 600 "$KEY"
}

@test "a forged verdict is not believed: the candidate is judged again" {
	"$bin/ca-compile" --device cpu \
		"$TOP/fixtures/workdirs/cpu/bad-compile" >built
	jq -c --slurpfile f <(jq -c 'select(.name == "fast")' "$IN") \
		'. + {verify: $f[0].verify, profile: $f[0].profile}' \
		built >forged
	run -0 "$bin/ca-reward" --trust-key "$KEY" --device cpu -o out forged
	jq -e '.verify.status == "compile_error" and .reward.value == -1' out
}

@test "every status has its line in the manual" {
	grep -o '\[ST_[A-Z_]*\] = { "[a-z_]*"' "$TOP/lib/rec/status.c" |
		cut -d'"' -f2 >words
	[ "$(wc -l <words)" -ge 22 ]
	while read -r word; do
		grep -q "^\.It Cm \(.* \)\?$word\( \|\$\)" \
			"$TOP/man/ca-reward.1"
	done <words
}
