#!/bin/sh
# An upgrade (upgrade of dpkg, 1 of rpm) keeps running what runs.
set -e
case "$1" in
upgrade | 1) exit 0 ;;
esac
if [ -d /run/systemd/system ]; then
	systemctl disable --now dayone-bootstrap.service dayone-registry-server.service || true
fi
