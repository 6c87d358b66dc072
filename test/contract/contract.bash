# SPDX-License-Identifier: Apache-2.0
#
# shellcheck disable=SC2034,SC2154  # used and set by contract.bats
#
# Helpers of the contract suite.  Programs are listed by class, so that one
# that is missing fails, and so does one that nobody listed.

# One record in, one record out, in order: candidates, or tasks.
TASKS=(ca-dedup-ast ca-filter)
FILTERS=(ca-compile ca-verify ca-profile ca-reward "${TASKS[@]}")
# Their own cardinality; their behaviour is tested in test/tools.
OTHERS=(ca-agent ca-combine ca-crawl ca-jail ca-ppo ca-rft ca-serve ca-torch ca-vpretrain
	ca-workdir)
ALL=("${FILTERS[@]}" "${OTHERS[@]}")

bin=${CA_BIN:-$BATS_TEST_DIRNAME/../../bin}

# A record that no program works on, with odd spelling that must survive.
foreign='{ "v" : 1,"kind":"note", "n":1.50e+01 , "s":"\u00e9\/" }'
odd='"v":1, "x":[ 1.0 ,-0],"\u0079":"\u0041",'

# pick PROGRAM: `cheap` becomes a record of its kind that costs nothing, since
# the candidate has no files and the task no code; `other` one that is not
# for it.
pick() {
	cheap='{"kind" :"candidate",'$odd'"task":{"code":"pass\n"},"files":{} }'
	other='{"kind":"task","v":1}'
	case " ${TASKS[*]} " in
	*" $1 "*)
		cheap='{"kind" :"task",'$odd'"source":{} }'
		other='{"kind":"candidate","v":1}'
	esac
}

# try STATUS PROGRAM [ARG...]: runs it with stdin as given, output in $out and
# $err (files), and checks its exit status.
try() {
	local want=$1 status=0
	shift
	program=$1
	"$bin/$1" "${@:2}" >"$out" 2>"$err" || status=$?
	[ "$status" = "$want" ] || complain "exit $status instead of $want"
}

complain() {
	printf '%s: %s\n' "$program" "$*"
	head -c 2000 "$out" "$err"
	return 1
}

# said TEXT: stderr holds it.
said() {
	grep -qF -e "$1" "$err" || complain "did not say '$1'"
}

silent() {
	[ ! -s "$err" ] || complain 'was not silent'
}

# wrote N: so many lines, each a JSON object, the last one with its LF.
wrote() {
	local n
	n=$(wc -l <"$out")
	[ "$n" = "$1" ] || complain "wrote $n lines instead of $1" || return
	[ -z "$(tail -c 1 "$out")" ] || complain 'no last LF' || return
	[ "$(jq -c 'select(type == "object")' "$out" | wc -l)" = "$1" ] ||
		complain 'wrote something that is no object'
}

# Line N of the output is TEXT, byte for byte.
line_is() {
	[ "$(sed -n "$1p" "$out")" = "$2" ] || complain "line $1 is not: $2"
}

# Line N is an error record about input line M.
answers() {
	sed -n "$1p" "$out" | jq -e --argjson line "$2" '.kind == "error" and
		.v == 1 and .line == $line and .byte >= 1 and
		(.message | length > 0)' >/dev/null ||
		complain "line $1 is no error record for line $2"
}

# takes PROGRAM --OPTION: whether its help lists it.
takes() {
	"$bin/$1" --help | grep -qE -e "^ +(-., )? *$2(=| |\$)"
}
