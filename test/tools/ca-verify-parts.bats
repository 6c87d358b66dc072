#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Candidates that read part of their input, and rounds that a reference has to
# be spared.

bats_require_minimum_version 1.5.0
load judge
load parts

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
	local real memo kind
	# shellcheck source=test/setup/lib.sh
	real=$(. "$BATS_TEST_DIRNAME/../setup/lib.sh" && cache_dir)
	# A task that nobody knows.
	{ model && echo "# $RANDOM$RANDOM"; } | task seen
	"$bin/ca-verify" --device cpu seen >out
	[ "$(statuses verify out)" = $'seen\tok' ]
	for kind in guard first; do
		memo=$(find "$real/$kind" -name '*.json' -newer seen/model.py)
		[ -n "$memo" ]
		# shellcheck disable=SC2086 # other tests may have added some
		sed -i '1s/[0-9]/7/g' $memo
	done
	"$bin/ca-verify" -v --device cpu seen 2>told >again
	[ "$(statuses verify again)" = $'seen\tok' ]
	grep -q "guard/.* is damaged" told
	grep -q "first/.* is damaged" told
	# shellcheck disable=SC2086
	jq -e . $memo >/dev/null
}

@test "-j judges side by side and keeps the order; a signal ends all of it" {
	own_hosts
	local pid status=0
	"$bin/ca-compile" --device cpu "$fix/bad-hang" "$fix/axpby" \
		"$fix/bad-value" >in
	# The first one hangs until the end of the test.
	"$bin/ca-verify" -v -j 2 --device cpu --first-timeout 1h --timeout 1h \
		in >out 2>told 3>&- &
	pid=$!
	wait_for grep -q 'record 3: process .* is done' told
	grep -q 'record 2: process .* is done' told
	[ ! -s out ]
	kill "$pid"
	wait "$pid" || status=$?
	[ "$status" -eq 143 ]
	# As always what was finished is written, the rest is not.
	[ "$(statuses verify out)" = $'axpby\tok\nbad-value\twrong_value' ]
}

@test "a cache on storage without locks does, and is said" {
	local real
	# shellcheck source=test/setup/lib.sh
	real=$(. "$BATS_TEST_DIRNAME/../setup/lib.sh" && cache_dir)
	gcc -shared -fPIC -o nolocks.so -xc - <<-'END'
		#define _GNU_SOURCE
		#include <errno.h>
		#include <stdio.h>
		#include <stdlib.h>
		#include <string.h>
		#include <sys/syscall.h>
		#include <unistd.h>
		int flock(int fd, int how)
		{
			char link[64], path[4096] = "";
			const char *where = getenv("NO_LOCKS");

			snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
			if (readlink(link, path, sizeof path - 1) > 0 && where &&
			    !strncmp(path, where, strlen(where))) {
				errno = ENOLCK;
				return -1;
			}
			return (int)syscall(SYS_flock, fd, how);
		}
	END
	# Of a text that no cache holds, so that there is something to store.
	cp -r "$fix/argmax" fresh
	echo "// $RANDOM$RANDOM" >>"$(echo fresh/kernels/*)"
	NO_LOCKS=$(realpath "$real") LD_PRELOAD=$PWD/nolocks.so \
		"$bin/ca-verify" -v --device cpu fresh >out 2>told
	cat told
	[ "$(statuses verify out)" = $'fresh\tok' ]
	grep -q "lease' cannot be locked: leases are in /tmp" told
	grep -q "obj/.lock' cannot be locked: the cache does without" told
	rm -rf "/tmp/cuda-agent-lease-$(id -u)"
}
