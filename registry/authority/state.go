package authority

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"

	"dayone.dev/dayone/registry/certs"
)

// Step is how far a rotation is.
type Step string

// The steps, in their order; "" is none: no rotation runs.
const (
	// Trusting: nodes, builds and registries get to trust the next CA beside the one that signs.
	Trusting Step = "Trusting"
	// Serving: registries make their certificates of the new CA. Everybody trusts both.
	Serving Step = "Serving"
	// Dropping: nothing uses the CA before any more, and nodes let it go.
	Dropping Step = "Dropping"
)

const (
	// maxStateBytes of an encoded state: a dozen certificates.
	maxStateBytes = 64 << 10
	// maxReplaced is how many CAs that were replaced are remembered: one of an old directory is recognised by it.
	maxReplaced = 16
	// maxRequestBytes of a request, with the names of a hundred nodes.
	maxRequestBytes = 16 << 10
)

// State is kept in the Secret of the CA, and written before anything that follows from it. The zero value is of a CA
// that was never replaced by Next: then nothing follows from it.
type State struct {
	// Current is the CA that signs, PEM of its certificate and key. Successor is the next one: in step Trusting, and in
	// others where an administrator has brought one meanwhile. Before is the certificate of the one that signed, in the
	// steps Serving and Dropping.
	Current   string `json:"current,omitempty"`
	Successor string `json:"successor,omitempty"`
	Before    string `json:"before,omitempty"`
	Step      Step   `json:"step,omitempty"`
	// Asked is the text of the request that was followed last.
	Asked string `json:"asked,omitempty"`
	// Now: nodes that are off, and those that may boot for the first time, are not waited for. Without are nodes that are
	// waited for in no case.
	Now     bool     `json:"now,omitempty"`
	Without []string `json:"without,omitempty"`
	// Began is when the rotation began, and Since when its step did.
	Began time.Time `json:"began,omitzero"`
	Since time.Time `json:"since,omitzero"`
	// Given is since when whoever reads the cluster's bundle gets the next CA: what began before may not trust it.
	Given time.Time `json:"given,omitzero"`
	// Replaced are the CAs that count no more, newest last.
	Replaced []Replaced `json:"replaced,omitempty"`
}

// Replaced is a CA that was replaced.
type Replaced struct {
	Fingerprint string    `json:"fingerprint"`
	At          time.Time `json:"at"`
}

// Decode reads a state; no bytes are the zero one. The error never names what it has read: it has a key.
func Decode(raw []byte) (State, error) {
	var s State
	if len(raw) == 0 {
		return s, nil
	}
	if len(raw) > maxStateBytes || json.Unmarshal(raw, &s) != nil {
		return State{}, errors.New("read state of the CA's rotation: it is no JSON of dayone's")
	}
	if s.Step != "" && s.Step != Trusting && s.Step != Serving && s.Step != Dropping {
		return State{}, fmt.Errorf("read state of the CA's rotation: there is no step %.20q", s.Step)
	}
	if s.Current == "" && s.Step == "" {
		return s, nil
	}
	_, err := certs.ParseCA([]byte(s.Current), []byte(s.Current))
	if err == nil && (s.Step == Trusting || s.Successor != "") {
		_, err = certs.ParseCA([]byte(s.Successor), []byte(s.Successor))
	}
	if err == nil && (s.Step == Serving || s.Step == Dropping) && first(s.Before) == nil {
		err = errors.New("the certificate before is missing")
	}
	if err != nil {
		return State{}, fmt.Errorf("read state of the CA's rotation: %w", err)
	}
	return s, nil
}

// Encode is what Decode reads; the zero state has no bytes.
func (s State) Encode() ([]byte, error) {
	if s.none() {
		return nil, nil
	}
	raw, err := json.Marshal(s)
	if err != nil {
		return nil, errors.New("encode state of the CA's rotation")
	}
	return raw, nil
}

func (s State) none() bool { return s.Current == "" }

// Request is what an administrator asks for.
type Request struct {
	// Asked is any text: another one than before asks for a rotation, where none runs.
	Asked string `json:"asked"`
	// Now and Without are State's; they count for the rotation that Asked has begun, also later.
	Now     bool     `json:"now,omitempty"`
	Without []string `json:"without,omitempty"`
}

