#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Every header compiles alone.
set -u
cd "$(dirname "$0")/../.." || exit 1
bad=0
for header in lib/*/*.h; do
	${CC:-gcc} -std=c11 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Werror \
		-Ilib -fsyntax-only -x c -include "$header" /dev/null || {
		echo "$header does not compile alone"
		bad=1
	}
done
# Those that stand in for torch's, where what they build on is there.
cuda=${CUDA_HOME:-/usr/local/cuda}/include
python=$(python3 -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
for header in lib/torch/slim/catorch/*.hpp; do
	name=${header#lib/torch/slim/}
	case $name in
	*/methods.hpp) continue ;;	# the inside of a class
	*/cuda.hpp | */blas.hpp) [ -e "$cuda/cuda_runtime_api.h" ] || continue ;;
	*) [ -e "$python/Python.h" ] || continue ;;
	esac
	echo "#include <$name>" | ${CXX:-g++} -std=c++17 -Wall -Wextra -Werror \
		-Wno-init-list-lifetime -isystem "$cuda" -isystem "$python" \
		-Ilib/torch/slim -fsyntax-only -x c++ - || {
		echo "$header does not compile alone"
		bad=1
	}
done
exit $bad
