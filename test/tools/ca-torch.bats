#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# ca-torch, and what sharing a host means for the tools: one for all of them,
# nobody's children left, none where it is not wanted.

load judge.bash

setup_file() {
	:
}

teardown_file() {
	:
}

setup() {
	judge_setup
	unset CA_TORCH_SHARED
	export CA_TORCH_IDLE=60
	"$bin/ca-torch" -q >said || skip 'no torch'
	[ "$(jq .shared said)" = true ] || skip 'hosts cannot be shared here'
	host=$(marked)
}

teardown() {
	# Hosts of this test alone, which its mark gives a place of their own.
	# shellcheck disable=SC2046
	kill -9 $(marked) 2>/dev/null || true
	wait_for nothing_left
	judge_teardown
}

# How many hosts there are (in a pipe, its other programs would be marked too).
count() {
	local found
	found=$(marked)
	wc -w <<<"$found"
}

ours() { # the line of --list about this test's host
	"$bin/ca-torch" --list | jq -c "select(.pid == $host)"
}

idle() { # its host has noticed that all are gone
	[ "$(ours | jq '[.clients, .children] | tostring')" = '"[0,0]"' ]
}

@test "a second call finds the first one's host" {
	"$bin/ca-torch" >again
	[ "$(marked)" = "$host" ]
	[ "$(jq .shared again)" = true ]
	[ "$(jq -r .digest again)" = "$(jq -r .digest said)" ]
	[ "$(ours | jq '[.clients, .children, .served, .leaving] | tostring')" = \
		'"[0,0,2,false]"' ]
	[ "$(ours | jq '.memory_bytes > 1e7')" = true ]
}

@test "hosts can be had alone" {
	CA_TORCH_SHARED=0 "$bin/ca-torch" >own
	[ "$(jq .shared own)" = false ]
	[ "$(marked)" = "$host" ]
	[ "$(ours | jq .served)" = 1 ]
	run "$bin/ca-torch" --timeout 0
	[ "$status" -eq 64 ]
	CA_TORCH_IDLE=soon run "$bin/ca-torch"
	[ "$status" -eq 78 ]
	[[ "$output" == *"CA_TORCH_IDLE: 'soon' is not"* ]]
}

@test "a host that is told to end leaves no socket" {
	socket=$(tr '\0' '\n' <"/proc/$host/cmdline" | tail -n 3 | head -n 2 | paste -sd/)
	[ -S "$socket" ]
	kill -TERM "$host"
	wait_for nothing_left
	[ ! -e "$socket" ]
	run "$bin/ca-torch" --list --prepare
	[ "$status" -eq 64 ]
}

@test "another environment has another host" {
	OMP_NUM_THREADS=1 "$bin/ca-torch" >/dev/null
	[ "$(count)" -eq 2 ]
	(ulimit -c 0 && nice "$bin/ca-torch" >/dev/null)
	[ "$(count)" -eq 3 ]
}

@test "the chain uses it, and leaves it as it was" {
	build built "$fix/axpby"
	"$bin/ca-verify" built >out
	[ "$(statuses verify out)" = $'axpby\tok' ]
	[ "$(marked)" = "$host" ]
	wait_for idle
	[ "$(ours | jq '.served >= 3')" = true ]
}

@test "what a candidate asks to have built is asked once" {
	cp -r "$fix/axpby-inline" new
	echo "# $EPOCHREALTIME" >>new/model_new.py	# nobody has built it
	was=$(ours | jq .served)
	"$bin/ca-compile" --device cpu new >built
	wait_for idle
	served=$(ours | jq .served)
	[ "$served" -gt "$was" ]
	jq -c 'del(.build)' built | "$bin/ca-compile" --device cpu >again
	[ "$(jq -r .build.status again)" = ok ]
	[ "$(jq -r .build.object again)" = "$(jq -r .build.object built)" ]
	wait_for idle
	[ "$(ours | jq .served)" = "$served" ]
}

@test "--no-jail shares nothing" {
	build built "$fix/axpby"
	"$bin/ca-verify" --no-jail built >out 2>err
	[ "$(statuses verify out)" = $'axpby\tok' ]
	[ "$(ours | jq .served)" = 1 ]
}

@test "a tool that is killed takes its children along, and only those" {
	build built "$fix/bad-hang"
	"$bin/ca-verify" built >out &
	pid=$!
	wait_for at_work 2
	kill -9 $pid
	wait $pid || true
	alone() { [ "$(marked)" = "$host" ]; }
	wait_for alone
	wait_for idle
}

@test "a host that is killed costs nobody a verdict" {
	build built "$fix/bad-hang"
	"$bin/ca-verify" --first-timeout 3s --timeout 3s built >out &
	pid=$!
	wait_for at_work 2
	kill -9 "$host"
	wait $pid
	[ "$(statuses verify out)" = $'bad-hang\ttimeout' ]
	[ "$(count)" -eq 1 ]
	[ "$(marked)" != "$host" ]
}

@test "--stop lets those finish who are there" {
	# Where /tmp is another one, so are the hosts: nobody else's are stopped.
	[[ $(realpath "$bin") != /tmp/* ]] || skip 'the programs lie in /tmp'
	build built "$fix/bad-hang"
	cat >inside <<-END
		mount -t tmpfs tmpfs /tmp && export TMPDIR=/tmp || exit 77
		$bin/ca-verify --first-timeout 4s --timeout 4s built >out &
		pid=\$!
		until $bin/ca-torch --list | grep -q '"children":[2-9]'; do
			kill -0 \$pid || exit 1
			sleep 0.1
		done
		$bin/ca-torch --stop >stopped
		$bin/ca-torch --list >after
		wait \$pid
	END
	unshare -m true || skip 'no mount namespaces'
	status=0
	unshare -m bash inside || status=$?
	[ $status -ne 77 ] || skip 'no private /tmp'
	[ $status -eq 0 ]
	[ "$(jq -c '[.leaving, .clients]' stopped)" = '[true,1]' ]
	[ ! -s after ]
	[ "$(statuses verify out)" = $'bad-hang\ttimeout' ]
	alone() { [ "$(marked)" = "$host" ]; }
	wait_for alone
}
