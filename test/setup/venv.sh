#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# venv.sh [ruff|models]: makes the virtual environment with torch (or the small
# ones with ruff, and with transformers and OpenAI's client for test/models
# beside that torch) in the user's cache, unless what is wanted is there
# already.
# Every clone shares it.  It is made under another name and renamed when it
# is complete, so nobody ever sees half of one.  Wheels that an interrupted
# run has downloaded are used by the next and removed at the end, unless
# CA_WHEELS names a folder to keep them in.
set -u
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
# shellcheck source=test/setup/lib.sh
. "$here/lib.sh"
umask 022

need_mib=8000		# the environment and the downloads
requirements=$top/lib/torch/requirements.txt

pip() { # in the environment that is being made
	"$part/bin/python3" -m pip --disable-pip-version-check "$@" >&2
}

# Begins $1.part; an unfinished one may hold half a package, so it is made
# again.
begin() {
	part=$1.part
	py=$(base_python) || {
		say 'no python3 (3.10 or newer, outside of any environment)' \
			'that unprivileged users may run'
		return 1
	}
	rm -rf "$part" "$1.old"
	"$py" -m venv "$part" || return 1
	# /tmp may be a small tmpfs; pip unpacks gigabytes there.
	TMPDIR=$part/tmp
	export TMPDIR
	mkdir -p "$TMPDIR"
}

# Gives the finished one its name, inside its scripts too.
finish() {
	rm -rf "$part/tmp"
	grep -lIF "$part" "$part"/bin/* "$part/pyvenv.cfg" |
		xargs -r -d '\n' sed -i "s,$1\.part,$1,g"
	if [ -e "$1" ]; then
		mv "$1" "$1.old" || return 1
	fi
	mv "$part" "$1" && rm -rf "$1.old"
}

# One by one, so that what came is kept when the next does not.
download() {
	all=$(grep -c '^[a-z]' "$requirements")
	n=0
	grep '^[a-z]' "$requirements" | while read -r pin; do
		n=$((n + 1))
		say "downloading $n of $all: $pin"
		pip download -q --retries 10 --no-deps -d "$wheels" "$pin" \
			</dev/null || return 1
	done
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
	wheels=${CA_WHEELS:-$cache/wheels}
	mkdir -p "$wheels" && begin "$cache/venv" && download || return 1
	say 'installing'
	pip install -q --find-links "$wheels" -r "$requirements" &&
		finish "$cache/venv" || return 1
	[ -n "${CA_WHEELS-}" ] || rm -rf "$wheels"
	torch_python >/dev/null || {
		say "torch in $cache/venv cannot be used" \
			"(is it readable by unprivileged users?)"
		return 1
	}
}

make_ruff() {
	begin "$cache/ruff-$ruff_version" &&
		pip install -q "ruff==$ruff_version" &&
		finish "$cache/ruff-$ruff_version"
}

# Takes torch from the Python that has it.
make_models() {
	py=$(torch_python) || {
		say 'transformers needs a Python with torch: make deps first'
		return 1
	}
	site=$("$py" -I -c 'import os, torch
print(os.path.dirname(os.path.dirname(torch.__file__)))') || return 1
	begin "$cache/venv-tests" || return 1
	for lib in "$part"/lib/python3*/site-packages; do
		echo "$site" >"$lib/torch.pth"
	done
	pip install -q "transformers[serving]==$transformers_version" \
		"openai==$openai_version" &&
		finish "$cache/venv-tests"
}

want() {
	case ${1-} in
	ruff) find_ruff >/dev/null ;;
	models) py=$(models_python) && "$py" -I -c 'import openai' 2>/dev/null ;;
	*) torch_python >/dev/null ;;
	esac
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
case ${1-} in
ruff) make_ruff ;;
models) make_models ;;
*) make_torch ;;
esac
