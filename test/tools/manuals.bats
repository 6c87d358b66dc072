#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# The examples of the manuals, as a reader would type them at the top of a
# checkout, and ca-record(5) against what the programs write.

load host
root=$BATS_TEST_DIRNAME/../..

# Jailed programs of another uid look in, which bats' own folder forbids.
setup() {
	use_host
	work=$(TMPDIR=/tmp mktemp -d) && chmod 755 "$work" && cd "$work" || return
	ln -s "$(realpath "${CA_BIN:-$root/bin}")" bin
	ln -s "$(realpath "$root/fixtures")" fixtures
	PATH=$PWD/bin:$PATH
}

teardown() {
	cd / && rm -rf "$work"
}

# examples PAGE: its displays in EXAMPLES, each ended by a NUL.
examples() {
	awk '
		/^\.Sh / { inside = /^\.Sh EXAMPLES/; next }
		!inside { next }
		/^\.Bd/ { display = 1; next }
		/^\.Ed/ { display = 0; printf "%c", 0; next }
		/^\.Dl / { sub(/^\.Dl /, ""); line = 1 }
		display || line {
			sub(/^\$ /, "")
			gsub(/\\e/, "\\")
			gsub(/\\\(aq/, "\047")
			gsub(/\\-/, "-")
			print
		}
		line { printf "%c", 0; line = 0 }
	' "$root/man/$1"
}

# run_examples PAGE: there are some, and each exits with 0.
run_examples() {
	local n=0 text
	while IFS= read -r -d '' text; do
		n=$((n + 1))
		text=${text//\/tmp\//$work/}
		printf '%s: %s' "$1" "$text"
		bash -eo pipefail -c "$text" </dev/null
	done < <(examples "$1")
	[ $n -gt 0 ]
}

@test "examples of ca(7) and ca-record(5)" {
	run_examples ca.7
	run_examples ca-record.5
}

@test "examples of ca-compile(1)" {
	run_examples ca-compile.1
}

@test "examples of ca-jail(1)" {
	run_examples ca-jail.1
}

@test "examples of ca-verify(1)" {
	run_examples ca-verify.1
}

@test "examples of ca-profile(1)" {
	run_examples ca-profile.1
}

@test "examples of ca-reward(1)" {
	run_examples ca-reward.1
}

@test "examples of ca-crawl(1) and ca-combine(1)" {
	run_examples ca-crawl.1
	run_examples ca-combine.1
}

@test "examples of ca-filter(1)" {
	run_examples ca-filter.1
}

@test "examples of ca-dedup-ast(1)" {
	run_examples ca-dedup-ast.1
}

@test "examples of ca-torch(1)" {
	run_examples ca-torch.1
}

@test "examples of ca-workdir(1)" {
	run_examples ca-workdir.1
}

@test "ca-record(5) describes every member that is written" {
	ca-compile --device cpu fixtures/workdirs/cpu/{axpby,bad-value,bad-compile} |
		ca-verify --device cpu |
		ca-profile --device cpu --quick --baseline eager |
		ca-reward >judged
	ca-verify <<<'bad' >>judged || [ $? = 65 ]
	jq -r '[paths | map(strings) | select(.[0] != "files") | .[]] |
		unique[]' judged | sort -u >members
	mandoc -Tascii "$root/man/ca-record.5" | sed 's/.\x08//g' >page
	[ "$(wc -l <members)" -gt 40 ]
	while read -r member; do
		grep -qw -e "$member" page || echo "$member"
	done <members >missing
	cat missing
	[ ! -s missing ]
}
