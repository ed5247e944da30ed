#!/bin/bash
# The installer's unit makes the ConfigMap kube-system/bootstrap; here it is a file.
until [ -e /opt/openshift/.bootkube.done ]; do sleep 0.2; done
touch /opt/openshift/bootstrap-complete
exec sleep infinity
