package cluster

import (
	"net"
	"strings"

	"golang.org/x/net/dns/dnsmessage"

	"dayone.dev/dayone/hack/kube/controlplane"
)

const (
	clusterDomain = "cluster.local"
	// answerSeconds is how long clients keep an answer.
	answerSeconds = 5
	// maxQuery is the size of a DNS message over UDP (RFC 1035, section 4.2.1).
	maxQuery = 512
)

// names are all that the cluster's DNS knows.
func names() map[string]string {
	return map[string]string{
		RegistryHost + ".": NodeAddress,
		"kubernetes.default.svc." + clusterDomain + ".": controlplane.ServiceAddress,
	}
}

// serveDNS answers pods until the socket is closed. Names that it does not know do not exist: nothing leads out of the
// cluster.
func serveDNS(socket net.PacketConn) {
	buf := make([]byte, maxQuery)
	for {
		n, client, err := socket.ReadFrom(buf)
		if err != nil {
			return // with the node
		}
		if reply := answer(buf[:n]); reply != nil {
			_, _ = socket.WriteTo(reply, client) // a client that has gone asks again
		}
	}
}

// answer gives the reply to a query, nil for what is none.
func answer(query []byte) []byte {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil || m.Response || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	reply := dnsmessage.Message{
		Header: dnsmessage.Header{ID: m.ID, Response: true, Authoritative: true, RecursionDesired: m.RecursionDesired,
			RecursionAvailable: true},
		Questions: m.Questions,
	}
	address, known := names()[strings.ToLower(q.Name.String())]
	switch {
	case !known:
		reply.RCode = dnsmessage.RCodeNameError
	case q.Type == dnsmessage.TypeA:
		var a dnsmessage.AResource
		copy(a.A[:], net.ParseIP(address).To4())
		reply.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: answerSeconds}, Body: &a,
		}}
	}
	raw, err := reply.Pack()
	if err != nil {
		return nil
	}
	return raw
}
