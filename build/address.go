package build

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sort"
	"time"

	"dayone.dev/dayone/manifests/machineconfig"
)

// addressVersion changes when the same inputs begin to give other bytes: a new form of the config layer, of labels or
// of history.
const addressVersion = 2

// tagPrefix and an address make the tag of an image; a tag has at most 128 characters (OCI distribution specification).
const tagPrefix = "build-"

// identity is what reaches an image. Field order is part of the address.
type identity struct {
	Version       int               `json:"version"`
	Base          string            `json:"base"`
	Config        string            `json:"config"`
	Containerfile string            `json:"containerfile"`
	Extensions    string            `json:"extensions,omitempty"`
	TrustBundle   string            `json:"trustBundle,omitempty"`
	Platform      string            `json:"platform"`
	Engine        Engine            `json:"engine,omitempty"`
	Created       string            `json:"created,omitempty"`
	BuildArgs     map[string]string `json:"buildArgs,omitempty"`
	Contexts      [][2]string       `json:"contexts,omitempty"`
}

// Address is the identity of the image that a request asks for: 64 hexadecimal digits, a hash over what reaches the
// image and nothing else. Names of the pool, the config, Secrets, repositories and tags do not count, and neither do
// credentials, limits and osImageURL. Equal addresses mean that the image of one request serves the other.
func (r Request) Address() (string, error) {
	id, err := r.identity()
	if err != nil {
		return "", err
	}
	return id.hash(), nil
}

// Ground is the address without the rendered config: two images of one ground were made of the same base, Containerfile
// and extensions, and differ in the config that they carry only, as far as the Containerfile's own commands give the
// same twice.
func (r Request) Ground() (string, error) {
	id, err := r.identity()
	if err != nil {
		return "", err
	}
	id.Config = ""
	return id.hash(), nil
}

func (i identity) hash() string {
	raw, _ := json.Marshal(i) // texts and numbers: nothing that has no JSON
	return hash(raw)
}

func (r Request) identity() (identity, error) {
	if err := r.Validate(); err != nil {
		return identity{}, err
	}
	config, err := machineconfig.ContentHash(r.Config.Spec)
	if err != nil {
		return identity{}, fmt.Errorf("address of build: %w", err)
	}
	id := identity{
		Version: addressVersion, Base: r.Base.digest(), Config: config, Containerfile: hash([]byte(r.Containerfile)),
		Platform: r.platform(), Engine: r.Options.Engine, BuildArgs: r.Options.BuildArgs,
	}
	if r.usesExtensions() && r.Extensions != nil {
		id.Extensions = r.Extensions.digest()
	}
	if len(r.TrustBundle) > 0 {
		id.TrustBundle = hash(r.TrustBundle)
	}
	if r.Options.Created != nil {
		id.Created = r.Options.Created.UTC().Format(time.RFC3339)
	}
	for context, image := range r.Options.Contexts {
		id.Contexts = append(id.Contexts, [2]string{context, image.digest()})
	}
	sort.Slice(id.Contexts, func(i, j int) bool { return id.Contexts[i][0] < id.Contexts[j][0] })
	return id, nil
}

// Tag is the tag under which an image with this address is kept.
func Tag(address string) string { return tagPrefix + address }

func hash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
