#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# vpretrain.sh [STEPS [LAMBDA]]: how much of the outcome a tiny critic explains on held-out
# trajectories of 2,048 agent tokens whose prompt determines it, by quarters, before and
# after STEPS updates (24) with --lambda-critic LAMBDA (1).  The first quarter has to come
# above 0.1.  Some minutes of CPU.
set -eu -o pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 "$top/test/tools/serve_model.py" model
jq '.max_position_embeddings = 4096' model/config.json >c && mv c model/config.json
python3 "$top/test/tools/trajs.py" told 40 3 2048 >trajectories
"${CA_BIN:-$top/bin}/ca-vpretrain" --actor model --out critic --steps "${1:-24}" --batch 4 \
	--ctx 3072 --lr 1e-2 --held-out 0.25 --lambda-critic "${2:-1}" \
	--no-prov -q trajectories >metrics
jq -c 'select(has("val/vf_loss"))' metrics
jq -es 'map(select(has("val/vf_loss"))) | last."val/mc_explained_var_q1" > 0.1' metrics
