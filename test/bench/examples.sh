#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# examples.sh [cpu|cuda]: what the worked examples of a device's skill gain, as
# rows for their READMEs: speedup over eager and over torch.compile, with the
# bounds that rewards go by, and the reward.
set -eu -o pipefail
cd "$(dirname "$0")/../.."
device=${1:-cpu}
echo '| example | over eager | over torch.compile | reward |'
echo '|---|---|---|---|'
bin/ca-compile --device "$device" "skills/$device-kernels/examples"/* |
	bin/ca-profile --device "$device" | bin/ca-reward | jq --unbuffered -r '
	def number: . * 100 | round / 100;
	def bounds: if .lower then " (\(.lower | number) to \(.upper | number))" else "" end;
	def times: if . == null then "not known" else "\(.point | number)x\(bounds)" end;
	"| \(.name) | \(.profile.speedup.eager | times) | \(.profile.speedup.compile | times) | " +
		"\(.reward.value // "none: \(.reward.reason)") |"'
