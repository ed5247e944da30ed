#!/bin/sh
# Neither is there in a container or a root that does not run; both are done at its boot.
set -e
if [ -d /run/systemd/system ]; then
	systemd-sysusers dayone.conf
	systemctl daemon-reload
fi
