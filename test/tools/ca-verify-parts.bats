#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Candidates that read part of their input, and rounds that a reference has to
# be spared.

bats_require_minimum_version 1.5.0
load judge
load parts

setup() {
	judge_setup
}

teardown() {
	judge_teardown
}

# parts NAME EXPRESSION RESULT: the whole passes, every part of it misses
parts() {
	local name cond
	parts_task honest "$2" "$1" "$3"
	while read -r name cond; do
		parts_task "$name" "$2" "$1" "$3"
		parts_kernel "$name" "$cond"
	done < <(parts_list)
	"$bin/ca-verify" --device cpu ./* >../out
	statuses verify ../out
	[ "$(wc -l <../out)" -eq 9 ]
	[ "$(jq -rs 'map(select(.verify.status == "ok").name)[]' ../out)" = honest ]
	jq -es 'map(select(.verify.status == "wrong_value")) | length == 8' ../out
}

@test "statistics of a part of each row are no layer norm" {
	mkdir in && cd in
	parts layer_norm 'F.layer_norm(x, (65536,))' y
}

@test "a mean over a part is no mean, though each value levels off" {
	mkdir in && cd in
	parts sigmoid_mean '(torch.sigmoid(x) + x.abs() / 64).mean()' 'y.view(-1)[0]'
}

@test "a reference that refuses a distribution is spared it" {
	parts_task bce 'F.binary_cross_entropy(x, x, reduction="none")' bce y
	sed -i 's/0.25 + 2 \* torch.rand(())) \* torch.randn/1 * torch.rand(()).clamp(0.5)) * torch.rand/' bce/model.py
	cat >bce/kernels/parts.c <<-'END'
		#include <math.h>
		#include <stdint.h>
		static float part(float x, float y)
		{
			return y ? y * fmaxf(logf(x), -100) : 0;
		}
		void bce(const float *x, float *y, int64_t rows, int64_t n)
		{
			for (int64_t i = 0; i < rows * n; i++)
				y[i] = -part(x[i], x[i]) - part(1 - x[i], 1 - x[i]);
		}
	END
	"$bin/ca-verify" --device cpu bce >out
	jq -c .verify out
	jq -e '.verify | .status == "ok" and .skipped >= 2' out
}

@test "what is remembered of a task and damaged is found out anew, and said" {
	local real memo
	# shellcheck source=test/setup/lib.sh
	real=$(. "$BATS_TEST_DIRNAME/../setup/lib.sh" && cache_dir)
	# A task that nobody knows.
	{ model && echo "# $RANDOM$RANDOM"; } | task seen
	"$bin/ca-verify" --device cpu seen >out
	[ "$(statuses verify out)" = $'seen\tok' ]
	memo=$(find "$real/guard" -name '*.json' -newer seen/model.py)
	[ -n "$memo" ]
	# shellcheck disable=SC2086 # other tests may have added some
	printf '{"leaf":[' | tee $memo >/dev/null
	"$bin/ca-verify" -v --device cpu seen 2>told >again
	[ "$(statuses verify again)" = $'seen\tok' ]
	grep -q "guard/.* is damaged" told
	# shellcheck disable=SC2086
	jq -e . $memo >/dev/null
}
