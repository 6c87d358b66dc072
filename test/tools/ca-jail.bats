#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# ca-jail: exit statuses, streams, paths, limits and levels, by hand as its
# manual tells.  What an attacker may try is in test/lib/jail_test.c.

bats_require_minimum_version 1.5.0

setup() {
	umask 022
	jail=${CA_BIN:-$BATS_TEST_DIRNAME/../../bin}/ca-jail
	full=$("$jail" --probe | jq -r .command)
	# Below a directory that the jail's uid can pass through.
	dir=$(mktemp -d /var/tmp/ca-jail.XXXXXX)
	chmod 755 "$dir"
}

teardown() {
	rm -rf "$dir"
}

need_full() {
	[ "$full" = full ] || skip "best level here is $full"
}

has_uid() { # whether level uid can be had
	"$jail" --level uid true 2>/dev/null
}

need_root() {
	[ "$(id -u)" = 0 ] || skip 'needs root'
}

@test "the probe is one record with a level that works" {
	run --separate-stderr "$jail" --probe
	[ "$status" = 0 ]
	[ "${#lines[@]}" = 1 ]
	jq -e '.kind == "jail" and .v == 1 and (.landlock | type == "number")
		and (.command == "full") == .bubblewrap' <<<"$output"
	if [ "$full" = full ] || [ "$full" = uid ]; then
		"$jail" --level "$full" true
	fi
}

@test "the exit status is the command's" {
	need_full
	run "$jail" sh -c 'exit 42'
	[ "$status" = 42 ]
	run "$jail" sh -c 'kill -TERM $$'
	[ "$status" = 143 ]
	run -127 "$jail" -- /nonexistent/command
}

@test "standard streams are the caller's" {
	need_full
	printf 'a\0b\n' >"$dir/in"
	"$jail" sh -c 'cat; echo error >&2' <"$dir/in" >"$dir/out" 2>"$dir/err"
	cmp "$dir/in" "$dir/out"
	[ "$(cat "$dir/err")" = error ]
	[ "$(echo text | "$jail" sh -c 'cat | rev')" = txet ]
}

@test "options end at the command" {
	need_full
	run "$jail" echo --probe -q --ro
	[ "$status" = 0 ]
	[ "$output" = '--probe -q --ro' ]
	run "$jail" -- echo -v
	[ "$output" = -v ]
}

@test "no command, unknown options and bad values are usage errors" {
	run "$jail"
	[ "$status" = 64 ]
	run "$jail" --nonsense true
	[ "$status" = 64 ]
	run "$jail" --level weak true
	[ "$status" = 64 ]
	run "$jail" --procs 0 true
	[ "$status" = 64 ]
}

@test "paths that cannot be had are errors with their name" {
	run "$jail" --ro /nonexistent/dir true
	[ "$status" = 78 ]
	[[ $output == *"'/nonexistent/dir'"* ]]
	run "$jail" --rw relative/dir true
	[ "$status" = 78 ]
	[[ $output == *"'relative/dir'"* ]]
}

@test "a directory inside cannot be entered when it is not shown" {
	need_full
	run "$jail" --dir "$dir" pwd
	[ "$status" = 69 ]
	run "$jail" --ro "$dir" --dir "$dir" pwd
	[ "$status" = 0 ]
	[ "$output" = "$dir" ]
}

@test "--ro shows, --rw lets write, all else is hidden" {
	need_full
	mkdir "$dir/in" "$dir/out" "$dir/hidden"
	chmod 777 "$dir/in" "$dir/out" "$dir/hidden"
	echo text >"$dir/in/file"
	# shellcheck disable=SC2016 # expanded inside
	"$jail" --ro "$dir/in" --rw "$dir/out" sh -ec '
		cat "$1/in/file" >"$1/out/file"
		if touch "$1/in/x"; then exit 1; fi
		if ls "$1/hidden"; then exit 1; fi
		if touch /usr/x /etc/x /x; then exit 1; fi' - "$dir"
	[ "$(cat "$dir/out/file")" = text ]
	[ ! -e "$dir/in/x" ]
}

@test "what is only root's stays unreadable, shown or not" {
	need_full
	need_root
	echo secret >"$dir/secret"
	chmod 600 "$dir/secret"
	run "$jail" --ro "$dir" cat "$dir/secret"
	[ "$status" = 1 ]
	[[ $output != *secret$'\n'* ]]
	[[ $output == *'Permission denied'* ]]
	has_uid || skip 'no level uid'
	run "$jail" --level uid --ro "$dir" cat "$dir/secret"
	[ "$status" = 1 ]
	[[ $output == *'Permission denied'* ]]
}

@test "the caller's environment stays outside" {
	need_full
	CA_LEAK=1 run "$jail" --env GIVEN=1 env
	[ "$status" = 0 ]
	[[ $output != *CA_LEAK* ]]
	[[ $output == *GIVEN=1* ]]
	[[ $output == *HOME=/tmp* ]]
}

@test "a timeout kills everything and says so" {
	need_full
	run "$jail" --timeout 0.3s sh -c "
		trap '' TERM INT HUP
		setsid sleep 1000.$$ &
		sleep 1000.$$"
	[ "$status" = 137 ]
	[[ $output == *'killed after 0.3 seconds'* ]]
	run pgrep -f "sleep 1000[.]$$"
	[ "$status" = 1 ]
}

