#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# clock.sh [RUNS]: on a GPU, how far the corrected medians of the judge's clock
# are from what CUPTI saw of the same kernels.  Tasks of one kernel of about 0.2
# to 10 ms, each as its own candidate beside eager, RUNS (1) times.  A line for
# each time, the last one counts those beyond max(15 us, 2 %).
set -eu -o pipefail
cd "$(dirname "$0")/../.."
bin=${CA_BIN:-bin}
runs=${1:-1}

task() { # CALL ARGUMENTS
	cat <<-END
		import torch


		class Model(torch.nn.Module):
		    def forward(self, *x):
		        return torch.$1(*x)


		def get_inputs():
		    return [$2]


		def get_init_inputs():
		    return []
	END
}

candidates() {
	local i n
	for ((i = 0; i < runs; i++)); do
		for n in 2048 2560 3072 4096 5120 6144; do
			task matmul "torch.randn($n, $n), torch.randn($n, $n)" |
				record "matmul-$n"
		done
		for n in 27 28 29 30; do
			task sin "torch.randn(1 << $n)" | record "sin-2^$n"
		done
	done
}

record() { # NAME, model.py on stdin
	jq -nc --rawfile code /dev/stdin --arg name "$1" '{kind: "candidate", v: 1,
		$name, task: {$code}, files: {"model_new.py":
			($code | gsub("class Model\\("; "class ModelNew("))},
		rules: "kernelbench"}'
}

candidates | "$bin/ca-profile" --device cuda --baseline eager |
	jq -r '.name as $name | .profile as $p |
		if $p.device_sum_us.candidate == null then
			[$name, .verify.status, $p.status, $p.text // .verify.text]
		else "candidate", "eager" | $p[.].median_us as $t |
			$p.device_sum_us[.] as $d |
			[$name, ., ($t, $d, $t - $d | . * 100 | round / 100),
				if ($t - $d | fabs) <= ([15, 0.02 * $d] | max)
				then "ok" else "NOT OK" end]
		end | @tsv' | tee /dev/stderr |
	awk -F '\t' '{ n++; bad += $NF != "ok" }
		END { printf "%d times, %d beyond max(15 us, 2 %%)\n", n, bad; exit bad > 0 || !n }'
