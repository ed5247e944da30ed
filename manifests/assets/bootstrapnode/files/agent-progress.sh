#!/bin/bash
# assisted-installer reboots this host into its disk when progress.service has ended. Nothing may be lost with this host's memory: the report
# waits until every image is in its final registry and, where this host will keep a registry, on its disk.
set -euo pipefail
until [ -x /usr/local/bin/dayone ]; do sleep 2; done
/usr/local/bin/dayone bootstrap hold --state-dir /var/lib/dayone
if [ -x /usr/local/bin/dayone-registry ]; then
	[ -s /run/dayone-installed-disk ] || echo "dayone: waiting until coreos-installer has written this host's disk"
	until [ -s /run/dayone-installed-disk ]; do sleep 2; done
	/usr/local/bin/dayone-carry.sh "$(cat /run/dayone-installed-disk)"
fi
exec /usr/local/bin/report-progress.sh /opt/openshift/auth/kubeconfig