@test "daemons do not outlive the command" {
	need_full
	"$jail" sh -c "(setsid sleep 2000.$$ >/dev/null 2>&1 &) &"
	run pgrep -f "sleep 2000[.]$$"
	[ "$status" = 1 ]
	if has_uid; then
		"$jail" --level uid sh -c "(setsid sleep 3000.$$ &) &"
		run pgrep -f "sleep 3000[.]$$"
		[ "$status" = 1 ]
	fi
}

@test "a killed ca-jail takes its command along" {
	need_full
	"$jail" sleep "4000.$$" &
	pid=$!
	for _ in $(seq 1200); do
		pgrep -f "^sleep 4000[.]$$" >/dev/null && break
		sleep 0.05
	done
	pgrep -f "^sleep 4000[.]$$"
	kill -9 "$pid"
	wait "$pid" || true
	for _ in $(seq 1200); do
		pgrep -f "^sleep 4000[.]$$" >/dev/null || return 0
		sleep 0.05
	done
	return 1
}

@test "an interrupt ends it with the signal's status" {
	need_full
	"$jail" sleep "5000.$$" &
	pid=$!
	for _ in $(seq 1200); do
		pgrep -f "^sleep 5000[.]$$" >/dev/null && break
		sleep 0.05
	done
	kill -TERM "$pid"
	status=0
	wait "$pid" || status=$?
	[ "$status" = 143 ]
	run pgrep -f "^sleep 5000[.]$$"
	[ "$status" = 1 ]
}

@test "limits hold" {
	need_full
	run "$jail" --file 1M sh -c 'head -c 2M /dev/zero >/tmp/f'
	[ "$status" != 0 ]
	run "$jail" --tmp 1M sh -c 'head -c 2M /dev/zero >/tmp/f'
	[ "$status" != 0 ]
	[[ $output == *'No space left'* ]]
	run "$jail" --mem 256M sh -c 'head -c 1G /dev/zero | tail'
	[ "$status" != 0 ]
	[[ $output == *memory* ]]
	run "$jail" --cpu 1 --timeout 60s sh -c 'while :; do :; done'
	[ "$status" -gt 128 ]
	[[ $output != *'killed after'* ]]
	run "$jail" --procs 12 sh -c '
		for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 5 & done'
	[ "$status" != 0 ]
	[[ $output == *[Ff]ork* ]]
}

@test "there is no network" {
	need_full
	run "$jail" bash -c 'exec 3<>/dev/tcp/127.0.0.1/1'
	[ "$status" != 0 ]
	[[ $output == *'not permitted'* ]]
	[ "$("$jail" sh -c 'grep -c : /proc/net/dev')" = 1 ]
}

@test "compilers work inside" {
	need_full
	mkdir "$dir/out"
	chmod 777 "$dir/out"
	echo '#include <vector>
	int main() { return std::vector<int>(7).size(); }' >"$dir/a.cc"
	"$jail" --ro "$dir/a.cc" --rw "$dir/out" --mem 4G --timeout 120s \
		g++ -O2 -o "$dir/out/a" "$dir/a.cc"
	run "$jail" --ro "$dir/out" "$dir/out/a"
	[ "$status" = 7 ]
}

@test "level uid needs root, and then runs as nobody else" {
	if has_uid; then
		a=$("$jail" --level uid id -u)
		b=$("$jail" --level uid id -u)
		[ "$a" != 0 ]
		[ "$a" != "$b" ]
		# shellcheck disable=SC2016
		run "$jail" --level uid sh -c 'ls "$TMPDIR" && touch /tmp/x'
		[ "$status" != 0 ]
	elif [ "$(id -u)" != 0 ]; then
		run "$jail" --level uid true
		[ "$status" = 69 ]
	else
		skip 'no level uid'
	fi
}

@test "an ordinary user gets the same jail" {
	need_full
	need_root
	command -v setpriv >/dev/null || skip 'no setpriv'
	mkdir "$dir/bin"
	cp "$jail" "$dir/bin"
	as='setpriv --reuid 54321 --regid 54321 --clear-groups'
	cd /
	run $as "$dir/bin/ca-jail" sh -c 'id -u && ! touch /usr/x'
	[ "$status" = 0 ]
	[ "${lines[0]}" = 65534 ]
	run $as "$dir/bin/ca-jail" --level uid true
	[ "$status" = 69 ]
	[[ $output == *'needs root'* ]]
}

@test "without bubblewrap it says so and runs nothing" {
	mkdir "$dir/empty"
	PATH=$dir/empty run "$jail" touch "$dir/x"
	[ "$status" = 69 ]
	[[ $output == *bwrap* ]]
	[ ! -e "$dir/x" ]
}

@test "what cannot be is refused before anything runs" {
	run "$jail" --env NOVALUE true
	[ "$status" -eq 64 ]
	run "$jail" --dir /nonexistent true
	[ "$status" -eq 78 ]
	[[ $output == *"'/nonexistent'"* ]]
}
