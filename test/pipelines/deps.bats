#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Finding what is missing.  Nothing is installed here: test/fresh.sh does
# that on a bare system.

bats_require_minimum_version 1.5.0

setup() {
	# A checkout of its own, so that stamps of this one stay.
	dir=$BATS_TEST_TMPDIR/tree
	mkdir -p "$dir/test" "$dir/lib/torch"
	cp -r "$BATS_TEST_DIRNAME/../setup" "$dir/test/"
	cp "$BATS_TEST_DIRNAME/../../lib/torch/requirements.txt" \
		"$dir/lib/torch/"
	chmod -R go+rX "$BATS_RUN_TMPDIR"
	deps=$dir/test/setup/deps.sh
	cat >"$dir/cc" <<-END
		#!/bin/sh
		echo "\$*" >>"$dir/calls"
		case " \$* " in *" \${LACKS:-none} "*) exit 1 ;; esac
		exec gcc "\$@"
	END
	chmod 755 "$dir/cc"
	export CC=$dir/cc
}

# As somebody who is not root; root's sudo must not be theirs either.
nobody() {
	if [ "$(id -u)" = 0 ]; then
		chmod -R go+rwX "$dir"
		setpriv --reuid=65534 --regid=65534 --clear-groups -- "$@"
	else
		"$@"
	fi
}

fake_torch() { # version
	local site
	[ -e "$dir/venv" ] || python3 -I -m venv --without-pip "$dir/venv"
	site=$(echo "$dir"/venv/lib/python3*/site-packages)
	mkdir -p "$site/torch"
	: >"$site/torch/__init__.py"
	echo "__version__ = '$1'" >"$site/torch/version.py"
	export CA_PYTHON=$dir/venv/bin/python3 CA_CACHE=$dir/cache
}

torch_python() {
	sh -c 'top=$1; . "$top/test/setup/lib.sh"; torch_python' sh "$dir"
}

@test "what is there is found by compiling, and once only" {
	run -0 "$deps" build
	[ -s "$dir/calls" ]
	rm "$dir/calls"
	run -0 "$deps" build
	[ ! -e "$dir/calls" ]
}

@test "another compiler is asked again" {
	run -0 "$deps" build
	rm "$dir/calls"
	cp "$dir/cc" "$dir/cc2"
	CC=$dir/cc2 run -0 "$deps" build
	[ -s "$dir/calls" ]
}

@test "without root and sudo the missing package is named" {
	! nobody sudo -n true 2>/dev/null || skip 'sudo asks no password here'
	LACKS=-lcjson run -1 nobody "$deps" build
	[[ $output == *'apt-get install libcjson-dev'* ]]
	[[ $output == *'still missing: libcjson-dev'* ]]
	[ ! -e "$dir/build" ]
}

@test "AppArmor's profile is offered where user namespaces are denied, and only there" {
	fake_torch 2.11.0
	mkdir "$dir/bin" "$dir/build"
	printf '#!/bin/sh\nexit "${DENIED:-1}"\n' >"$dir/bin/bwrap"
	chmod -R 755 "$dir/bin"
	PATH=$dir/bin:$PATH
	echo 1 >"$dir/restricted"
	export CA_USERNS=$dir/restricted
	run -0 "$dir/test/setup/apparmor.sh" </dev/null
	echo "$output"
	[[ $output == *"to install it: "*"cp $dir/build/cuda-agent.apparmor /etc/apparmor.d/cuda-agent"* ]]
	grep -qF "profile cuda-agent-bwrap $dir/bin/bwrap flags=(unconfined) {" \
		"$dir/build/cuda-agent.apparmor"
	grep -qF "profile cuda-agent-python $(readlink -f "$CA_PYTHON") " \
		"$dir/build/cuda-agent.apparmor"
	rm "$dir/build/cuda-agent.apparmor"
	DENIED=0 run -0 "$dir/test/setup/apparmor.sh"
	[ -z "$output" ]
	echo 0 >"$dir/restricted"
	run -0 "$dir/test/setup/apparmor.sh"
	[ -z "$output" ]
	[ ! -e "$dir/build/cuda-agent.apparmor" ]
}

@test "what only tests need does not stop the build" {
	! nobody sudo -n true 2>/dev/null || skip 'sudo asks no password here'
	LACKS=-lcmocka run -0 nobody "$deps" build test
	[[ $output == *'still missing: libcmocka-dev'* ]]
}

@test "a torch in the tested range is taken" {
	fake_torch 2.11.0+cu130
	run -0 torch_python
	[[ $output == */python3 ]]
	fake_torch 2.15.0
	run -0 torch_python
}

@test "a torch outside the tested range is passed over" {
	for version in 2.10.9 2.15.1 3.0.0; do
		fake_torch "$version"
		CA_CACHE=$dir/cache run -1 torch_python
	done
}

@test "two clones do not make the environment at once" {
	export CA_PYTHON=/nonexistent CA_CACHE=$dir/cache
	mkdir -p "$CA_CACHE"
	exec 8>"$CA_CACHE/venv.lock"
	flock 8
	run -124 timeout 2 "$dir/test/setup/venv.sh" 8>&-
	[[ $output == *'another make deps is at work'* ]]
	exec 8>&-
}

@test "without a Python that could make one, no environment is begun" {
	export CA_PYTHON=/nonexistent CA_CACHE=$dir/cache
	run -1 "$dir/test/setup/venv.sh"
	[[ $output == *'no python3'* ]]
	[ ! -e "$CA_CACHE/venv" ]
	[ ! -e "$CA_CACHE/venv.part" ]
}
