# SPDX-License-Identifier: Apache-2.0
#
# shellcheck disable=SC2034  # used by the suites
#
# What the suites of this folder share: a Python with transformers and
# tokenizers (test/setup/venv.sh models) and the helper program.

here=$BATS_TEST_DIRNAME
top=$(cd "$here/../.." && pwd)
bin=${CA_BIN:-$top/bin}
nn=$top/${B:-build}/test/nn

# shellcheck source=test/setup/lib.sh
. "$top/test/setup/lib.sh"

need_models() {
	py=$(models_python) ||
		skip 'no transformers: test/setup/venv.sh models installs it'
	export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false OMP_WAIT_POLICY=passive
}
