// Package imagepolicy finds what a containers-policy.json asks of one image.
//
//	policy, image's name -> the most specific scope -> requirements
package imagepolicy

import (
	"encoding/json"
	"reflect"
	"regexp"
	"slices"

	"github.com/containers/image/v5/signature"
	"github.com/containers/image/v5/types"
)

// Check checks the form of a containers-policy.json(5); key files that it names are looked at on the node only.
func Check(raw []byte) error {
	_, err := signature.NewPolicyFromBytes(raw)
	return err
}

// For finds the most specific scope of an image, and what it requires. Source: containers-policy.json(5), and
// PolicyContext's own lookup, which the library keeps to itself.
func For(p *signature.Policy, ref types.ImageReference) (scope string, reqs signature.PolicyRequirements) {
	scopes := p.Transports[ref.Transport().Name()]
	for _, name := range append([]string{ref.PolicyConfigurationIdentity()}, ref.PolicyConfigurationNamespaces()...) {
		if reqs, ok := scopes[name]; ok {
			return "scope " + name, reqs
		}
	}
	if reqs, ok := scopes[""]; ok {
		return "default of its transport", reqs
	}
	return "default", p.Default
}

// Anything says that the requirements take every image.
func Anything(reqs signature.PolicyRequirements) bool {
	return len(reqs) == 1 && Contains(reqs, signature.NewPRInsecureAcceptAnything())
}

// Contains looks for a requirement.
func Contains(reqs signature.PolicyRequirements, one signature.PolicyRequirement) bool {
	return slices.ContainsFunc(reqs, func(r signature.PolicyRequirement) bool { return reflect.DeepEqual(r, one) })
}

// keyFile is a field that names files with keys, which another host does not have, and whose content may change.
var keyFile = regexp.MustCompile(`Paths?":`)

// Text is the requirements as JSON, nil if they depend on files beside them.
func Text(reqs signature.PolicyRequirements) []byte {
	raw, err := json.Marshal(reqs)
	if err != nil || keyFile.Match(raw) {
		return nil
	}
	return raw
}
