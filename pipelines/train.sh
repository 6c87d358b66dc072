#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# train.sh -m MODEL -o DIR [OPTION...] TASKS... [-- OPTION...]
#
# The paper's stages, each in a folder of DIR: `warm`, single-turn PPO; `rft`, fine-tuning
# on the agent's good trajectories; `vpretrain`, a critic from all of them; `ppo`, agentic
# PPO.  Options behind -- go to ca-agent.  The same command again goes on where it was.
#   -w N, -r N    rounds of warm (0) and of ppo (2); each rolls out all tasks, then updates
#   -k N, -j N    rollouts of a task (1), at once (8)
#   -d DEV, -c N, -S N  cpu (default), cuda or cuda:N; context in tokens (4096); seed (0)
#   -x FILE       further trajectories for rft and vpretrain; may be repeated
#   -s STAGE      only this one, on what those before it left
#   -e URL        a running ca-serve that sees the same folders, its model named `policy`
#   -V FILE       evaluate on these tasks, and keep the best actor in DIR/best, ...
#   -v N          ... before ppo and after every N rounds of it (1)
#   --stay        PPO's trainer lives from round to round, and keeps its memory
#   -t 'OPTION...'  for all trainers, as '--ranks 2'; -R, -P, -Q: ca-rft, ca-vpretrain, ca-ppo
#   --preset paper  its settings for all trainers, and its rule of rewards: medians, device times
#   --no-agent --raw-reward --no-rft --no-vpretrain     the paper's ablations
# Metrics are in DIR/STAGE/metrics.ndjson, the last actor is what DIR/actor points to.
set -eu -o pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=${CA_BIN:-$here/../bin} && [ -d "$bin" ] || bin=$here/../../../bin

usage() { sed -n '4,25s/^# \{0,1\}//p' "$0" >&$((1 + (${1:-64} > 0))) && exit "${1:-64}"; }
model='' out='' warm=0 rounds=2 k=1 jobs=8 dev=cpu ctx=4096 only='' url='' val='' every=1
seed=0 common='' rft_opts='' vp_opts='' ppo_opts='' single='' raw=0 rft=1 vpretrain=1 stay=0
extra=() tasks=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
	case $1 in
	--no-agent) single=--single-turn ;;
	--raw-reward) raw=1 ;;
	--no-rft) rft=0 ;;
	--no-vpretrain) vpretrain=0 ;;
	--stay) stay=1 ;;
	-[morwkjdcxseVvStRPQ] | --preset)
		[ $# -gt 1 ] || usage
		case $1 in
		-m) model=$2 ;;
		-o) out=$2 ;;
		-w) warm=$2 ;;
		-r) rounds=$2 ;;
		-k) k=$2 ;;
		-j) jobs=$2 ;;
		-d) dev=$2 ;;
		-c) ctx=$2 ;;
		-x) extra+=("$2") ;;
		-s) only=$2 ;;
		-e) url=$2 ;;
		-V) val=$2 ;;
		-v) every=$2 ;;
		-S) seed=$2 ;;
		-t) common+=" $2" ;;
		--preset) common+=" --preset $2" ;;
		-R) rft_opts=$2 ;;
		-P) vp_opts=$2 ;;
		-Q) ppo_opts=$2 ;;
		esac
		shift
		;;
	-h | --help) usage 0 ;;
	-*) usage ;;
	*) tasks+=("$1") ;;
	esac
	shift
done
shift $(($# > 0))
[ -n "$model" ] && [ -n "$out" ] && [ ${#tasks[@]} -gt 0 ] || usage
case $only in '' | warm | rft | vpretrain | ppo) ;; *) usage ;; esac
# shellcheck disable=SC2034 # read by what follows
more=("$@")
# shellcheck source=pipelines/train-check.sh
. "$here/train-check.sh"
# shellcheck source=pipelines/train-serve.sh
. "$here/train-serve.sh"
# shellcheck source=pipelines/train-stages.sh
. "$here/train-stages.sh"
begin
wanted() { [ -z "$only" ] || [ "$only" = "$1" ]; }

if wanted warm && [ "$warm" -gt 0 ]; then
	ppo warm "$warm" --single-turn "$model" ''
fi
base=$(first_of "$out/warm/w/actor" "$model")
if wanted rft && [ "$rft" = 1 ]; then
	data "$base"
	once rft "$rft_opts" ca-rft --actor "$base"
fi
actor=$(first_of "$out/rft/w" "$base")
if wanted vpretrain && [ "$vpretrain" = 1 ]; then
	data "$base"
	once vpretrain "$vp_opts" ca-vpretrain --actor "$actor"
fi
if wanted ppo; then
	critic=$(first_of "$out/vpretrain/w" '')
	ppo ppo "$rounds" "$single" "$actor" "$critic"
fi
last=$(first_of "$out/ppo/w/actor" "$actor")
ln -sfn "$(realpath "$last")" "$out/actor"
