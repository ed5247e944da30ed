package mirrors

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/containers/image/v5/signature"
	configv1 "github.com/openshift/api/config/v1"
	"sigs.k8s.io/yaml"

	"dayone.dev/dayone/manifests"
)

// maxAtomic is the number of slashes from which on a scope is none of the atomic transport
// (containers-policy.json(5)); MCO leaves such scopes out.
const maxAtomic = 3

// Transports of policy.json (containers-policy.json(5)).
const (
	transportDocker = "docker"
	transportAtomic = "atomic"
)

// trust adds a ClusterImagePolicy. Where several name a scope an image must satisfy them all, as MCO has it.
func (c *collected) trust(item manifests.Item[*configv1.ClusterImagePolicy]) {
	required, err := requirementOf(item.Object.Spec.Policy)
	if err != nil {
		at := item.Origin.At("spec.policy", "image-policy")
		at.Next = "give a key or certificates in PEM, as of dayone keygen or cosign generate-key-pair"
		c.report.Errorf(at, "ClusterImagePolicy %s: %s", item.Object.Name, err)
		return
	}
	for _, s := range item.Object.Spec.Scopes {
		scope := string(s)
		if reason := c.closed(scope); reason != "" {
			at := item.Origin.At("spec.scopes", "image-policy")
			at.Next = "change the scope, or registrySources of the Image cluster"
			c.report.Errorf(at, "ClusterImagePolicy %s: scope %s %s", item.Object.Name, scope, reason)
		}
		c.trusted[scope] = append(c.trusted[scope], required)
	}
}

// closed says why the image settings let nothing of a scope be pulled, "" when they do.
func (c *collected) closed(scope string) string {
	if c.image == nil {
		return ""
	}
	sources := c.image.Object.Spec.RegistrySources
	holds := func(of string) bool { return within(scope, of) }
	switch {
	case len(sources.AllowedRegistries) > 0 && !slices.ContainsFunc(sources.AllowedRegistries, holds):
		return "is in none of allowedRegistries"
	case slices.ContainsFunc(sources.BlockedRegistries, holds):
		return "is in blockedRegistries"
	}
	return ""
}

// requirementOf is what policy.json says for a policy. Source: MCO, pkg/controller/container-runtime-config.
func requirementOf(p configv1.ImageSigstoreVerificationPolicy) (signature.PolicyRequirement, error) {
	options, err := roots(p.RootOfTrust)
	if err != nil {
		return nil, err
	}
	identity, err := identityOf(p.SignedIdentity)
	if err != nil {
		return nil, fmt.Errorf("signedIdentity: %w", err)
	}
	return signature.NewPRSigstoreSigned(append(options, signature.PRSigstoreSignedWithSignedIdentity(identity))...)
}

