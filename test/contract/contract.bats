#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# shellcheck disable=SC2034,SC2154  # shared with contract.bash
#
# What every program owes its caller: options, exit codes, bad input, order,
# bytes that stay as they came.  STYLE of the command line: ca(7).

load contract

setup() {
	out=$BATS_TEST_TMPDIR/out
	err=$BATS_TEST_TMPDIR/err
	cd "$BATS_TEST_TMPDIR" || return
	export CA_CONFIG=$BATS_TEST_TMPDIR/config
}

@test "every program is there, and every program is listed" {
	for t in "${ALL[@]}"; do
		[ -x "$bin/$t" ] || { echo "no $t"; return 1; }
	done
	for t in "$bin"/ca-*; do
		case " ${ALL[*]} " in
		*" ${t##*/} "*) ;;
		*) echo "${t##*/} is in no class of contract.bash"; return 1 ;;
		esac
	done
}

@test "--help and -h describe it on stdout" {
	for t in "${ALL[@]}"; do
		for flag in --help -h; do
			try 0 "$t" "$flag" </dev/null
			silent
			grep -q "^Usage: $t" "$out"
			grep -q -- '--help' "$out"
		done
	done
}

@test "--version names program and version" {
	for t in "${ALL[@]}"; do
		try 0 "$t" --version </dev/null
		[ "$(cat "$out")" = "$t $(cat "$BATS_TEST_DIRNAME/../../VERSION")" ]
	done
}

@test "--completion=bash names every long option" {
	for t in "${ALL[@]}"; do
		try 0 "$t" --completion=bash </dev/null
		grep -q "^complete .*--help.* $t\$" "$out"
		bash -n "$out"
	done
}

@test "an unknown option is a usage error" {
	for t in "${ALL[@]}"; do
		for flag in --no-such-option --help=1 -% ; do
			try 64 "$t" "$flag" </dev/null
			said "$t: "
			said "try '$t --help'"
			wrote 0
		done
	done
}

@test "options that exclude each other are a usage error, and no file is touched" {
	while read -r t flags; do
		echo before >kept
		# shellcheck disable=SC2086 # words
		try 64 "$t" $flags </dev/null
		wrote 0
		grep -q '^before$' kept
	done <<-END
		ca-agent --model-cmd cat --endpoint http://x --model m
		ca-agent --show --export atif
		ca-agent --show -o kept
		ca-agent --export atif -o kept
		ca-combine --llm http://x
		ca-dedup-ast --histogram
		ca-jail --probe true
		ca-profile --table --json --reference
		ca-profile --table -o kept
		ca-reward --table -o kept
		ca-reward --over eager
		ca-serve --gpus 2 --replicas 2 -m .
		ca-torch --list --stop
		ca-verify --explain -o kept
	END
}

@test "a value that is out of range is a usage error" {
	for t in "${FILTERS[@]}"; do
		for flag in -n-1 -nx --limit=1.5; do
			try 64 "$t" "$flag" </dev/null
			said "'--limit'"
		done
	done
}

@test "--help to a full device or a closed stdout is an I/O error" {
	for t in "${ALL[@]}"; do
		"$bin/$t" --help >/dev/full 2>"$err" && return 1
		[ $? = 74 ]
		"$bin/$t" --help >&- 2>"$err" && return 1
		[ $? = 74 ]
	done
}

@test "no operand and a terminal as stdin is a usage error" {
	for t in "${FILTERS[@]}"; do
		status=0
		script -qec "$bin/$t" /dev/null </dev/null >"$out" || status=$?
		[ "$status" = 64 ]
		grep -q 'stdin is a terminal' "$out"
	done
}

@test "empty input is no error" {
	for t in "${FILTERS[@]}"; do
		try 0 "$t" </dev/null
		wrote 0
		silent
	done
}

@test "records of other kinds pass byte for byte" {
	for t in "${FILTERS[@]}"; do
		pick "$t"
		printf '%s\n' "$foreign" "$other" '{"kind":"error","v":1,'\
'"line":1,"byte":1,"message":"x"}' >in
		try 0 "$t" in
		cmp in "$out"
		try 0 "$t" -v - <in
		cmp in "$out"
		said '3 in, 3 out, 0 failed, 3 of other kinds'
	done
}

@test "unknown members of its own kind stay byte for byte" {
	for t in "${FILTERS[@]}"; do
		pick "$t"
		printf '%s\n' "$cheap" >in
		try 0 "$t" in
		wrote 1
		case $(cat "$out") in
		"${cheap% \}}",\"*) ;;
		*) complain "changed: $cheap" ;;
		esac
	done
}

