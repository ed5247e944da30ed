package sign

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/sigstore/sigstore/pkg/cryptoutils"

	"dayone.dev/dayone/registry/transfer"
)

const (
	// ProvenanceType is the media type of provenance beside an image: a signed envelope (DSSE) around an in-toto
	// statement.
	ProvenanceType = "application/vnd.in-toto+json"
	// statementType and predicateType are of in-toto's attestation framework, version 1, and SLSA's, version 1.
	statementType = "https://in-toto.io/Statement/v1"
	predicateType = "https://slsa.dev/provenance/v1"
	// buildType says what the parameters of a build by dayone mean: docs/operators/signing.md.
	buildType = "https://dayone.dev/build/v1"
)

// statement is an in-toto statement with SLSA's provenance P.
type statement[P any] struct {
	Type          string       `json:"_type"`
	Subject       []Dependency `json:"subject"`
	PredicateType string       `json:"predicateType"`
	Predicate     P            `json:"predicate"`
}

// Provenance says from what an image was built, by whom and when.
type Provenance struct {
	BuildDefinition Definition `json:"buildDefinition"`
	RunDetails      Run        `json:"runDetails"`
}

// Definition is what was to be built.
type Definition struct {
	BuildType            string       `json:"buildType"`
	ExternalParameters   Parameters   `json:"externalParameters"`
	ResolvedDependencies []Dependency `json:"resolvedDependencies"`
}

// Parameters are those that users decide.
type Parameters struct {
	// Address is the content address of the request.
	Address string `json:"address"`
	Pool    string `json:"pool"`
	// RenderedConfig is the name of the rendered config, ConfigHash the hash of its content.
	RenderedConfig string `json:"renderedConfig"`
	ConfigHash     string `json:"configHash"`
	Platform       string `json:"platform"`
}

