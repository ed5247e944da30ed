#!/bin/bash
# The installer's script makes the ConfigMap kube-system/bootstrap, and ends; here that is a file.
until [ -e /opt/openshift/.bootkube.done ]; do sleep 0.2; done
touch /opt/openshift/bootstrap-complete
