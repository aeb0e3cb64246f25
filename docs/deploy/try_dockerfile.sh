#!/bin/bash
# Runs the steps of the Dockerfile, or of FILE, in a clean Debian root that is removed afterwards. Docker is not needed.
#
#     docs/deploy/try_dockerfile.sh [--dry-run] [FILE]
#
# From the environment: the file's ARGs; SUITE and MIRROR, if not FROM's and apt's; BIND, folders of this machine that
# the root sees too, such as an index of packages. The root goes to TMPDIR. Mounts end with the process that made them.
# shellcheck disable=SC2016 # apt and an inner shell expand what single quotes hold
set -o errexit -o nounset -o pipefail
cd "$(dirname "$0")/../.."
dry=; [ "${1:-}" != --dry-run ] || { dry=yes; shift; }
file=${1:-docs/deploy/Dockerfile}
fail() { echo "$file: $1" >&2; exit 1; }

steps=$(sed '/^[[:space:]]*\(#\|$\)/d' "$file" | sed ':more; /\\$/ { N; s/[[:space:]]*\\\n[[:space:]]*/ /; b more }')
setting='[A-Z_]+=[^[:space:]"'\''$\\]*'
known="FROM debian:[a-z]+-slim|(ARG|ENV) $setting|COPY \\. /[^[:space:]]+|RUN [^-[].*"
! unknown=$(grep --extended-regexp --invert-match --max-count 1 "^($known)$" <<< "$steps") ||
    fail "'$unknown': this script runs only FROM debian:SUITE-slim, ARG and ENV NAME=VALUE, COPY . FOLDER, and RUN COMMAND"
[ -z "$dry" ] || { echo "$steps"; exit; }
[ "$(id --user)" = 0 ] || fail "chroot needs root: sudo --preserve-env make image-check"
[ "$(command -v debootstrap)" ] || fail "debootstrap is missing: apt-get install debootstrap"
mirror=${MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' | sed 1q)}
[ "$mirror" ] || fail "apt has no mirror of Debian: set MIRROR to the address of one"

root=$(mktemp --directory "${TMPDIR:-/var/tmp}/image.XXXXXX") child=
chmod 755 "$root"
# Nothing is mounted here, in the root's parent: every mount is in a namespace of `alone`.
trap '[ -z "$child" ] || pkill -KILL --parent "$child" || true; wait; rm --recursive --force --one-file-system "$root"' EXIT
trap 'exit 130' INT TERM HUP
# In the background, so that a signal is handled at once.
alone() { unshare --mount --pid --fork --mount-proc "$@" & child=$!; wait "$child"; child=; }
values=(HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin)
for name in $(compgen -e); do
    case $name in PIP_* | *_proxy | *_PROXY) values+=("$name=${!name}") ;; esac
done
inside='set -e; for folder in /dev /proc $BIND; do mkdir -p "$0$folder"; mount --rbind "$folder" "$0$folder"; done
    for folder in $BIND; do mount -o remount,bind,ro "$0$folder"; done
    exec chroot "$0" env --ignore-environment "$@"'

while read -r -u 3 word rest; do
    echo "== $word $rest"
    case $word in
        FROM)
            suite=${rest#debian:}
            alone debootstrap --variant=minbase "${SUITE:-${suite%-slim}}" "$root" "$mirror"
            apt-config dump | grep '^Acquire::' > "$root/etc/apt/apt.conf.d/90host" || true
            cp --dereference /etc/hosts /etc/resolv.conf "$root/etc"
            for path in /etc/pip.conf /etc/xdg/pip /root/.config/pip /usr/local/share/ca-certificates; do
                [ ! -e "$path" ] || cp --recursive --parents "$path" "$root"
            done ;;
        ARG) name=${rest%%=*} && values+=("$name=${!name-${rest#*=}}") ;;
        ENV) values+=("$rest") ;;
        COPY) mkdir --parents "$root${rest#. }" && git archive HEAD | tar --extract --directory "$root${rest#. }" ;;
        RUN) BIND=${BIND:-} alone sh -c "$inside" "$root" "${values[@]}" /bin/sh -c "$rest" ;;
    esac
done 3<<< "$steps"
echo "$file: every step ran"
