# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# What benches share: the machine in words, seconds of a command, medians with
# their spread, and results kept in test/bench/results.  Sourced from the top
# of the checkout.

# A place of its own: the folder $work with an empty cache, the Python with
# torch, and in $gpu the GPU or nothing.
own_place() {
	work=$(mktemp -d /var/tmp/ca-bench.XXXXXX)
	trap 'rm -rf "$work"' EXIT
	trap 'exit 130' INT TERM
	chmod 755 "$work"
	CA_PYTHON=$(torch_python)
	export CA_PYTHON CA_CACHE=$work/cache CA_TORCH_IDLE=5
	PATH=$(dirname "$CA_PYTHON"):$PATH	# torch builds with the ninja beside it
	gpu=$(nvidia-smi -L 2>/dev/null | head -n 1) || gpu=
	[ -n "$gpu" ] || export TORCH_CUDA_ARCH_LIST=${TORCH_CUDA_ARCH_LIST:-9.0}
}

# A tokenizer for a model with random weights, with a text for each of its tokens:
# what is drawn has to be told.
give_words() { # folder of the model
	python3 test/tools/serve_model.py "$1/words"
	jq -c --slurpfile c "$1/config.json" \
		'([.model.vocab[], .added_tokens[].id] | max + 1) as $from |
		.model.vocab += ([range($from; $c[0].vocab_size) |
			{key: "w\(.)", value: .}] | from_entries)' \
		"$1/words/tokenizer.json" >"$1/tokenizer.json"
	rm -r "$1/words"
}

# What a result depends on, as JSON.
machine() {
	local gpu
	gpu=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader \
		2>/dev/null | head -n 1) || gpu=
	jq -cn --arg cpu "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)" \
		--argjson cores "$(nproc)" --arg kernel "$(uname -r)" --arg gpu "$gpu" \
		--argjson load "$(cut -d' ' -f1 /proc/loadavg)" \
		--arg torch "$(bin/ca-torch --no-prov 2>/dev/null | jq -r .torch)" \
		--arg nvcc "$({ nvcc --version 2>/dev/null || true; } |
			sed -n 's/.*release \([0-9.]*\).*/\1/p')" \
		--arg version "$(cat VERSION)" \
		--arg commit "$(git rev-parse --short HEAD 2>/dev/null || true)" \
		'{$cpu, $cores, $kernel, $load, $gpu, $torch, $nvcc, $version, $commit} |
			with_entries(select(.value != ""))'
}

# In words.
machine_line() {
	machine | jq -r '"\(.cpu), \(.cores) cores, load \(.load), Linux \(.kernel)" +
		"\(if .gpu then ", " + .gpu else "" end), torch \(.torch)"'
}

# Runs a command; its seconds are in $wall, those of cores in $cpu, with its
# children's but not what ran in namespaces or hosts.  Its status is passed on.
timed() {
	local rc=0 said
	local TIMEFORMAT='%R %U %S'
	# Descriptors past the group's own output, which holds the times.
	{ said=$({ time "$@" 2>&4 >&3; } 2>&1) || rc=$?; } 3>&1 4>&2
	# shellcheck disable=SC2034 # cpu is for callers
	read -r wall cpu < <(awk 'END { print $1, $2 + $3 }' <<<"$said")
	return $rc
}

# Numbers, one a line, as {median, low, high, n}.
spread() {
	jq -cs 'sort | length as $n | {
		median: (if $n == 0 then null
			elif $n % 2 == 1 then .[($n - 1) / 2]
			else (.[$n / 2] + .[$n / 2 - 1]) / 2 end),
		low: .[0], high: .[-1], n: $n}'
}

# Appends a result, a JSON object, with date and machine.
keep_result() { # name of the bench, object
	mkdir -p test/bench/results
	jq -cn --arg bench "$1" --argjson r "$2" --argjson m "$(machine)" \
		--arg date "$(date -u +%Y-%m-%dT%H:%MZ)" \
		'{$bench, $date} + $r + {machine: $m}' \
		>>"test/bench/results/$1.ndjson"
}
