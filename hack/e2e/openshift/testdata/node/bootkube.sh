#!/bin/bash
# The stages of the installer's bootkube.sh that matter here, in its order, each with its marker; everything else is left out. What a file
# fixture/hold-NAME holds up goes on when the test removes that.
set -euo pipefail
cd /opt/openshift
SERVICE_NAME=bootkube
. /usr/local/bin/service-record.sh

stage() { # NAME COMMAND...
    [ ! -f "$1.done" ] || return 0
    record_service_stage_start "$1"
    "${@:2}"
    touch "$1.done"
    record_service_stage_success
}

openshift_manifests() { cp openshift/* manifests/; }

mco_bootstrap() {
    while [ -e fixture/hold-mco ]; do sleep 0.2; done
    mkdir -p /etc/mcc/bootstrap /etc/mcs/bootstrap /etc/kubernetes/manifests
    cp mco-bootstrap/* manifests/* /etc/mcc/bootstrap/
    cp fixture/machineconfigoperator-bootstrap-pod.yaml /etc/kubernetes/manifests/
}

cb_bootstrap() { # cluster-bootstrap waits for the masters' control plane; the test says when it is there
    until [ -e fixture/masters-up ]; do sleep 0.2; done
}

cvo_overrides() { rm -f /etc/kubernetes/manifests/machineconfigoperator-bootstrap-pod.yaml; }

stage openshift-manifests openshift_manifests
stage mco-bootstrap mco_bootstrap
stage cb-bootstrap cb_bootstrap
stage cvo-overrides cvo_overrides
touch .bootkube.done
