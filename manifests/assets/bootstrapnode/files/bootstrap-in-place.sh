#!/bin/bash
# In the place of the installer's script of this name, which stops etcd and makes the disk's Ignition config of what MCO's server serves: it
# must not begin before that serves the image. bootkube.sh sources it.
set -euoE pipefail
/usr/local/bin/dayone bootstrap hold --state-dir /var/lib/dayone
. /usr/local/bin/bootstrap-in-place.installer.sh "$@"
