#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# weak.sh: builds judges whose defences can be switched off one by one with
# CA_WEAKEN (lib/base/weaken.h) and prints where they are.  Nothing installs
# them.
set -eu
cd "$(dirname "$0")/../.."
env -u MAKEFLAGS make -s -j2 B=build/weak BIN=build/weak/bin \
	CFLAGS='-O2 -g -DCA_WEAKEN' build/weak/bin/ca-compile \
	build/weak/bin/ca-verify build/weak/bin/ca-profile \
	build/weak/bin/ca-reward build/weak/bin/libca-child.so >&2
echo build/weak/bin
