#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# venv.sh [ruff]: makes the virtual environment with torch (or the small one
# with ruff) in the user's cache, unless a Python with torch is there already.
# Every clone shares it.  It is made under another name and renamed when it
# is complete, so nobody ever sees half of one; finished downloads of an
# interrupted run are kept and used by the next.
set -u
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
# shellcheck source=test/setup/lib.sh
. "$here/lib.sh"
umask 022

need_mib=10000		# the environment, the downloads and pip's copies

make_venv() { # directory, pip arguments...
	dir=$1
	shift
	py=$(base_python) || {
		say 'no python3 (3.10 or newer, outside of any environment)' \
			'that unprivileged users may run'
		return 1
	}
	rm -rf "$dir.part" "$dir.old"
	"$py" -m venv "$dir.part" || return 1
	# /tmp may be a small tmpfs; pip unpacks gigabytes there.
	TMPDIR=$dir.part/tmp
	PIP_CACHE_DIR=${PIP_CACHE_DIR:-$cache/pip}
	export TMPDIR PIP_CACHE_DIR
	mkdir -p "$TMPDIR" &&
		"$dir.part/bin/python3" -m pip install \
			--disable-pip-version-check --retries 10 "$@" >&2 ||
		return 1
	rm -rf "$TMPDIR"
	grep -lIF "$dir.part" "$dir.part"/bin/* "$dir.part/pyvenv.cfg" |
		xargs -r -d '\n' sed -i "s,$dir\.part,$dir,g"
	if [ -e "$dir" ]; then
		mv "$dir" "$dir.old" || return 1
	fi
	mv "$dir.part" "$dir" && rm -rf "$dir.old"
}

make_torch() {
	free=$(df -Pk "$cache" | awk 'NR == 2 { print int($4 / 1024) }')
	if [ "$free" -lt "$need_mib" ]; then
		say "torch needs $need_mib MiB below $cache while it is" \
			"installed, $free are free (CA_CACHE names another place)"
		return 1
	fi
	say "no python3 has torch $(tested_range | sed 's/ / to /'):" \
		"installing it into $cache/venv," \
		"about 2.5 GB to download and 4.7 GB on disk, once for all clones"
	make_venv "$cache/venv" -r "$top/lib/torch/requirements.txt" ||
		return 1
	rm -rf "$cache/pip"
	torch_python >/dev/null || {
		say "torch in $cache/venv cannot be used" \
			"(is it readable by unprivileged users?)"
		return 1
	}
}

want() {
	if [ "${1-}" = ruff ]; then
		find_ruff >/dev/null
	else
		torch_python >/dev/null
	fi
}

want "$@" && exit 0
cache=$(cache_dir)
if ! mkdir -p "$cache" || ! : >>"$cache/venv.lock"; then
	say "cannot write below $cache"
	exit 1
fi
exec 9>>"$cache/venv.lock"
if ! flock -n 9; then
	say "another make deps is at work in $cache; waiting for it"
	flock -w 3600 9 || exit 1
fi
want "$@" && exit 0
if [ "${1-}" = ruff ]; then
	make_venv "$cache/ruff-$ruff_version" -q "ruff==$ruff_version"
else
	make_torch
fi
