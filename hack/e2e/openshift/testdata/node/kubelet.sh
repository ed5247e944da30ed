#!/bin/bash
# Stand-in for a kubelet with MCO's static pod: the init container (dayone's renderer in MCO's place) again and again until it succeeds,
# then the server, as long as the manifest is there.
pod=/etc/kubernetes/manifests/machineconfigoperator-bootstrap-pod.yaml
server=
while :; do
    if [ -e $pod ] && [ -z "$server" ]; then
        if podman run --rm --net=host --uts=host --authfile /root/.docker/config.json \
            --volume /etc/mcc/bootstrap:/etc/mcc/bootstrap --volume /etc/mcs/bootstrap:/etc/mcs/bootstrap \
            --entrypoint machine-config-controller "$(sed -n 's/^ *image: //p' $pod)" \
            bootstrap --manifest-dir=/etc/mcc/bootstrap --dest-dir=/etc/mcs/bootstrap --payload-version=test; then
            while [ -e /opt/openshift/fixture/hold-serve ]; do sleep 0.2; done
            until [ -x /usr/local/bin/dayone ]; do sleep 0.2; done
            /usr/local/bin/dayone serve --server-basedir /etc/mcs/bootstrap --secure-port 0 --insecure-port 22624 &
            server=$!
        fi
    elif [ ! -e $pod ] && [ -n "$server" ]; then
        kill "$server"
        server=
    fi
    sleep 0.2
done