@test "lines that are no records are answered, and the stream goes on" {
	printf '%s\n' "$foreign" 'nonsense' '' '[1]' '{"kind":"task"}' \
		'{"kind":"task","v":2}' '{"v":1}' '{"kind":"task","v":1,}' \
		'{"kind":"task","v":1,"a":1,"a":2}' '{"kind":"task","v":1}x' \
		'{"kind":"task","v":1,"a":1e400}' "$foreign" >in
	for t in "${FILTERS[@]}"; do
		try 65 "$t" <in
		wrote 12
		line_is 1 "$foreign"
		for n in 2 3 4 5 6 7 8 9 10 11; do
			answers $n $n
			said "$t: stdin:$n: cannot parse record at byte "
		done
		line_is 12 "$foreign"
		try 65 "$t" -q in
		silent
	done
}

@test "NUL, bad UTF-8, control characters and lone surrogates are refused" {
	{
		printf '{"kind":"x","v":1,"a":"\0"}\n'
		printf '{"kind":"x","v":1,"a":"\\u0000"}\n'
		printf '{"kind":"x","v":1,"a":"\xff"}\n'
		printf '{"kind":"x","v":1,"a":"\xed\xa0\x80"}\n'
		printf '{"kind":"x","v":1,"a":"\xc0\xaf"}\n'
		printf '{"kind":"x","v":1,"a":"\x01"}\n'
		printf '{"kind":"x","v":1,"a":"\\ud800"}\n'
		printf '\xef\xbb\xbf{"kind":"x","v":1}\n'
		printf '%s\n' "$foreign"
	} >in
	for t in "${FILTERS[@]}"; do
		try 65 "$t" in
		wrote 9
		for n in 1 2 3 4 5 6 7 8; do
			answers $n $n
		done
		line_is 9 "$foreign"
	done
}

@test "a missing last line feed is truncation" {
	printf '%s\n%s' "$foreign" "$foreign" >in
	printf '%s\n%s' "$foreign" "${foreign% *}" >half
	for t in "${FILTERS[@]}"; do
		try 65 "$t" in
		wrote 2
		line_is 2 "$foreign"
		said 'last line has no line feed'
		try 65 "$t" half
		wrote 2
		answers 2 2
	done
}

@test "lines of 16 MiB pass, longer ones are answered" {
	{
		printf '{"kind":"note","v":1,"s":"'
		head -c 16777000 /dev/zero | tr '\0' a
		printf '"}\n'
	} >in
	{
		head -c 16777217 /dev/zero | tr '\0' a
		printf '\n%s\n' "$foreign"
	} >long
	for t in "${FILTERS[@]}"; do
		try 0 "$t" in
		cmp in "$out"
		try 65 "$t" long
		wrote 2
		answers 1 1
		line_is 2 "$foreign"
	done
}

@test "nesting is limited" {
	deep() {
		printf '{"kind":"x","v":1,"a":%s%s}\n' \
			"$(printf "%$1s" '' | tr ' ' '[')" \
			"$(printf "%$1s" '' | tr ' ' ']')"
	}
	{ deep 127; deep 128; deep 100000; } >in
	for t in "${FILTERS[@]}"; do
		try 65 "$t" in
		line_is 1 "$(deep 127)"
		answers 2 2
		answers 3 3
	done
}

@test "output has the order of the input, with any number of jobs" {
	for t in "${FILTERS[@]}"; do
		pick "$t"
		for n in {1..40}; do
			echo "{\"kind\":\"note\",\"v\":1,\"n\":$n}"
			[ $((n % 8)) != 0 ] || echo "${cheap%\}},\"n\":$n}"
		done >in
		jobs=(1)
		! takes "$t" --jobs || jobs=(1 4)
		for j in "${jobs[@]}"; do
			if [ "$j" = 1 ]; then
				try 0 "$t" in
			else
				try 0 "$t" -j"$j" in
			fi
			wrote 45
			[ "$(jq .n in)" = "$(jq .n "$out")" ]
		done
	done
}

@test "two runs write the same with --no-prov" {
	for t in "${FILTERS[@]}"; do
		pick "$t"
		printf '%s\n' "$cheap" "$foreign" "$cheap" >in
		args=(--no-prov)
		! takes "$t" --seed || args+=(--seed 7)
		try 0 "$t" "${args[@]}" in
		cp "$out" first
		try 0 "$t" "${args[@]}" in
		cmp first "$out"
		[ "$(grep -c '"prov"' "$out")" = 0 ]
		try 0 "$t" in
		cp "$out" in2
		try 0 "$t" in2
		wrote 3
	done
}

@test "-n limits the records that are read" {
	printf '%s\n' "$foreign" "$foreign" bad >in
	for t in "${FILTERS[@]}"; do
		try 0 "$t" -n 2 in in
		wrote 2
		try 0 "$t" -n 0 in
		wrote 0
	done
}