// Dependency is what has a digest, by its algorithm, in hexadecimal.
type Dependency struct {
	Name      string            `json:"name,omitempty"`
	URI       string            `json:"uri,omitempty"`
	MediaType string            `json:"mediaType,omitempty"`
	Digest    map[string]string `json:"digest"`
	// Annotations are more that is known of it.
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Annotations of a base image.
const (
	// AnnotationVerified is "true" if a policy demanded a signature of it, "false" if none did: then nobody has vouched
	// for it. A base that a policy refuses is not built from.
	AnnotationVerified = "dayone.dev/verified"
	// AnnotationPolicy names those policies.
	AnnotationPolicy = "dayone.dev/policy"
)

// Digest splits ALGORITHM:HEX.
func Digest(d string) map[string]string {
	algorithm, hex, _ := strings.Cut(d, ":")
	return map[string]string{algorithm: hex}
}

// Run is the build that made the image.
type Run struct {
	Builder    Builder      `json:"builder"`
	Metadata   Metadata     `json:"metadata"`
	Byproducts []Dependency `json:"byproducts,omitempty"`
}

// Builder says where the build ran.
type Builder struct {
	ID string `json:"id"`
}

// Metadata has the times of the build, in UTC and whole seconds.
type Metadata struct {
	StartedOn  time.Time `json:"startedOn"`
	FinishedOn time.Time `json:"finishedOn"`
}

// Attest signs provenance of the image and attaches it.
func (k *Key) Attest(ctx context.Context, i Image, p Provenance) error {
	_, d, _ := strings.Cut(i.Endpoint.Reference, "@")
	p.BuildDefinition.BuildType = buildType
	payload, err := Statement([]Dependency{{Name: i.Repository, Digest: Digest(d)}}, p)
	if err != nil {
		return err
	}
	raw, err := k.Envelope(ctx, payload)
	if err != nil {
		return err
	}
	return transfer.AttachDocument(ctx, i.Endpoint, transfer.Document{Type: ProvenanceType, Content: raw},
		transfer.Options{})
}

// Statement says of subjects from what they were made: an in-toto statement with SLSA's provenance, whose build type
// says what it has.
func Statement(subjects []Dependency, provenance any) ([]byte, error) {
	raw, err := json.Marshal(statement[any]{Type: statementType, PredicateType: predicateType, Predicate: provenance,
		Subject: subjects})
	if err != nil {
		return nil, fmt.Errorf("encode provenance: %w", err)
	}
	return raw, nil
}

// Envelope is a statement with the key's signature (DSSE).
func (k *Key) Envelope(ctx context.Context, statement []byte) ([]byte, error) {
	signer, err := dsse.NewEnvelopeSigner(half{k.Public, k.private})
	if err != nil {
		return nil, fmt.Errorf("sign provenance: %w", err)
	}
	envelope, err := signer.SignPayload(ctx, ProvenanceType, statement)
	if err != nil {
		return nil, fmt.Errorf("sign provenance: %w", err)
	}
	raw, err := json.Marshal(envelope)
	if err != nil {
		return nil, fmt.Errorf("encode provenance: %w", err)
	}
	return raw, nil
}

// ReadProvenance gives the provenance of the image that one of the keys has signed, the one that was finished last if
// there are several. transfer.ErrNotAllowed says that there is none; with any other error nothing is known.
func ReadProvenance(ctx context.Context, i Image, keys ...PublicKey) (*Provenance, error) {
	envelopes, err := transfer.Documents(ctx, i.Endpoint, ProvenanceType)
	if err != nil {
		return nil, err
	}
	var out *Provenance
	refusals := []error{fmt.Errorf("%w: %d statements of provenance are attached, and none counts", transfer.ErrNotAllowed,
		len(envelopes))}
	for _, raw := range envelopes {
		p, err := open(ctx, raw, i, keys)
		switch {
		case err != nil:
			refusals = append(refusals, err)
		case out == nil || p.RunDetails.Metadata.FinishedOn.After(out.RunDetails.Metadata.FinishedOn):
			out = p
		}
	}
	if out == nil {
		return nil, errors.Join(refusals...)
	}
	return out, nil
}

// open verifies an envelope and that its statement is about the image.
func open(ctx context.Context, raw []byte, i Image, keys []PublicKey) (*Provenance, error) {
	var envelope dsse.Envelope
	if err := json.Unmarshal(raw, &envelope); err != nil {
		return nil, fmt.Errorf("read provenance: %w", err)
	}
	var verifiers []dsse.Verifier
	for _, k := range keys {
		verifiers = append(verifiers, half{public: k})
	}
	v, err := dsse.NewEnvelopeVerifier(verifiers...)
	if err == nil {
		_, err = v.Verify(ctx, &envelope)
	}
	if err != nil {
		return nil, fmt.Errorf("verify provenance: %w", err)
	}
	payload, err := envelope.DecodeB64Payload()
	if err != nil {
		return nil, fmt.Errorf("read provenance: %w", err)
	}
	var s statement[Provenance]
	if err := json.Unmarshal(payload, &s); err != nil {
		return nil, fmt.Errorf("read provenance: %w", err)
	}
	_, d, _ := strings.Cut(i.Endpoint.Reference, "@")
	algorithm, hex, _ := strings.Cut(d, ":")
	switch {
	case envelope.PayloadType != ProvenanceType, s.Type != statementType, s.PredicateType != predicateType,
		s.Predicate.BuildDefinition.BuildType != buildType:
		return nil, fmt.Errorf("read provenance: it is a %s about %s, not a statement of a build by dayone", s.Type,
			s.PredicateType)
	case len(s.Subject) != 1, s.Subject[0].Name != i.Repository, s.Subject[0].Digest[algorithm] != hex:
		return nil, errors.New("read provenance: it is that of another image")
	}
	return &s.Predicate, nil
}

// half is a key as dsse wants it; private is nil where only signatures are verified.
type half struct {
	public  PublicKey
	private *ecdsa.PrivateKey
}

// Sign implements dsse.Signer.
func (h half) Sign(_ context.Context, data []byte) ([]byte, error) {
	sum := sha256.Sum256(data)
	return ecdsa.SignASN1(rand.Reader, h.private, sum[:])
}

// Verify implements dsse.Verifier.
func (h half) Verify(_ context.Context, data, signature []byte) error {
	sum := sha256.Sum256(data)
	if key, ok := h.Public().(*ecdsa.PublicKey); !ok || !ecdsa.VerifyASN1(key, sum[:], signature) {
		return errors.New("the signature is not of this key")
	}
	return nil
}

// KeyID implements dsse.Signer and dsse.Verifier.
func (h half) KeyID() (string, error) { return h.public.Fingerprint(), nil }

// Public implements dsse.Verifier.
func (h half) Public() crypto.PublicKey {
	key, err := cryptoutils.UnmarshalPEMToPublicKey(h.public)
	if err != nil {
		return nil // it signs nothing
	}
	return key
}
