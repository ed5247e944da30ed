#!/usr/bin/env bash
# Stand-in for the installer's script; the test reboots the machine.
set -euoE pipefail
until [ -f /opt/openshift/.bootkube.done ]; do sleep 0.2; done
if [ ! -f coreos-installer.done ]; then
    coreos-installer install -i /opt/openshift/master.ign /dev/fixture
    touch coreos-installer.done
fi
touch /opt/openshift/.install-to-disk.done
