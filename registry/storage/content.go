package storage

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// Content is what the registry reads of a manifest.
type Content struct {
	SchemaVersion int               `json:"schemaVersion"`
	MediaType     string            `json:"mediaType,omitempty"`
	ArtifactType  string            `json:"artifactType,omitempty"`
	Config        *v1.Descriptor    `json:"config,omitempty"`
	Layers        []v1.Descriptor   `json:"layers,omitempty"`
	Manifests     []v1.Descriptor   `json:"manifests,omitempty"`
	Subject       *v1.Descriptor    `json:"subject,omitempty"`
	Annotations   map[string]string `json:"annotations,omitempty"`
}

// ParseContent reads a manifest and refuses, as an ErrManifest that names the rule, what one client would read
// otherwise than another. What must exist, what is kept and what is missing is decided by this one reading. Fields that
// the registry does not know are allowed.
func ParseContent(body []byte) (*Content, error) {
	if !utf8.Valid(body) {
		return nil, fmt.Errorf("%w: it is not valid UTF-8", ErrManifest)
	}
	var c Content
	if err := json.Unmarshal(body, &c); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrManifest, err)
	}
	if err := checkKeys(json.NewDecoder(bytes.NewReader(body)), "", manifestObject); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrManifest, err)
	}
	if err := c.checkDescriptors(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrManifest, err)
	}
	return &c, nil
}

// guess is the media type of a manifest that does not name it, as its content has it.
func (c *Content) guess() string {
	switch {
	case c.MediaType != "":
		return c.MediaType
	case c.Manifests != nil:
		return v1.MediaTypeImageIndex
	}
	return v1.MediaTypeImageManifest
}

// Blobs are the configuration and the layers, without those that live elsewhere by their URLs.
func (c *Content) Blobs() []v1.Descriptor {
	var out []v1.Descriptor
	if c.Config != nil {
		out = append(out, *c.Config)
	}
	for _, l := range c.Layers {
		elsewhere := strings.Contains(l.MediaType, "nondistributable") || strings.Contains(l.MediaType, "foreign")
		if len(l.URLs) == 0 || !elsewhere {
			out = append(out, l)
		}
	}
	return out
}

// named is each descriptor with its place.
func (c *Content) named(f func(where string, d v1.Descriptor) error) error {
	var errs []error
	if c.Config != nil {
		errs = append(errs, f("config", *c.Config))
	}
	if c.Subject != nil {
		errs = append(errs, f("subject", *c.Subject))
	}
	for i, d := range c.Layers {
		errs = append(errs, f(fmt.Sprintf("layers[%d]", i), d))
	}
	for i, d := range c.Manifests {
		errs = append(errs, f(fmt.Sprintf("manifests[%d]", i), d))
	}
	return errors.Join(errs...)
}

func (c *Content) checkDescriptors() error {
	return c.named(func(where string, d v1.Descriptor) error {
		if _, err := ParseDigest(string(d.Digest)); err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
		if d.Size < 0 {
			return fmt.Errorf("%s: size is negative", where)
		}
		return nil
	})
}

// object says which keys the registry reads of an object in a manifest.
type object int

const (
	otherObject object = iota
	manifestObject
	descriptorObject
	platformObject
)

func (o object) keys() []string {
	switch o {
	case manifestObject:
		return []string{"schemaVersion", "mediaType", "artifactType", "config", "layers", "manifests", "subject",
			"annotations"}
	case descriptorObject:
		return []string{"mediaType", "digest", "size", "urls", "annotations", "data", "platform", "artifactType"}
	case platformObject:
		return []string{"architecture", "os", "os.version", "os.features", "variant"}
	}
	return nil
}

// below is what a key's value, or each element of it, is.
func (o object) below(key string) object {
	switch {
	case o == manifestObject && (key == "config" || key == "subject" || key == "layers" || key == "manifests"):
		return descriptorObject
	case o == descriptorObject && key == "platform":
		return platformObject
	}
	return otherObject
}

// checkKeys walks over the next value: no object may have a key twice, which some readers take from the first and some
// from the last, nor a key that equals a known one but for its case, which some readers take for it.
func checkKeys(in *json.Decoder, where string, o object) error {
	token, err := in.Token()
	if err != nil {
		return err
	}
	open, nested := token.(json.Delim)
	if !nested {
		return nil
	}
	seen := map[string]bool{}
	for in.More() {
		place, kind := where, o
		if open == '{' {
			token, err := in.Token()
			if err != nil {
				return err
			}
			key := fmt.Sprint(token) // a key is a string
			if err := checkKey(key, seen, o); err != nil {
				return fmt.Errorf("%s%w", where, err)
			}
			seen[key] = true
			place, kind = where+key+": ", o.below(key)
		}
		if err := checkKeys(in, place, kind); err != nil {
			return err
		}
	}
	_, err = in.Token()
	return err
}

func checkKey(key string, seen map[string]bool, o object) error {
	if seen[key] {
		return fmt.Errorf("the key %q occurs twice", key)
	}
	for _, known := range o.keys() {
		if key != known && strings.EqualFold(key, known) {
			return fmt.Errorf("the key %q is not %q: keys are told apart by case", key, known)
		}
	}
	return nil
}
