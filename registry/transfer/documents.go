package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/containers/image/v5/docker/reference"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote"
)

const (
	// maxDocument bounds a document, in bytes: a bill of materials of an OS image with all its files has 10 MiB.
	maxDocument = 64 << 20
	// maxDocuments bounds how many documents of one type are read.
	maxDocuments = 100
	// pinned is the time of every document's manifest, so that the same document has the same digest.
	pinned = "1970-01-01T00:00:00Z"
)

// Document is a file that is attached to an image.
type Document struct {
	// Type is its media type.
	Type    string
	Content []byte
}

// AttachDocument attaches a document to the image that the endpoint names by digest, as an OCI referrer. The same
// document is attached once. Where the registry has no referrers, it gets the specification's tag for them.
func AttachDocument(ctx context.Context, e Endpoint, d Document, o Options) error {
	if len(d.Content) > maxDocument {
		return fmt.Errorf("attach to %s: the document has %d bytes, at most %d are read again", e.Reference,
			len(d.Content), maxDocument)
	}
	named, image, err := e.digested()
	if err != nil {
		return err
	}
	o = o.withDefaults()
	_, err = retry(ctx, o, "attach "+d.Type+" to "+e.Reference, func() (struct{}, error) {
		listening, _, stop := listen(ctx, inspectLimit)
		defer stop()
		return struct{}{}, orSilence(listening, pushDocument(listening, e, named, image, d))
	})
	return err
}

func pushDocument(ctx context.Context, e Endpoint, named reference.Named, image digest.Digest, d Document) error {
	repo, end, err := openRepository(ctx, e, reference.TrimNamed(named), transport.PushScope)
	if err != nil {
		return err
	}
	defer end()
	subject, err := repo.Resolve(ctx, image.String())
	if err != nil {
		return fmt.Errorf("find image: %w", err)
	}
	blob := content.NewDescriptorFromBytes(d.Type, d.Content)
	if err := repo.Push(ctx, blob, bytes.NewReader(d.Content)); err != nil && !errors.Is(err, errdef.ErrAlreadyExists) {
		return fmt.Errorf("push document: %w", err)
	}
	_, err = oras.PackManifest(ctx, repo, oras.PackManifestVersion1_1, d.Type, oras.PackManifestOptions{
		Subject: &subject, Layers: []v1.Descriptor{blob},
		ManifestAnnotations: map[string]string{v1.AnnotationCreated: pinned}})
	return err
}

// Documents reads the documents of a type that are attached to the image that the endpoint names by digest, in no
// order. Their bytes have been compared with their digests, and nothing says who attached them. Referrers of the type
// that are no documents are left out.
func Documents(ctx context.Context, e Endpoint, kind string) (out [][]byte, err error) {
	named, image, err := e.digested()
	if err != nil {
		return nil, err
	}
	return retry(ctx, Options{}.withDefaults(), "read what is attached to "+e.Reference, func() ([][]byte, error) {
		listening, _, stop := listen(ctx, inspectLimit)
		defer stop()
		found, err := readDocuments(listening, e, named, image, kind)
		return found, orSilence(listening, err)
	})
}

func readDocuments(ctx context.Context, e Endpoint, named reference.Named, image digest.Digest, kind string) ([][]byte,
	error) {
	repo, end, err := openRepository(ctx, e, reference.TrimNamed(named), transport.PullScope)
	if err != nil {
		return nil, err
	}
	defer end()
	subject, err := repo.Resolve(ctx, image.String())
	if err != nil {
		return nil, fmt.Errorf("find image: %w", err)
	}
	var found []v1.Descriptor
	err = repo.Referrers(ctx, subject, kind, func(page []v1.Descriptor) error {
		if found = append(found, page...); len(found) > maxDocuments {
			return fmt.Errorf("more than %d documents of type %s are attached", maxDocuments, kind)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var out [][]byte
	for _, d := range found {
		raw, err := readDocument(ctx, repo, d, kind)
		if err != nil {
			return nil, err
		}
		if raw != nil {
			out = append(out, raw)
		}
	}
	return out, nil
}

// readDocument is nil for a referrer that has another form.
func readDocument(ctx context.Context, repo *remote.Repository, d v1.Descriptor, kind string) ([]byte, error) {
	if d.Size > maxDocument {
		return nil, nil
	}
	m, err := read[v1.Manifest](ctx, repo, d)
	if err != nil {
		return nil, err
	}
	if len(m.Layers) != 1 || m.Layers[0].MediaType != kind || m.Layers[0].Size > maxDocument {
		return nil, nil
	}
	body, err := repo.Blobs().Fetch(ctx, m.Layers[0])
	if err != nil {
		return nil, fmt.Errorf("read document %s: %w", m.Layers[0].Digest, err)
	}
	defer body.Close()
	raw, err := content.ReadAll(io.LimitReader(body, maxDocument+1), m.Layers[0])
	if err != nil {
		return nil, fmt.Errorf("read document %s: %w", m.Layers[0].Digest, err)
	}
	return raw, nil
}
