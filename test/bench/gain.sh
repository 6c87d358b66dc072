#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# gain.sh cpu|cuda PERCENT [RUNS [JOBS]]: how often a true gain over eager is
# paid.  Makes a candidate that works for its share of eager's time and then
# waits until it takes PERCENT less than eager (0: the same, which is never to
# be paid), judges it RUNS times (20) in full, JOBS (1) of them prepared at
# once, against eager alone, and prints how often it was paid and how the gains
# spread.  Their mean over all rounds of all runs is the best that is known of
# the true gain.
set -eu
cd "$(dirname "$0")/../.."
device=${1:?cpu or cuda} percent=${2:?percent} runs=${3:-20} jobs=${4:-1}
work=$(mktemp -d /var/tmp/ca-gain.XXXXXX)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
chmod 755 "$work"
n=$([ "$device" = cuda ] && echo 33554432 || echo 2097152)

cat >"$work/model.py" <<END
import torch


class Model(torch.nn.Module):
    def forward(self, a, b):
        return 2.0 * a + 3.0 * b


def get_inputs():
    return [torch.randn($n), torch.randn($n)]


def get_init_inputs():
    return []
END

cpu_kernel() { # turns of the loop
	cat <<END
#include <stdint.h>
void axpby(const float *a, const float *b, float *out, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		out[i] = 2.0f * a[i] + 3.0f * b[i];
	for (volatile int64_t i = 0; i < $1; i++)
		;
}
END
}

cuda_kernel() { # nanoseconds
	cat <<END
#include <cstdint>
static __global__ void work(const float *a, const float *b, float *out, int64_t n)
{
	int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
	if (i < n)
		out[i] = 2.0f * a[i] + 3.0f * b[i];
}
static __device__ int64_t now()
{
	int64_t t;
	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
	return t;
}
static __global__ void wait(int64_t ns)
{
	for (int64_t from = now(); now() - from < ns;)
		;
}
extern "C" void axpby(const float *a, const float *b, float *out, int64_t n, cudaStream_t s)
{
	work<<<(n + 255) / 256, 256, 0, s>>>(a, b, out, n);
	wait<<<1, 1, 0, s>>>($1);
}
END
}

candidate() { # how long it waits, in turns or nanoseconds
	local dir=$work/wait-$1
	mkdir -p "$dir/kernels"
	cp "$work/model.py" "$dir"
	"${device}_kernel" "$1" >"$dir/kernels/axpby.$([ "$device" = cuda ] && echo cu || echo c)"
	cat >"$dir/model_new.py" <<-'END'
		import cuda_extension
		import torch


		class ModelNew(torch.nn.Module):
		    def forward(self, a, b):
		        out = torch.empty_like(a)
		        cuda_extension.axpby(a, b, out, a.numel())
		        return out
	END
	bin/ca-compile --device "$device" "$dir" | bin/ca-verify >"$dir/verified"
	jq -e '.verify.status == "ok"' "$dir/verified" >/dev/null ||
		{ jq -c .verify "$dir/verified"; exit 1; }
}

times() { # of candidate and eager, microseconds
	bin/ca-profile --baseline eager <"$work/wait-$1/verified" |
		jq -r '.profile | "\(.candidate.median_us) \(.eager.median_us)"'
}

probe=200000
candidate 0
candidate $probe
read -r none eager < <(times 0)
read -r some _ < <(times $probe)
wait=$(awk -v e="$eager" -v p="$percent" -v a="$none" -v b="$some" -v t=$probe \
	'BEGIN { w = (e * (1 - p / 100) - a) * t / (b - a); print int((w > 0) ? w : 0) }')
candidate "$wait"
yes "$(cat "$work/wait-$wait/verified")" | head -n "$runs" |
	bin/ca-profile -j "$jobs" --baseline eager | bin/ca-reward |
	tee "$work/out" | jq -c --unbuffered '{status: .profile.status, reward: .reward.value,
		rounds: .profile.rounds, gain: .profile.speedup.eager.gain.point}' || true
jq -rs --arg what "$device, aimed at $percent %" '
	map(select(.profile.status == "ok") | .profile.speedup.eager.gain.point * 100) as $g |
	($g | add / length) as $mean |
	"\($what): paid \(map(select(.reward.value >= 2)) | length) of \(length)",
	"rewards: \(group_by(.reward.value) |
	map("\(.[0].reward.value) x \(length)") | join(", "))",
	"gain in percent: mean \($mean), standard deviation \($g | map(. - $mean | . * .) |
	add / length | sqrt), from \($g | min) to \($g | max)",
	"eager, us: \(map(.profile.eager.median_us // empty) | "\(min) to \(max)")"' "$work/out"