@test "-o writes a whole file, and keeps devices as they are" {
	printf '%s\n' "$foreign" "$foreign" >in
	for t in "${FILTERS[@]}"; do
		try 0 "$t" -o whole in
		wrote 0
		cmp in whole
		rm whole
		try 0 "$t" -o /dev/null in
		[ -c /dev/null ]
		try 74 "$t" -o /dev/full in
		[ -c /dev/full ]
		try 73 "$t" -o no/such/folder in
		[ "$(ls)" = $'config\nerr\nin\nout' ] ||
			[ "$(ls)" = $'err\nin\nout' ]
	done
}

@test "a full device is an I/O error" {
	for t in "${FILTERS[@]}"; do
		pick "$t"
		printf '%s\n' "$foreign" "$cheap" >in
		program=$t status=0
		"$bin/$t" in >/dev/full 2>"$err" || status=$?
		[ "$status" = 74 ]
		said "cannot write 'stdout': No space left on device"
	done
}

@test "a reader that leaves ends it silently with 141" {
	for n in {1..2000}; do
		echo "$foreign"
	done >in
	for t in "${FILTERS[@]}"; do
		program=$t
		set +o pipefail
		"$bin/$t" in 2>"$err" | { head -n 1; sleep 0.1; } >"$out"
		status=("${PIPESTATUS[@]}")
		[ "${status[0]}" = 141 ] || [ "${status[0]}" = 0 ]
		silent
		wrote 1
		# The pipe holds less than this, so it must notice.
		cat in in in in in in in in in in >much
		"$bin/$t" much 2>"$err" | head -n 1 >"$out"
		status=("${PIPESTATUS[@]}")
		[ "${status[0]}" = 141 ] || complain "statuses ${status[*]}"
		silent
	done
}

@test "closed stdin and closed stdout are errors, not surprises" {
	echo "$foreign" >in
	for t in "${FILTERS[@]}"; do
		try 66 "$t" <&-
		said 'stdin: cannot read'
		program=$t status=0
		"$bin/$t" in >&- 2>"$err" || status=$?
		[ "$status" = 74 ]
		status=0
		"$bin/$t" in >"$out" 2>&- || status=$?
		[ "$status" = 0 ]
		line_is 1 "$foreign"
		status=0
		"$bin/$t" nowhere >"$out" 2>&- || status=$?
		[ "$status" = 66 ]
	done
}

@test "what cannot be opened is named, and the rest is done" {
	echo "$foreign" >in
	for t in "${FILTERS[@]}"; do
		try 66 "$t" nowhere in
		said "$t: cannot open 'nowhere': No such file or directory"
		line_is 1 "$foreign"
		try 66 "$t" in/x
		try 66 "$t" <.
		said 'Is a directory'
	done
}

@test "control characters of names do not reach the terminal" {
	for t in "${FILTERS[@]}"; do
		try 66 "$t" $'no\e[31m\nfile'
		said 'no\x1b[31m\x0afile'
	done
}

@test "-- ends the options, and - is stdin" {
	echo "$foreign" >-n
	for t in "${FILTERS[@]}"; do
		try 0 "$t" -- -n
		line_is 1 "$foreign"
		try 0 "$t" - <-n
		line_is 1 "$foreign"
	done
}

@test "each record is written before the next is read" {
	mkfifo pipe
	for t in "${FILTERS[@]}"; do
		program=$t
		rm -f "$out"
		"$bin/$t" pipe >"$out" 2>"$err" &
		pid=$!
		exec 7>pipe
		echo "$foreign" >&7
		for _ in {1..1200}; do
			[ ! -s "$out" ] || break
			sleep 0.05
		done
		line_is 1 "$foreign"
		exec 7>&-
		wait "$pid"
	done
}

@test "a signal ends it; what was finished is there" {
	mkfifo pipe
	for t in "${FILTERS[@]}"; do
		pick "$t"
		for sig in TERM INT; do
			program=$t
			rm -f "$out"
			# A shell's background jobs ignore SIGINT; this one
			# must not.
			perl -e '$SIG{INT} = "DEFAULT"; exec @ARGV' \
				"$bin/$t" pipe >"$out" 2>"$err" &
			pid=$!
			exec 7>pipe
			printf '%s\n' "$foreign" "$cheap" >&7
			for _ in {1..1200}; do
				[ ! -f "$out" ] ||
					[ "$(wc -l <"$out")" != 2 ] || break
				sleep 0.05
			done
			kill -"$sig" "$pid"
			status=0
			wait "$pid" || status=$?
			exec 7>&-
			[ "$status" = $((128 + $(kill -l $sig))) ]
			wrote 2
			silent
		done
	done
}

@test "programs that need operands say so" {
	for t in ca-jail ca-workdir; do
		try 64 "$t" </dev/null
		said "$t: "
	done
}