// ParseRequest reads an annotation. What is no JSON of a request is the text of one.
func ParseRequest(annotation string) (r Request) {
	if len(annotation) > maxRequestBytes || json.Unmarshal([]byte(annotation), &r) != nil || r.Asked == "" {
		return Request{Asked: annotation[:min(len(annotation), 64)]}
	}
	return r
}

// Encode is what ParseRequest reads.
func (r Request) Encode() (string, error) {
	raw, err := json.Marshal(r)
	if err == nil && len(raw) > maxRequestBytes {
		err = fmt.Errorf("it has %d bytes, more than %d: name fewer nodes at once", len(raw), maxRequestBytes)
	}
	if err != nil {
		return "", fmt.Errorf("encode request for another CA: %w", err)
	}
	return string(raw), nil
}

// first is the first certificate of PEM; nil: there is none.
func first(text string) *x509.Certificate {
	if all := certs.Bundle([]byte(text)); len(all) > 0 {
		return all[0]
	}
	return nil
}

func fingerprint(text string) string {
	if cert := first(text); cert != nil {
		return certs.Fingerprint(cert)
	}
	return ""
}

// keyOf is the private key of PEM.
func keyOf(text string) []byte {
	var out []byte
	for block, rest := pem.Decode([]byte(text)); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			out = append(out, pem.EncodeToMemory(block)...)
		}
	}
	return out
}

// trusted are the certificates that clients of the registries are to trust now, the one that signs first.
func (s State) trusted() []*x509.Certificate {
	out := []*x509.Certificate{first(s.Current)}
	switch s.Step {
	case Trusting:
		out = append(out, first(s.Successor))
	case Serving:
		out = append(out, first(s.Before))
	}
	return out
}

// LeftIn tells whether PEM has a CA that was replaced and counts no more.
func (s State) LeftIn(bundle []byte) bool { return slices.ContainsFunc(certs.Bundle(bundle), s.gone) }

// gone tells whether a CA was replaced and counts no more.
func (s State) gone(cert *x509.Certificate) bool {
	of := certs.Fingerprint(cert)
	return s.Step == Dropping && of == fingerprint(s.Before) ||
		slices.ContainsFunc(s.Replaced, func(r Replaced) bool { return r.Fingerprint == of })
}

// knows tells whether a CA is or was one of the state's.
func (s State) knows(cert *x509.Certificate) bool {
	of := certs.Fingerprint(cert)
	return s.gone(cert) || of == fingerprint(s.Current) || of == fingerprint(s.Successor) || of == fingerprint(s.Before)
}

// further are the certificates of PEM that an administrator has added.
func (s State) further(text string) (out []*x509.Certificate) {
	seen := map[string]bool{}
	for _, cert := range certs.Bundle([]byte(text)) {
		if of := certs.Fingerprint(cert); !s.knows(cert) && !seen[of] {
			seen[of] = true
			out = append(out, cert)
		}
	}
	return out
}

// CA is what registries have: the CA that signs first, others that are trusted, and the first one's key. have is what
// the Secret has; certificates that an administrator has added to it stay.
func (s State) CA(have string) string {
	if s.none() {
		return have
	}
	next := append(certs.EncodeBundle(append(s.trusted(), s.further(have)...)...), keyOf(s.Current)...)
	return string(next)
}

// Bundle is what nodes and builds get to trust for the registries: what they have, with what they need, without what
// counts no more. Nothing changes where it has that.
func (s State) Bundle(have []byte) []byte {
	if s.none() || s.complete(have) {
		return have
	}
	return certs.EncodeBundle(append(s.trusted(), s.further(string(have))...)...)
}

// complete tells whether a bundle has what clients need, and nothing that counts no more.
func (s State) complete(have []byte) bool {
	all := certs.Bundle(have)
	for _, cert := range s.trusted() {
		if !slices.ContainsFunc(all, func(h *x509.Certificate) bool { return bytes.Equal(h.Raw, cert.Raw) }) {
			return false
		}
	}
	return !slices.ContainsFunc(all, s.gone)
}