// roots are the keys or certificates. keyData with several keys takes a signature of any of them, so that keys can be
// rotated; MCO's nodes take the first.
func roots(r configv1.PolicyRootOfTrust) ([]signature.PRSigstoreSignedOption, error) {
	switch key, fulcio, pki := r.PublicKey, r.FulcioCAWithRekor, r.PKI; {
	case key != nil:
		out, err := keysOf(key.KeyData)
		if len(key.RekorKeyData) > 0 {
			out = append(out, signature.PRSigstoreSignedWithRekorPublicKeyData(key.RekorKeyData))
		}
		return out, err
	case fulcio != nil:
		ca, err := signature.NewPRSigstoreSignedFulcio(signature.PRSigstoreSignedFulcioWithCAData(fulcio.FulcioCAData),
			signature.PRSigstoreSignedFulcioWithOIDCIssuer(fulcio.FulcioSubject.OIDCIssuer),
			signature.PRSigstoreSignedFulcioWithSubjectEmail(fulcio.FulcioSubject.SignedEmail))
		return []signature.PRSigstoreSignedOption{signature.PRSigstoreSignedWithFulcio(ca),
			signature.PRSigstoreSignedWithRekorPublicKeyData(fulcio.RekorKeyData)}, err
	case pki != nil:
		options := []signature.PRSigstoreSignedPKIOption{
			signature.PRSigstoreSignedPKIWithCARootsData(pki.CertificateAuthorityRootsData)}
		if len(pki.CertificateAuthorityIntermediatesData) > 0 {
			options = append(options,
				signature.PRSigstoreSignedPKIWithCAIntermediatesData(pki.CertificateAuthorityIntermediatesData))
		}
		if mail := pki.PKICertificateSubject.Email; mail != "" {
			options = append(options, signature.PRSigstoreSignedPKIWithSubjectEmail(mail))
		}
		if host := pki.PKICertificateSubject.Hostname; host != "" {
			options = append(options, signature.PRSigstoreSignedPKIWithSubjectHostname(host))
		}
		ca, err := signature.NewPRSigstoreSignedPKI(options...)
		return []signature.PRSigstoreSignedOption{signature.PRSigstoreSignedWithPKI(ca)}, err
	}
	return nil, fmt.Errorf("rootOfTrust of type %q has no keys", r.PolicyType)
}

// keysOf reads one key or several. A node would find a bad one only when it pulls.
func keysOf(data []byte) ([]signature.PRSigstoreSignedOption, error) {
	var keys [][]byte
	for rest := data; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if _, err := x509.ParsePKIXPublicKey(block.Bytes); err != nil {
			return nil, fmt.Errorf("keyData has a %s that is no public key", block.Type)
		}
		keys = append(keys, pem.EncodeToMemory(block))
	}
	switch len(keys) {
	case 0:
		return nil, errors.New("keyData has no public key")
	case 1:
		return []signature.PRSigstoreSignedOption{signature.PRSigstoreSignedWithKeyData(data)}, nil
	}
	return []signature.PRSigstoreSignedOption{signature.PRSigstoreSignedWithKeyDatas(keys)}, nil
}

// identityOf says which names of a signature count for an image.
func identityOf(p *configv1.PolicyIdentity) (signature.PolicyReferenceMatch, error) {
	if p == nil {
		return signature.NewPRMMatchRepoDigestOrExact(), nil
	}
	switch exact, remap := p.PolicyMatchExactRepository, p.PolicyMatchRemapIdentity; {
	case p.MatchPolicy == configv1.IdentityMatchPolicyMatchRepository:
		return signature.NewPRMMatchRepository(), nil
	case p.MatchPolicy == configv1.IdentityMatchPolicyExactRepository && exact != nil:
		return signature.NewPRMExactRepository(string(exact.Repository))
	case p.MatchPolicy == configv1.IdentityMatchPolicyRemapIdentity && remap != nil:
		return signature.NewPRMRemapIdentity(string(remap.Prefix), string(remap.SignedPrefix))
	case p.MatchPolicy == configv1.IdentityMatchPolicyMatchRepoDigestOrExact, p.MatchPolicy == "":
		return signature.NewPRMMatchRepoDigestOrExact(), nil
	}
	return nil, fmt.Errorf("matchPolicy %q is not known, or lacks its repository", p.MatchPolicy)
}

// ownPolicy is a policy.json that nodes have besides; nil: they have none.
type ownPolicy struct{ *signature.Policy }

// readOwn refuses what no node could read.
func (c *collected) readOwn(raw []byte) ownPolicy {
	if len(raw) == 0 || len(c.trusted) == 0 {
		return ownPolicy{}
	}
	p, err := signature.NewPolicyFromBytes(raw)
	if err != nil {
		var at manifests.Origin
		place := at.At("", "image-policy")
		place.Next = "correct the MachineConfig that brings it (containers-policy.json(5))"
		c.report.Errorf(place, "%s of the MachineConfigs cannot be read, so that no ClusterImagePolicy can be merged into "+
			"it: %s", PolicyPath, err)
		return ownPolicy{}
	}
	return ownPolicy{p}
}

