#!/bin/bash
# The stages of the installer's bootkube.sh with a bootstrap in place, as far as they matter here.
set -euoE pipefail
cd /opt/openshift
SERVICE_NAME=bootkube
. /usr/local/bin/service-record.sh

if [ ! -f mco-bootstrap.done ]; then
    record_service_stage_start mco-bootstrap
    cp openshift/* manifests/
    mkdir -p /etc/mcc/bootstrap /etc/mcs/bootstrap /etc/kubernetes/manifests
    cp mco-bootstrap/* manifests/* /etc/mcc/bootstrap/
    cp fixture/machineconfigoperator-bootstrap-pod.yaml /etc/kubernetes/manifests/
    touch mco-bootstrap.done
    record_service_stage_success
fi

if [ ! -f cb-bootstrap.done ]; then # cluster-bootstrap ends when every manifest is created; the test creates them
    record_service_stage_start cb-bootstrap
    until [ -e fixture/all-created ]; do sleep 0.2; done
    touch cb-bootstrap.done
    record_service_stage_success
fi

. /usr/local/bin/bootstrap-in-place.sh the-image-of-cluster-bootstrap
touch .bootkube.done
