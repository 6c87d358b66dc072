#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# torch's own headers, precompiled: most of a minute and 0.8 GB of the cache
# for the first candidate.

setup_file() {
	export BATS_TEST_TIMEOUT=900
	top=$(realpath "$BATS_TEST_DIRNAME/../..")
	compile=$(realpath "${CA_BIN:-$top/bin}")/ca-compile
	# shellcheck source=test/setup/lib.sh
	. "$top/test/setup/lib.sh"
	CA_PYTHON=$(torch_python)
	# where the one who may compile can read
	CA_CACHE=$(mktemp -d /var/tmp/ca-headers.XXXXXX)
	chmod 755 "$CA_CACHE"
	export compile CA_PYTHON CA_CACHE
}

teardown_file() {
	rm -rf "$CA_CACHE"
}

setup() {
	cd "$BATS_TEST_TMPDIR" || return
}

# A candidate of a name that no cache holds.
candidate() { # name
	mkdir "$1"
	printf 'import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n%s\n' \
		'        return 2 * x' >"$1/model.py"
	cat >"$1/model_new.py" <<-END
		import torch
		from torch.utils.cpp_extension import load_inline
		ext = load_inline("two_$RANDOM$RANDOM",
		    "torch::Tensor twice(torch::Tensor x) { return x + x; }", functions=["twice"])
		class ModelNew(torch.nn.Module):
		    def forward(self, x):
		        return ext.twice(x)
	END
}

# Builds it; what became of the header is in $told.
build() { # name
	candidate "$1"
	"$compile" -v --device cpu --headers real "$1" >out 2>err
	cat err
	[ "$(jq -r '.build | .status + .headers' out)" = okreal ]
	told=$(sed -n "s|.*precompiled header of 'torch/extension.h': ||p" err)
}

@test "whoever is killed while making the header leaves nothing behind" {
	local lease=$CA_CACHE/lease/headers maker
	mkdir -p "${lease%/*}"
	touch "$lease"
	candidate killed
	"$compile" --device cpu --headers real killed >killed.out 2>&1 3>&- &
	maker=$!
	while flock -n "$lease" true; do
		kill -0 $maker || { cat killed.out; false; }
		sleep 0.05
	done
	kill -KILL $maker
	wait $maker || true
	build next
	[ "$told" = made ]
	# entries, each an object and what is said of it
	run find "$CA_CACHE/obj" -type f ! -name .lock ! -name '*.so' ! -name '*.json'
	[ -z "$output" ]
	[ "$(find "$CA_CACHE/obj" -name '*.so' | wc -l)" -eq \
		"$(find "$CA_CACHE/obj" -name '*.json' | wc -l)" ]
}

@test "torch's own headers are precompiled once" {
	build first
	build second
	[ "$told" = 'found in the cache' ]
}
