#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# apparmor.sh: where AppArmor keeps programs without a profile from using user
# namespaces (Ubuntu from 23.10 on), jails of level full cannot be made.  Writes
# build/cuda-agent.apparmor, which allows them to bubblewrap and to the Python
# whose children judge, asks on a terminal whether to install it and says how
# elsewhere.  Changes nothing unasked.
set -u
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
# shellcheck source=test/setup/lib.sh
. "$here/lib.sh"
restricted=${CA_USERNS:-/proc/sys/kernel/apparmor_restrict_unprivileged_userns}
profile=$top/build/cuda-agent.apparmor
installed=/etc/apparmor.d/cuda-agent

[ "$(cat "$restricted" 2>/dev/null)" = 1 ] || exit 0
bwrap=$(command -v bwrap) || exit 0
! as_worker "$bwrap" --unshare-all --ro-bind / / true 2>/dev/null || exit 0

rule() { # name, program: AppArmor goes by where links lead
	cat <<-END

	profile cuda-agent-$1 $(readlink -f "$2") flags=(unconfined) {
	  userns,
	}
	END
}

mkdir -p "$top/build" || exit 0
{
	cat <<-'END'
	# user namespaces for the jails of the CUDA Agent toolkit
	abi <abi/4.0>,
	include <tunables/global>
	END
	rule bwrap "$bwrap"
	! python=$(torch_python) || rule python "$python"
} >"$profile"

sudo=
[ "$(id -u)" = 0 ] || sudo='sudo '
as_root() {
	if [ -n "$sudo" ]; then sudo "$@"; else "$@"; fi
}
say "AppArmor keeps bwrap from making user namespaces here, without which" \
	"candidates cannot be confined; $profile allows them"
if [ -t 0 ] && [ -t 2 ]; then
	printf 'deps: install it? [y/N] ' >&2
	read -r answer
	case $answer in
	y* | Y*)
		as_root cp "$profile" $installed &&
			as_root apparmor_parser -r $installed && exit 0
		;;
	esac
fi
say "to install it: ${sudo}cp $profile $installed &&" \
	"${sudo}apparmor_parser -r $installed"
