#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# fresh.sh [-k] [-d DIR] SUITE [COMMAND...]: runs commands (by default
# `make demo`, then `make test`) in a clone of HEAD on a bare system that has
# make and a network: Debian bookworm or trixie, Ubuntu noble.  Root only.
#
#   -k      keep the system's folder and say where it is
#   -d DIR  keep the downloads of torch in DIR, for the next run
#
# The system is made by debootstrap (about 30 s) and takes over this
# machine's package servers, proxies, certificates and pip configuration.
# It is entered by pivot_root, not chroot, since a process in a chroot may
# not make user namespaces, and lives in namespaces of its own: its mounts
# and processes end with it, however this script ends.
set -eu
top=$(cd "$(dirname "$0")/.." && pwd)

fail() {
	echo "fresh.sh: $*" >&2
	exit 1
}

usage() {
	sed -n '5,7s/^# //p' "$0" >&2
	exit 64
}

mirror_of() { # distribution
	{
		# shellcheck disable=SC2016
		apt-get indextargets --format '$(REPO_URI)' 2>/dev/null || true
		echo http://deb.debian.org/debian/
		echo http://archive.ubuntu.com/ubuntu/
	} | grep -m1 "/$1/\$"
}

make_system() { # suite, root
	local mirror distribution=debian components=main script=()
	case $1 in
	bookworm | trixie) ;;
	noble) distribution=ubuntu components=main,universe ;;
	*) fail "no such suite: '$1' (bookworm, trixie, noble)" ;;
	esac
	mirror=$(mirror_of "$distribution")
	# An older debootstrap does not know the name of a newer Ubuntu; all
	# of them are made by one script.
	[ -e "/usr/share/debootstrap/scripts/$1" ] ||
		script=(/usr/share/debootstrap/scripts/gutsy)
	debootstrap --variant=minbase --components="$components" \
		--include=make,ca-certificates "$1" "$2" "$mirror" \
		"${script[@]}" \
		>"$work/debootstrap.log" 2>&1 ||
		fail "debootstrap failed:
$(tail -n 5 "$work/debootstrap.log")"
	{
		echo "deb $mirror $1 ${components/,/ }"
		echo "deb $mirror $1-updates ${components/,/ }"
	} >"$2/etc/apt/sources.list"
}

take_over() { # root
	local file
	for file in /etc/apt/apt.conf /etc/apt/apt.conf.d /etc/apt/auth.conf.d \
		/etc/resolv.conf /etc/hosts /etc/pip.conf /etc/ssl/certs \
		/usr/local/share/ca-certificates; do
		[ -e "$file" ] || continue
		mkdir -p "$1$(dirname "$file")"
		cp -rL "$file" "$1$(dirname "$file")/" 2>/dev/null || true
	done
	if [ -f "$HOME/.config/pip/pip.conf" ]; then
		cp "$HOME/.config/pip/pip.conf" "$1/etc/pip.conf"
	fi
}

# The environment of the commands: an empty home and what the network needs.
environment() {
	env | grep -E '^(PIP_[A-Z_]*|SSL_CERT_[A-Z]*|REQUESTS_CA_BUNDLE)=' |
		grep -vE '^PIP_(CACHE_DIR|FIND_LINKS)=' || true
	env | grep -E '^(https?|no|all)_proxy=' || true
	env | grep -E '^(HTTPS?|NO|ALL)_PROXY=' || true
	echo HOME=/root
	echo TERM=dumb
	echo PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
	[ -z "$downloads" ] || echo CA_WHEELS=/var/cache/wheels
}

# In the new namespaces: mounts, pivot_root, the commands.
enter() { # root, command...
	local root=$1
	shift
	mount --bind "$root" "$root"
	cd "$root"
	mkdir -p old
	mount -t proc proc proc
	mount --rbind /sys sys
	mount --rbind /dev dev
	mount -t tmpfs -o mode=1777 tmpfs dev/shm
	if [ -n "$downloads" ]; then
		mkdir -p "$downloads" var/cache/wheels
		mount --bind "$downloads" var/cache/wheels
	fi
	mapfile -t vars < <(environment)
	pivot_root . old
	# shellcheck disable=SC2016
	exec chroot . env -i "${vars[@]}" /bin/bash -c '
		umount -l /old && cd /root/project && failed=0
		for command; do
			echo "== $command"
			from=$SECONDS
			bash -c "$command" </dev/null || failed=1
			echo "== $command: $((SECONDS - from)) s, failed: $failed"
		done
		exit $failed' fresh "$@"
}

if [ "${1-}" = --enter ]; then
	downloads=$2
	shift 2
	enter "$@"
fi

keep='' downloads=''
while getopts kd: option; do
	case $option in
	k) keep=1 ;;
	d) downloads=$(realpath -m "$OPTARG") ;;
	*) usage ;;
	esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || usage
[ "$(id -u)" = 0 ] || fail 'only root can make a system'
for tool in debootstrap unshare pivot_root git; do
	command -v $tool >/dev/null || fail "no $tool here"
done
suite=$1
shift
[ $# -gt 0 ] || set -- 'make demo' 'make test'
work=$(mktemp -d /var/tmp/ca-fresh.XXXXXX)
trap '[ -n "$keep" ] || rm -rf --one-file-system "$work"' EXIT
trap 'exit 130' INT TERM
from=$SECONDS
make_system "$suite" "$work/root"
take_over "$work/root"
git clone -q --no-hardlinks "$top" "$work/root/root/project"
echo "== $suite made in $((SECONDS - from)) s, at $(git -C "$top" rev-parse --short HEAD)"
[ -z "$keep" ] || echo "== kept in $work/root"
status=0
unshare --mount --pid --fork --kill-child --propagation private -- \
	"$0" --enter "$downloads" "$work/root" "$@" || status=$?
echo "== $suite: $([ $status -eq 0 ] && echo passed || echo FAILED)," \
	"$((SECONDS - from)) s, $(du -sxm "$work/root" | cut -f1) MiB"
exit $status