// file restricts what may be pulled; nil when nothing is allowed, blocked or signed by name. What own says besides
// stays.
func (own ownPolicy) file(c *collected) ([]byte, error) {
	accept := signature.PolicyRequirements{signature.NewPRInsecureAcceptAnything()}
	reject := signature.PolicyRequirements{signature.NewPRReject()}
	p := own.Policy
	if p == nil {
		p = &signature.Policy{Default: accept,
			Transports: map[string]signature.PolicyTransportScopes{"docker-daemon": {"": accept}}}
	}
	scopes := signature.PolicyTransportScopes{}
	if c.image != nil {
		for _, s := range c.blocked {
			scopes[s] = reject
		}
		for _, s := range c.image.Object.Spec.RegistrySources.AllowedRegistries {
			p.Default, scopes[s] = reject, accept
		}
		if c.release != "" {
			scopes[c.release] = accept // its mirror serves it under this name
		}
	}
	maps.Copy(scopes, c.trusted)
	if len(scopes) == 0 {
		return nil, nil
	}
	for _, transport := range []string{transportDocker, transportAtomic} {
		if p.Transports == nil {
			p.Transports = map[string]signature.PolicyTransportScopes{}
		}
		if p.Transports[transport] == nil {
			p.Transports[transport] = signature.PolicyTransportScopes{}
		}
	}
	for s, required := range scopes {
		add(p, transportDocker, s, required)
		if strings.Count(s, "/") < maxAtomic {
			add(p, transportAtomic, s, required)
		}
	}
	encode := func(v any) ([]byte, error) { return json.MarshalIndent(v, "", "  ") }
	if len(c.trusted) == 0 {
		encode = json.Marshal
	}
	raw, err := encode(p)
	if err != nil {
		return nil, fmt.Errorf("write policy.json: %w", err)
	}
	return raw, nil
}

// add adds requirements for a scope to those that are there: an image must satisfy them all.
func add(p *signature.Policy, transport, scope string, required signature.PolicyRequirements) {
	scopes := p.Transports[transport]
	scopes[scope] = slices.Concat(scopes[scope], required)
}

// attachments is a file of registries.d (containers-registries.d(5)).
type attachments struct {
	Docker map[string]attachment `json:"docker,omitempty"`
}

type attachment struct {
	UseSigstoreAttachments bool `json:"use-sigstore-attachments,omitempty"`
}

// attachmentsFile lets nodes find signatures beside images: under the scopes and at each mirror that serves them; nil
// when none is required.
func attachmentsFile(c *collected) ([]byte, error) {
	if len(c.trusted) == 0 {
		return nil, nil
	}
	out := attachments{Docker: map[string]attachment{}}
	for scope := range c.trusted {
		out.Docker[scope] = attachment{true}
		for _, l := range slices.Concat(c.digest, c.tag) {
			below := ""
			switch {
			case within(scope, l.source):
				below = strings.TrimPrefix(scope, l.source)
				if strings.HasPrefix(l.source, "*.") {
					below = ""
				}
			case within(l.source, scope):
				out.Docker[l.source] = attachment{true}
			default:
				continue
			}
			for _, m := range l.mirrors {
				out.Docker[m+below] = attachment{true}
			}
		}
	}
	raw, err := yaml.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", AttachmentsPath, err)
	}
	return raw, nil
}

// Namespaces are the places that a file of registries.d is about. Two files must not name the same one: nothing can be
// pulled then.
func Namespaces(raw []byte) ([]string, error) {
	var file attachments
	if err := yaml.Unmarshal(raw, &file); err != nil {
		return nil, fmt.Errorf("read file of registries.d: %w", err)
	}
	var out []string
	for name := range file.Docker {
		out = append(out, name)
	}
	slices.Sort(out)
	return out, nil
}
