#!/bin/bash
# Stand-in for a kubelet with MCO's static pod: the init container (dayone's renderer in MCO's place) again and again until it succeeds,
# then the server, as long as the manifest is there.
pod=/etc/kubernetes/manifests/machineconfigoperator-bootstrap-pod.yaml
logs=/var/log/pods/openshift-machine-config-operator_bootstrap-machine-config-operator-boot0_0001/machine-config-server
server=
while :; do
    if [ -e $pod ] && [ -z "$server" ]; then
        if podman run --rm --net=host --uts=host --authfile /root/.docker/config.json \
            --volume /etc/mcc/bootstrap:/etc/mcc/bootstrap --volume /etc/mcs/bootstrap:/etc/mcs/bootstrap \
            --entrypoint machine-config-controller "$(sed -n 's/^ *image: //p' $pod)" \
            bootstrap --manifest-dir=/etc/mcc/bootstrap --dest-dir=/etc/mcs/bootstrap --payload-version=test; then
            while [ -e /opt/openshift/fixture/hold-serve ]; do sleep 0.2; done
            until [ -x /usr/local/bin/dayone ]; do sleep 0.2; done
            mkdir -p "$logs"
            # MCO's server logs each request; the container runtime adds time and stream.
            /usr/local/bin/dayone serve --server-basedir /etc/mcs/bootstrap --secure-port 0 --insecure-port 22624 2> >(
                while read -r line; do
                    [[ $line =~ agent=\"?([^\ \"]+).*\ client=\"?([^\ \"]+).*\ path=/config/([a-z]+) ]] || continue
                    printf '%s stderr F I0102 03:04:05.000000       1 api.go:102] Pool %s requested by address:"%s" User-Agent:"%s" Accept-Header: ""\n' \
                        "$(date -u +%FT%T.%NZ)" "${BASH_REMATCH[3]}" "${BASH_REMATCH[2]}" "${BASH_REMATCH[1]}" >>"$logs/0.log"
                done) &
            server=$!
        fi
    elif [ ! -e $pod ] && [ -n "$server" ]; then
        kill "$server"
        server=
    fi
    sleep 0.2
done
