package appendengine

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Note is a small text that is kept beside images: an OCI artifact without content, whose annotation is the text.
type Note struct {
	// Type is the artifact's type; a note of another type is none.
	Type string
	// Annotation is the key under which Text is kept.
	Annotation string
	Text       string
}

// noteManifest is an artifact without content (OCI image specification 1.1, guidelines for artifact usage).
type noteManifest struct {
	SchemaVersion int               `json:"schemaVersion"`
	MediaType     types.MediaType   `json:"mediaType"`
	ArtifactType  string            `json:"artifactType"`
	Config        v1.Descriptor     `json:"config"`
	Layers        []v1.Descriptor   `json:"layers"`
	Annotations   map[string]string `json:"annotations"`
}

// emptyType is the type of the content of an artifact that has none: {}.
const emptyType = types.MediaType("application/vnd.oci.empty.v1+json")

// Put keeps the note in the repository under the tag, in place of what is there.
func (n Note) Put(ctx context.Context, c *Client, repository, tag string) error {
	repo, err := name.NewRepository(repository, name.StrictValidation)
	if err != nil {
		return fmt.Errorf("read repository: %w", err)
	}
	empty := static.NewLayer([]byte("{}"), emptyType)
	if err := remote.WriteLayer(repo, empty, c.options(ctx, nil)...); err != nil {
		return fmt.Errorf("write note to %s: %w", repo, err)
	}
	digest, err := empty.Digest()
	if err != nil {
		return fmt.Errorf("write note to %s: %w", repo, err)
	}
	content := v1.Descriptor{MediaType: emptyType, Digest: digest, Size: int64(len("{}"))}
	raw, err := json.Marshal(noteManifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1, ArtifactType: n.Type,
		Config: content, Layers: []v1.Descriptor{content},
		Annotations: map[string]string{n.Annotation: n.Text}})
	if err != nil {
		return fmt.Errorf("encode note: %w", err)
	}
	if err := remote.Put(repo.Tag(tag), rawManifest{raw, types.OCIManifestSchema1}, c.options(ctx, nil)...); err != nil {
		return fmt.Errorf("write note to %s: %w", repo, err)
	}
	return nil
}

// Read gives the text of the note of this type under the tag; found is false without one.
func (n Note) Read(ctx context.Context, c *Client, repository, tag string) (text string, found bool, err error) {
	repo, err := name.NewRepository(repository, name.StrictValidation)
	if err != nil {
		return "", false, fmt.Errorf("read repository: %w", err)
	}
	d, err := remote.Get(repo.Tag(tag), c.options(ctx, nil)...)
	if StatusOf(err) == http.StatusNotFound {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("read note in %s: %w", repo, err)
	}
	var m noteManifest
	if json.Unmarshal(d.Manifest, &m) != nil || m.ArtifactType != n.Type {
		return "", false, nil
	}
	text, found = m.Annotations[n.Annotation]
	return text, found, nil
}
