package authority

import (
	"crypto/x509"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"dayone.dev/dayone/registry/certs"
)

const (
	// renewPart of its lifetime is left of a CA when it is replaced: two years of the ten that it has. Certificates of
	// registries are valid for a year, and nobody reads alerts every day.
	renewPart = 5
	// offLimit is how long a step waits for nodes that are off. They get what they lack from the API when they are back.
	offLimit = 24 * time.Hour
	// bootLimit is how long the next CA is given before it is used: a node that boots for the first time got what it
	// trusts with its config, pulls its image minutes later, and is no node of the API that could say anything.
	bootLimit = 15 * time.Minute
	// clocks is how far those of the API and of the controller may be apart, and how long a builder may work by the bundle
	// that was there before.
	clocks = time.Minute
)

// View is what the steps depend on.
type View struct {
	// CA is what the Secret has for registries now.
	CA string
	// Request is the administrator's.
	Request Request
	// Bundle is what the cluster gives its nodes and builds for the registries now.
	Bundle []byte
	// Unavailable is why it can give them nothing; "": it can.
	Unavailable string
	// Registries are those of the control plane; Nodes are all of the cluster.
	Registries []Registry
	Nodes      []Node
	// Builds have not ended.
	Builds []Build
}

// Registry is one of the control plane.
type Registry struct {
	Node string
	// Ready: the node is.
	Ready bool
	// Works: it has said that it works by what the Secret has now.
	Works bool
}

// Node is one of the cluster, by its own word.
type Node struct {
	Name  string
	Ready bool
	// Agent: one has said something.
	Agent bool
	// Trusts are the fingerprints of the CAs that it trusts for the registries.
	Trusts []string
}

// Build pushes to the registries.
type Build struct {
	Name  string
	Began time.Time
}

// Wait is for whom a step waits, and why.
type Wait struct {
	// Node is its name; "" is no node.
	Node string `json:"node,omitempty"`
	Why  string `json:"why"`
}

// Next takes one step, where everybody has followed the last one. It gives for whom it waits. The state is to be kept
// before anything that follows from it is done. An error leaves the state: the Secret's CA is not usable, and the state
// has none in its place.
func (s State) Next(now time.Time, v View) (State, []Wait, error) {
	now = now.UTC().Truncate(time.Second)
	signs, err := certs.ParseCA([]byte(v.CA), []byte(v.CA))
	switch {
	case err != nil && s.none():
		return s, nil, fmt.Errorf("read CA of the registries: %w", err)
	case err == nil && !s.none() && !s.knows(signs.Certificate()): // an administrator has brought the next one
		if s, err = s.follow(now, signs.Certificate(), signOnly(v.CA)); err != nil {
			return s, nil, err
		}
	}
	switch s.Step {
	case Trusting:
		s.amend(v.Request)
		return s.trusting(now, v)
	case Serving:
		s.amend(v.Request)
		return s.serving(now, v)
	case Dropping:
		s.amend(v.Request)
		return s.dropping(now, v)
	}
	return s.begin(now, v)
}

// follow takes a CA as the next one. Nodes do not trust it yet, so it goes the way of one that is made here.
func (s State) follow(now time.Time, cert *x509.Certificate, ca string) (State, error) {
	if now.Before(cert.NotBefore) || !now.Before(cert.NotAfter) {
		return s, fmt.Errorf("read CA of the registries: %q is valid from %s to %s only", cert.Subject.CommonName,
			cert.NotBefore.UTC().Format(time.RFC3339), cert.NotAfter.UTC().Format(time.RFC3339))
	}
	if s.Successor != "" {
		s.Replaced = s.replaced(fingerprint(s.Successor), now)
	}
	s.Successor = ca
	if s.Step == Trusting {
		s.Since, s.Given = now, time.Time{}
	}
	return s, nil
}

// signOnly is the CA that signs, without others.
func signOnly(ca string) string { return string(append(certs.EncodeBundle(first(ca)), keyOf(ca)...)) }

// amend takes over what an administrator has added to the request that runs.
func (s *State) amend(r Request) {
	if r.Asked != s.Asked {
		return
	}
	s.Now = s.Now || r.Now
	for _, node := range r.Without {
		if !slices.Contains(s.Without, node) {
			s.Without = append(slices.Clip(s.Without), node)
		}
	}
}

// RenewedFrom is when a CA is replaced although nobody asks.
func RenewedFrom(ca string) time.Time {
	cert := first(ca)
	if cert == nil {
		return time.Time{}
	}
	return cert.NotAfter.Add(-cert.NotAfter.Sub(cert.NotBefore) / renewPart)
}

// begin makes the next CA where it is time, or somebody has asked.
func (s State) begin(now time.Time, v View) (State, []Wait, error) {
	have := s.Current
	if s.none() {
		have = signOnly(v.CA)
	}
	asked := v.Request.Asked != "" && v.Request.Asked != s.Asked || s.Successor != ""
	if !asked && now.Before(RenewedFrom(have)) {
		return s, nil, nil
	}
	if !slices.ContainsFunc(v.Nodes, func(n Node) bool { return n.Agent }) {
		return s, []Wait{{Why: "no node runs dayone's agent, which would bring it the CA: replace the CA by hand with " +
			"dayone registry node-config --rotate"}}, nil
	}
	if v.Unavailable != "" {
		return s, []Wait{{Why: v.Unavailable}}, nil
	}
	next := s.Successor
	if next == "" {
		var err error
		if next, err = newCA(numbered(first(have).Subject.CommonName), now); err != nil {
			return s, nil, err
		}
	}
	out := State{Current: have, Successor: next, Step: Trusting, Asked: v.Request.Asked, Began: now, Since: now,
		Replaced: s.Replaced}
	out.amend(v.Request)
	return out, nil, nil
}

