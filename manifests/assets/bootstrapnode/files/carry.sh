#!/bin/bash
# Bring the images onto a disk that coreos-installer has written: carry.sh DISK [OPTION…], with the options of dayone bootstrap carry.
set -euo pipefail
disk=$1
shift
! command -v udevadm >/dev/null || udevadm settle
root=$(lsblk --noheadings --paths --raw --output NAME,LABEL "$disk" | sed -n 's/ root$//p')
if [ -z "$root" ]; then
	echo "dayone: coreos-installer has left no file system with the label root on $disk" >&2
	exit 1
fi
mkdir -p /run/dayone-disk
mount "$root" /run/dayone-disk
# assisted-installer puts the OS of MCO's rendering onto the disk, freezes the file system and unmounts it. Linux leaves it frozen: what
# writes to it through another mount waits for ever. It may freeze it again while this runs.
thaw() { ! fsfreeze --unfreeze /run/dayone-disk 2>/dev/null || echo "dayone: $root was frozen"; }
thaw
while sleep 5; do thaw; done &
trap 'kill "$!" || true; umount /run/dayone-disk' EXIT
/usr/local/bin/dayone bootstrap carry --state-dir /var/lib/dayone --to /run/dayone-disk "$@"
