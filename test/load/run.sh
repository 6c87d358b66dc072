#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# run.sh [REQUESTS [CONNECTIONS]]: ca-serve with a small model without sense
# under test/load/serve.py; 10,000 and 1,000.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
bin=${CA_BIN:-$here/../../bin}
dir=$(mktemp -d "${TMPDIR:-/tmp}/ca-load.XXXXXX")
pid=
trap '[ -z "$pid" ] || kill -KILL "$pid" 2>/dev/null; rm -rf "$dir"' EXIT
ulimit -n "$(ulimit -Hn)"
python3 "$here/../tools/serve_model.py" "$dir/model"
rm "$dir/model/tokenizer_config.json"
OMP_NUM_THREADS=1 "$bin/ca-serve" -m "$dir/model" --device cpu --port 0 -j 32 --queue 4000 -q \
	>"$dir/url" 3>&- &
pid=$!
until [ -s "$dir/url" ]; do
	kill -0 "$pid"
	sleep 0.05
done
python3 "$here/serve.py" "$(cat "$dir/url")" "$pid" "${1:-10000}" "${2:-1000}"
kill "$pid"
wait "$pid"
pid=
