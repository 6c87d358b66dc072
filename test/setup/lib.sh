# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
#
# What deps.sh and venv.sh share: the cache and the search for a Python.
# `top`, the checkout, is set by who sources this.

say() {
	echo "deps: $*" >&2
}

# As path_cache() of lib/base/path.h.
cache_dir() {
	if [ -n "${CA_CACHE-}" ]; then
		echo "$CA_CACHE"
	elif [ "$(id -u)" = 0 ]; then
		echo /var/cache/cuda-agent
	else
		echo "${XDG_CACHE_HOME:-$HOME/.cache}/cuda-agent"
	fi
}

# Runs as the unprivileged user that root's workers become, so that a Python
# below root's home is found out here and not in the first job.
as_worker() {
	if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
		setpriv --reuid=65534 --regid=65534 --clear-groups -- "$@"
	else
		"$@"
	fi
}

pythons() {
	if [ -n "${CA_PYTHON-}" ]; then
		echo "$CA_PYTHON"
		return
	fi
	echo "$PATH" | tr : '\n' | while read -r dir; do
		[ -x "$dir/python3" ] && echo "$dir/python3"
	done
	echo "$(cache_dir)/venv/bin/python3"
}

tested_range() {
	# shellcheck disable=SC2154
	sed -n 's/^# tested: torch \(.*\) \.\. \(.*\)/\1 \2/p' \
		"$top/lib/torch/requirements.txt"
}

# Whether Python $1 has torch in the tested range, without importing it.
# Prints the file that says so.
has_torch() {
	# shellcheck disable=SC2046
	(cd / && as_worker "$1" -I -c '
import importlib.util, re, sys
spec = importlib.util.find_spec("torch")
if not spec or not spec.origin:
    sys.exit(1)
path = spec.origin.replace("__init__.py", "version.py")
text = re.search(r"__version__ = .(\d+)\.(\d+)\.(\d+)", open(path).read())
have = [int(n) for n in text.groups()]
low, high = ([int(n) for n in a.split(".")] for a in sys.argv[1:])
print(path)
sys.exit(not low <= have <= high)
' $(tested_range)) 2>/dev/null
}

# The Python to use; fails when none has a torch in the tested range.
torch_python() {
	found=$(pythons | while read -r py; do
		[ -x "$py" ] && has_torch "$py" >/dev/null || continue
		echo "$py"
		break
	done)
	[ -n "$found" ] && echo "$found"
}

# A Python 3.10 or newer that workers may run, to make an environment with.
base_python() {
	found=$(pythons | while read -r py; do
		[ -x "$py" ] && (cd / && as_worker "$py" -I -c '
import sys
sys.exit(sys.version_info < (3, 10) or sys.prefix != sys.base_prefix)
') 2>/dev/null || continue
		echo "$py"
		break
	done)
	[ -n "$found" ] && echo "$found"
}

ruff_version=0.17.6
find_ruff() {
	for ruff in "$(cache_dir)/ruff-$ruff_version/bin/ruff" \
		"$(cache_dir)/venv/bin/ruff" ruff; do
		[ "$("$ruff" --version 2>/dev/null)" = "ruff $ruff_version" ] &&
			command -v "$ruff" && return
	done
	return 1
}

# The Python of test/models: transformers, beside the torch that is used.
# shellcheck disable=SC2034
transformers_version=5.24.0
# shellcheck disable=SC2034
openai_version=3.57.0
models_python() {
	for py in "$(cache_dir)/venv-tests/bin/python3" "$(torch_python)"; do
		[ -n "$py" ] && "$py" -I -c '
import importlib.util, sys
sys.exit(not all(map(importlib.util.find_spec, ("torch", "transformers"))))
' 2>/dev/null && echo "$py" && return
	done
	return 1
}
