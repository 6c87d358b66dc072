#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# ruff over the Python of lib/torch; rules in ruff.toml beside this file.
set -u
cd "$(dirname "$0")/../.." || exit 1
top=$PWD
# shellcheck source=test/setup/lib.sh
. test/setup/lib.sh
ruff=$(find_ruff) || {
	echo "no ruff $ruff_version: lib/torch is not checked"
	exit 77
}
"$ruff" check --quiet --no-cache --config test/lint/ruff.toml lib
