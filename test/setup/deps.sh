#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# deps.sh GROUP...: makes sure that what the groups need is here, and installs
# what is not.  Groups: build run test torch check.
#
# What is missing is found by trying it (a trial compile, a look-up on the
# path), never by asking a package manager.  What was found is kept with size
# and date in build/deps-*.stamp, so that the next call costs one stat.  Exit
# 1 only when nothing can be built; whatever else is missing is named, and
# the tests that need it are skipped.
set -u
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
# shellcheck source=test/setup/lib.sh
. "$here/lib.sh"

# group, Debian and Ubuntu packages, probe, its arguments
rows() {
	cat <<-'END'
	build gcc,libc6-dev c stdio.h
	build libcjson-dev c cjson/cJSON.h -lcjson
	build libmd-dev c sha2.h -lmd
	build libseccomp-dev c seccomp.h -lseccomp
	build libelf-dev c gelf.h -lelf
	build libcurl4-openssl-dev c curl/curl.h -lcurl
	build libonig-dev c oniguruma.h -lonig
	build libutf8proc-dev c utf8proc.h -lutf8proc
	build libmicrohttpd-dev c microhttpd.h -lmicrohttpd
	run g++ cxx vector
	run bubblewrap cmd bwrap
	run ripgrep cmd rg
	run libopenblas-dev c cblas.h -lopenblas
	run jq cmd jq
	torch python3 base
	torch python3-venv venv
	torch python3-dev pyheader
	test libcmocka-dev c stdarg.h,stddef.h,setjmp.h,stdint.h,cmocka.h -lcmocka
	test perl cmd prove
	test bats cmd bats
	test procps cmd pkill
	test curl cmd curl
	test parallel cmd parallel
	check clang cmd clang
	check libclang-rt-dev fuzzer
	check clang-format cmd clang-format
	check pmccabe cmd pmccabe
	check shellcheck cmd shellcheck
	test mandoc cmd mandoc
	check python3-venv ruffvenv
	END
}

CC=${CC:-gcc}
CXX=${CXX:-g++}
work=$(mktemp -d "${TMPDIR:-/tmp}/ca-deps.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Every probe prints the files that it relied on, for the stamp.
probe_cmd() {
	command -v "$1"
}

trial() { # compiler, language, headers, flags...
	cc=$1 lang=$2 headers=$3
	shift 3
	tool=$(command -v "$cc") || return 1
	echo "$headers" | tr , '\n' | sed 's/.*/#include <&>/' >"$work/t"
	echo 'int main(void) { return 0; }' >>"$work/t"
	"$cc" -x "$lang" -o "$work/t.out" "$work/t" "$@" 2>/dev/null || return 1
	echo "$tool"
	for flag; do
		case $flag in
		-l*) "$cc" -print-file-name="lib${flag#-l}.so" ;;
		esac
	done
}

probe_c() {
	trial "$CC" c "$@"
}

probe_cxx() {
	trial "$CXX" c++ "$@"
}

probe_fuzzer() {
	echo 'int LLVMFuzzerTestOneInput(const char *p, unsigned long n)' \
		'{ return p && n > 1 ? 0 : 0; }' >"$work/f.c"
	clang -fsanitize=fuzzer,address -o "$work/f" "$work/f.c" 2>/dev/null &&
		command -v clang
}

probe_base() {
	if py=$(torch_python); then
		echo "$py"
		has_torch "$py"
	else
		base_python
	fi
}

probe_venv() {
	torch_python && return
	py=$(base_python) && "$py" -I -c 'import ensurepip, venv' 2>/dev/null &&
		echo "$py"
}

probe_ruffvenv() {
	find_ruff && return
	py=$(base_python) && "$py" -I -c 'import ensurepip, venv' 2>/dev/null &&
		echo "$py"
}

# torch.compile and Triton compile against Python.h.
probe_pyheader() {
	py=$(torch_python || base_python) || return 1
	h=$("$py" -I -c 'import sysconfig; print(sysconfig.get_path("include"))')
	[ -f "$h/Python.h" ] && echo "$h/Python.h"
}

# The packages of the groups whose probe fails, on stdout; what the others
# found in $work/found.
missing() {
	: >"$work/found"
	rows | while read -r group packages probe args; do
		case " $groups " in
		*" $group "*) ;;
		*) continue ;;
		esac
		# $args is a list of words on purpose.
		# shellcheck disable=SC2086
		"probe_$probe" $args >>"$work/found" </dev/null ||
			echo "$group $packages" | tr , ' '
	done
}

names() {
	cut -d' ' -f2- | tr ' ' '\n' | sort -u | tr '\n' ' ' | sed 's/ $//'
}

# Lists older than a day name packages that the servers no longer have.
fresh_lists() {
	[ -n "$(find /var/lib/apt/lists -maxdepth 1 -name '*Packages*' \
		-mtime -1 2>/dev/null | head -n 1)" ]
}

# What it says is shown when it fails.
apt() {
	# shellcheck disable=SC2086
	$sudo env DEBIAN_FRONTEND=noninteractive apt-get -q \
		-o DPkg::Lock::Timeout=600 "$@" >"$work/apt" 2>&1 && return
	tail -n 20 "$work/apt" >&2
	return 1
}

install_packages() {
	sudo=
	if ! command -v apt-get >/dev/null; then
		say "no apt-get here; please install: $*"
		return 1
	fi
	if [ "$(id -u)" != 0 ]; then
		sudo='sudo -n'
		[ -t 0 ] && sudo=sudo
		if ! command -v sudo >/dev/null || ! $sudo true; then
			say "not root, and no sudo; please run as root:" \
				"apt-get install $*"
			return 1
		fi
	fi
	say "installing with apt-get: $*"
	fresh_lists || apt update
	apt install -y --no-install-recommends "$@" && return
	apt update &&
		apt install -y --no-install-recommends "$@" && return
	say "apt-get could not install: $*"
	return 1
}

key() {
	echo "$CC $CXX $PATH $(id -u) ${CA_PYTHON-} ${CA_CACHE-} ${HOME-}"
	cat "$here"/*.sh "$top/lib/torch/requirements.txt"
}

# The stamp: checksum of what the answer depends on, then the files found.
stamp_state() {
	key | cksum
	sort -u "$1" | tr '\n' '\0' | xargs -0 -r stat -L -c '%n %s %Y' 2>&1
}

groups=$*
stamp=$top/build/deps-$(echo "$groups" | tr ' ' -).stamp
if [ -f "$stamp" ] && [ -f "$stamp.files" ] &&
	[ "$(stamp_state "$stamp.files")" = "$(cat "$stamp")" ]; then
	exit 0
fi

lack=$(missing)
if [ -n "$lack" ]; then
	# One word a package.
	# shellcheck disable=SC2046
	install_packages $(echo "$lack" | names)
	lack=$(missing)
fi
case " $groups " in
*" torch "*)
	if ! "$here/venv.sh" || ! probe_base >>"$work/found"; then
		lack="$lack
torch torch"
	fi
	;;
esac
case " $groups " in
*" check "*)
	find_ruff >/dev/null || "$here/venv.sh" ruff
	find_ruff >>"$work/found" || say 'no ruff: its check is skipped'
	;;
esac
case " $groups " in
*" run "*) "$here/apparmor.sh" ;;
esac
if [ -z "$lack" ]; then
	mkdir -p "$top/build"
	cp "$work/found" "$stamp.files"
	stamp_state "$stamp.files" >"$stamp"
	exit 0
fi
say "still missing: $(echo "$lack" | sed '/^$/d' | names)"
! echo "$lack" | grep -q '^build '
