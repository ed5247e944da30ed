package day1

import (
	"net"
	"strings"

	"dayone.dev/dayone/bootstrap/nodes"
	"dayone.dev/dayone/installconfig"
)

// trackNodes keeps how far each node is, as this host sees it.
func trackNodes(h Host, id *Identity) *nodes.Tracker {
	pools := map[string]string{}
	for _, p := range BuiltHere(h.In) {
		path := installconfig.RepositoryPath(p.Repository)
		if _, shared := pools[path]; shared {
			pools[path] = "" // the node's own report says of which pool it is
			continue
		}
		pools[path] = p.Name
	}
	return nodes.New(nodes.Options{StateDir: h.StateDir, Pools: pools, Own: ownAddresses(), Scrub: id.scrub,
		ByMCO: h.ByMCO, Now: h.Now, Log: h.Log.WithField("component", "nodes")})
}

// ownAddresses are those of this host: builds push and tests pull from them. A host that cannot list them shows
// itself among the nodes.
func ownAddresses() []string {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	var out []string
	for _, a := range list {
		if n, ok := a.(*net.IPNet); ok {
			out = append(out, n.IP.String())
		}
	}
	return out
}

// scrub takes the passwords of the registry's accounts out of a text.
func (id *Identity) scrub(text string) string {
	for _, u := range id.Users {
		text = strings.ReplaceAll(text, u.Password, "***")
	}
	return text
}
