package rollout

import (
	"cmp"
	"net"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"dayone.dev/dayone/registry/peers"
)

// RegistryPeers are the addresses of the control plane's registries, for nodes: the nodes' own and the port of
// registry, which is HOST[:PORT] in the names of images. A node that is not ready is among them, for its registry may
// serve.
func RegistryPeers(registry string, nodes []corev1.Node) peers.List {
	list := peers.List{Registry: registry, Peers: []peers.Peer{}}
	_, port, err := net.SplitHostPort(registry)
	if err != nil {
		port = strconv.Itoa(peers.Port)
	}
	for i := range nodes {
		n := &nodes[i]
		if !ControlPlane(n) {
			continue
		}
		for _, a := range n.Status.Addresses {
			if a.Type == corev1.NodeInternalIP {
				list.Peers = append(list.Peers, peers.Peer{Name: n.Name, Address: net.JoinHostPort(a.Address, port)})
				break
			}
		}
	}
	slices.SortFunc(list.Peers, func(a, b peers.Peer) int { return cmp.Compare(a.Name, b.Name) })
	return list
}
