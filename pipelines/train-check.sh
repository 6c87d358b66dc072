# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154,SC2034,SC2086 # train.sh's, and for it; options are words
#
# What train.sh, which sources this, asks before it begins.

say() {
	echo "train: $*" >&2
}

# What would be found wrong hours later.
check() {
	local n f
	for n in "$warm" "$rounds" "$seed"; do [[ $n =~ ^[0-9]+$ ]] || usage; done
	for n in "$k" "$jobs" "$ctx" "$every"; do [[ $n =~ ^[1-9][0-9]*$ ]] || usage; done
	for f in "${tasks[@]}" ${val:+"$val"} "${extra[@]}"; do
		[ -r "$f" ] || {
			say "cannot open '$f'"
			exit 66
		}
	done
	# Whether the programs take their options.
	"$bin/ca-rft" $common $rft_opts --help >/dev/null
	"$bin/ca-vpretrain" $common $vp_opts --help >/dev/null
	"$bin/ca-ppo" $common $ppo_opts --help >/dev/null
	"$bin/ca-agent" "${more[@]}" --help >/dev/null
}

begin() {
	command -v curl >/dev/null || {
		say 'curl is needed'
		exit 69
	}
	check
	[ -z "$url" ] || curl -fsS -m 60 "$url/models" >/dev/null || {
		say "no server answers at '$url'"
		exit 69
	}
	mkdir -p "$out" 2>/dev/null || {
		say "cannot create '$out'"
		exit 73
	}
	exec 7>>"$out/lock"
	# What a kill left behind ends by itself.
	flock -n 7 || { ! kill -0 "$(cat "$out/lock")" 2>/dev/null && flock -w 60 7; } || {
		say "another run is at work in '$out'"
		exit 75
	}
	echo $$ >"$out/lock"
	log=$out/serve.log own='' trainer=''
	touch "$log"
	trap leave EXIT
}