func newCA(name string, now time.Time) (string, error) {
	ca, err := certs.NewCA(certs.CAOptions{CommonName: name, Now: func() time.Time { return now }})
	if err != nil {
		return "", err
	}
	pem, err := ca.PEM()
	return string(pem), err
}

// numbered gives a name the next number: the first one has none.
func numbered(name string) string {
	base, number := name, 1
	if i := strings.LastIndexByte(name, '-'); i >= 0 {
		if n, err := strconv.Atoi(name[i+1:]); err == nil && n > 1 {
			base, number = name[:i], n
		}
	}
	return fmt.Sprintf("%s-%d", base, number+1)
}

// trusting goes on when every node and registry trusts the next CA, and no build runs that does not.
func (s State) trusting(now time.Time, v View) (State, []Wait, error) {
	if v.Unavailable != "" {
		return s, []Wait{{Why: v.Unavailable}}, nil
	}
	if !s.complete(v.Bundle) {
		return s, []Wait{{Why: "the next CA is on its way to the ControllerConfig"}}, nil
	}
	if s.Given.IsZero() {
		s.Given = now
	}
	var waits []Wait
	if now.Before(first(s.Current).NotAfter) { // else no registry can work by the Secret before the next one signs
		waits = s.lacking(now, v.Registries, "its registry has not taken the next CA over")
	}
	next := fingerprint(s.Successor)
	for _, n := range v.Nodes {
		if why := s.untrusting(now, n, next); why != "" {
			waits = append(waits, Wait{n.Name, why})
		}
	}
	for _, b := range v.Builds {
		if !b.Began.After(s.Given.Add(clocks)) {
			waits = append(waits, Wait{Why: "build " + b.Name + " began before and may not trust the next CA"})
		}
	}
	if until := s.Given.Add(bootLimit); !s.Now && now.Before(until) {
		waits = append(waits, Wait{Why: "nodes that boot for the first time may not trust the next CA until " +
			until.Format(time.RFC3339)})
	}
	if len(waits) > 0 {
		return s, waits, nil
	}
	s.Before, s.Current, s.Successor = string(certs.EncodeBundle(first(s.Current))), s.Successor, ""
	s.Step, s.Since = Serving, now
	return s, nil, nil
}

// serving goes on when every registry works by the new CA.
func (s State) serving(now time.Time, v View) (State, []Wait, error) {
	waits := s.lacking(now, v.Registries, "its registry does not show a certificate of the new CA yet")
	if len(waits) > 0 {
		return s, waits, nil
	}
	s.Step, s.Since = Dropping, now
	return s, nil, nil
}

// dropping ends when no node that is on trusts the CA before. One that is off drops it when it is back.
func (s State) dropping(now time.Time, v View) (State, []Wait, error) {
	if v.Unavailable != "" {
		return s, []Wait{{Why: v.Unavailable}}, nil
	}
	if !s.complete(v.Bundle) {
		return s, []Wait{{Why: "the CA before is on its way out of the ControllerConfig"}}, nil
	}
	waits := s.lacking(now, v.Registries, "its registry has not let the CA before go")
	before := fingerprint(s.Before)
	for _, n := range v.Nodes {
		if n.Ready && slices.Contains(n.Trusts, before) && !slices.Contains(s.Without, n.Name) {
			waits = append(waits, Wait{n.Name, "it still trusts the CA before: see dayone-daemon's log there"})
		}
	}
	if len(waits) > 0 {
		return s, waits, nil
	}
	// A request that came meanwhile has what it asked for.
	return State{Current: s.Current, Successor: s.Successor, Asked: v.Request.Asked,
		Replaced: s.replaced(before, now)}, nil, nil
}

// replaced are the CAs that count no more, with another one.
func (s State) replaced(ca string, at time.Time) []Replaced {
	all := append(slices.Clip(s.Replaced), Replaced{Fingerprint: ca, At: at})
	return all[max(0, len(all)-maxReplaced):]
}

// off says why a node that is off is waited for; "": it is not.
func (s State) off(now time.Time, why string) string {
	until := s.Since.Add(offLimit)
	if s.Now || !now.Before(until) {
		return ""
	}
	return fmt.Sprintf("%s; the node is off, and is waited for until %s", why, until.Format(time.RFC3339))
}

// lacking are the registries that do not work by what the Secret has.
func (s State) lacking(now time.Time, registries []Registry, why string) (out []Wait) {
	ready := false
	for _, r := range registries {
		left := slices.Contains(s.Without, r.Node)
		ready = ready || r.Ready && !left
		switch {
		case r.Works || left:
		case r.Ready:
			out = append(out, Wait{r.Node, why + ": see journalctl -u dayone-registry there and dayone-daemon's log, and " +
				"whether both have the version of dayone"})
		default:
			if text := s.off(now, why); text != "" {
				out = append(out, Wait{r.Node, text})
			}
		}
	}
	if !ready {
		out = append(out, Wait{Why: "no control-plane node is ready"})
	}
	return out
}

// untrusting says why a node is waited for that does not trust a CA; "": it is not.
func (s State) untrusting(now time.Time, n Node, ca string) string {
	switch {
	case slices.Contains(n.Trusts, ca) || slices.Contains(s.Without, n.Name):
		return ""
	case !n.Ready:
		return s.off(now, "it has not said that it trusts the next CA")
	case !n.Agent:
		return "no agent of dayone has said which CAs it trusts: see whether dayone-daemon runs there"
	}
	return "it has not said that it trusts the next CA: see dayone-daemon's log there, whether it has the version of " +
		"dayone, and whether a MachineConfig brings the registries' CA"
}
