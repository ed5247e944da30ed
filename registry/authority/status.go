package authority

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"dayone.dev/dayone/registry/certs"
)

const (
	// StatusFile is the key of a ConfigMap with a Status.
	StatusFile = "ca.json"
	// maxWaits is how many a Status names.
	maxWaits = 20
)

// Status is what everybody may know.
type Status struct {
	// Fingerprint of the CA that signs, and its common name.
	Fingerprint string    `json:"fingerprint"`
	Name        string    `json:"name"`
	NotAfter    time.Time `json:"notAfter"`
	// RenewedFrom is when it is replaced although nobody asks.
	RenewedFrom time.Time `json:"renewedFrom"`
	// Trusted is PEM of the CAs that clients of the registries are to trust now.
	Trusted string `json:"trusted"`
	// Asked is the text of the request that was followed last.
	Asked string `json:"asked,omitempty"`
	// Rotation is the one that runs; nil: none.
	Rotation *Rotation `json:"rotation,omitempty"`
	// Behind are nodes that do not trust the CA that signs, and get it from the API when their agent works: they were off
	// during a rotation, or left out.
	Behind []string `json:"behind,omitempty"`
}

// Rotation is how far one is.
type Rotation struct {
	Step Step `json:"step"`
	// Next is the fingerprint of the CA that comes, in step Trusting; Before of the one that goes, in the others.
	Next   string `json:"next,omitempty"`
	Before string `json:"before,omitempty"`
	// Began is when the rotation did, and Since when its step did.
	Began time.Time `json:"began"`
	Since time.Time `json:"since"`
	// OffUntil is until when nodes are waited for that are off.
	OffUntil time.Time `json:"offUntil"`
	// Without are nodes that are not waited for, as an administrator said.
	Without []string `json:"without,omitempty"`
	// Waits are the first of those that are waited for, and More is how many there are beside them.
	Waits []Wait `json:"waits,omitempty"`
	More  int    `json:"more,omitempty"`
}

// Status shows a state; ca is what the Secret has, and waits is what Next gave.
func (s State) Status(ca string, nodes []Node, waits []Wait) Status {
	signs, trusted := s.Current, s.CA(ca)
	if s.none() {
		signs = ca
	}
	cert := first(signs)
	out := Status{Fingerprint: certs.Fingerprint(cert), Name: cert.Subject.CommonName, NotAfter: cert.NotAfter.UTC(),
		RenewedFrom: RenewedFrom(signs).UTC().Truncate(time.Second), Asked: s.Asked,
		Trusted: string(certs.EncodeBundle(certs.Bundle([]byte(trusted))...))}
	if !s.none() { // before, nodes may have it from elsewhere, of which they say nothing
		for _, n := range nodes {
			if s.Step != Trusting && !slices.Contains(n.Trusts, out.Fingerprint) {
				out.Behind = append(out.Behind, n.Name)
			}
		}
		slices.Sort(out.Behind)
	}
	if s.Step == "" {
		return out
	}
	off := s.Since.Add(offLimit)
	if s.Now {
		off = s.Since
	}
	out.Rotation = &Rotation{Step: s.Step, Next: fingerprint(s.Successor), Before: fingerprint(s.Before), Began: s.Began,
		Since: s.Since, OffUntil: off, Without: s.Without, Waits: waits[:min(len(waits), maxWaits)],
		More: max(0, len(waits)-maxWaits)}
	return out
}

// Encode is what DecodeStatus reads.
func (s Status) Encode() (string, error) {
	raw, err := json.Marshal(s)
	if err != nil {
		return "", fmt.Errorf("encode status of the registries' CA: %w", err)
	}
	return string(raw), nil
}

// DecodeStatus reads what Encode wrote; nil: there is none.
func DecodeStatus(raw string) (*Status, error) {
	if raw == "" {
		return nil, nil
	}
	var s Status
	if err := json.Unmarshal([]byte(raw), &s); err != nil {
		return nil, fmt.Errorf("read status of the registries' CA: %w", err)
	}
	return &s, nil
}

// Does says in words what a step does.
func (s Step) Does() string {
	switch s {
	case Trusting:
		return "nodes get to trust the next CA beside the one in use"
	case Serving:
		return "the registries make certificates of the new CA"
	case Dropping:
		return "nodes let the CA before go"
	}
	return "no rotation runs"
}

// maxNamed is how many waits a text names.
const maxNamed = 5

// Text is what a rotation waits for, in one line; "" is nothing.
func (r Rotation) Text() string {
	var out []string
	for _, w := range r.Waits[:min(len(r.Waits), maxNamed)] {
		if w.Node != "" {
			out = append(out, "node "+w.Node+": "+w.Why)
		} else {
			out = append(out, w.Why)
		}
	}
	if more := len(r.Waits) - len(out) + r.More; more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(out, "; ")
}
