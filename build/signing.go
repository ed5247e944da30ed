package build

import (
	"archive/tar"
	"cmp"
	"context"
	"errors"
	"io"
	"time"

	"github.com/opencontainers/go-digest"

	"dayone.dev/dayone/build/appendengine"
	"dayone.dev/dayone/build/basetree"
	"dayone.dev/dayone/build/sign"
	"dayone.dev/dayone/registry/transfer"
)

// signed is how the signatures of a request's image name it and where they are.
func signed(r Request, image *appendengine.Image) sign.Image {
	return sign.Image{Repository: cmp.Or(r.Final, r.Target), Endpoint: transfer.Endpoint{Reference: image.Ref.String(),
		CAFile: r.Registry.CAFile, AuthFile: r.Registry.AuthFile}}
}

// findSigned is find for an image that a known key has signed. Whoever may push could have put another one under the
// address, and signing what is found there would make it ours. An image with the signature of a key before gets that of
// the key that signs now.
func findSigned(ctx context.Context, client *appendengine.Client, in input, o BuilderOptions) (*appendengine.Image,
	*explanation, error) {
	image, note, err := find(ctx, client, in, o.Log)
	keys := o.Keys
	if keys == nil && len(in.Options.Keys) > 0 {
		keys = &sign.Keys{Public: in.Options.Keys}
	}
	if err != nil || image == nil || keys == nil {
		return image, note, err
	}
	err = keys.Verify(ctx, signed(in.Request, image))
	if errors.Is(err, transfer.ErrNotAllowed) {
		o.Log.WithError(err).WithField("image", image.Ref.String()).
			Warn("no known key has signed the image with this address: building again")
		return nil, nil, nil
	}
	if err == nil {
		err = keys.Sign(ctx, signed(in.Request, image))
	}
	if err != nil {
		return nil, nil, vouchingFailure("sign", err)
	}
	return image, note, nil
}

// DefaultPlace is the place of a builder that nobody has named.
const DefaultPlace = "https://dayone.dev/builder"

// SPDXType is the media type of a bill of materials beside an image.
const SPDXType = "application/spdx+json"

// BillsOfMaterials writes bills of materials; package sbom has it.
type BillsOfMaterials interface {
	// Take begins the inventory of a base whose layers are about to be read.
	Take(base []basetree.Layer) (Inventory, error)
	// Write gives an SPDX document in JSON. The same image gives the same bytes.
	Write(ctx context.Context, image Finished) ([]byte, error)
}

// Inventory lists what a base contains, so that its layers are read once for all images that are built on it.
type Inventory interface {
	// Copy is for basetree.ReadCopying.
	Copy(layer int, p string, h *tar.Header) io.WriteCloser
	// Encode gives what Finished.Inventory expects, once the layers are read.
	Encode(ctx context.Context) ([]byte, error)
	io.Closer
}

// Finished is an image that was built, for a bill of materials.
type Finished struct {
	// Name is REPOSITORY@DIGEST by which nodes know it.
	Name, Digest, BaseDigest string
	Created                  time.Time
	// Layers are its blobs, bottom first; the first BaseLayers are the base's.
	Layers     []basetree.Layer
	BaseLayers int
	// Inventory is that of the base, empty if it was not taken.
	Inventory []byte
}

// vouch attaches to what this build has made and checked what is in it and what it was made from, and signs it.
func vouch(ctx context.Context, src source, image *appendengine.Image, o BuilderOptions, t *timeline) error {
	bom, err := describe(ctx, src, image, o, t)
	if err != nil || o.Keys == nil || o.Keys.Key == nil {
		return err
	}
	t.enter("sign")
	at := signed(src.Request, image)
	p, err := Provenance(src.Request, Made{Place: o.Place, Began: t.started, Finished: time.Now()})
	if err == nil {
		if bom != nil {
			p.RunDetails.Byproducts = []sign.Dependency{BillOfMaterials(bom)}
		}
		err = o.Keys.Key.Attest(ctx, at, p)
	}
	if err == nil {
		err = o.Keys.Sign(ctx, at)
	}
	if err != nil {
		return vouchingFailure("sign", err)
	}
	return nil
}

// describe attaches the bill of materials and returns it. An image whose packages cannot be read gets none: it is no
// worse to boot.
func describe(ctx context.Context, src source, image *appendengine.Image, o BuilderOptions,
	t *timeline) ([]byte, error) {
	if o.BillsOfMaterials == nil {
		return nil, nil
	}
	t.enter("sbom")
	layers, err := image.Layers(0)
	if err != nil {
		return nil, registryFailure("sbom", err)
	}
	at := signed(src.Request, image)
	bom, err := o.BillsOfMaterials.Write(ctx, Finished{Name: at.Repository + "@" + image.Ref.DigestStr(),
		Digest: image.Ref.DigestStr(), BaseDigest: src.baseDigest, Created: image.Created(), Layers: layers,
		BaseLayers: len(src.base.image.Manifest.Layers), Inventory: src.base.tree.Inventory})
	if err != nil && ctx.Err() != nil {
		return nil, err
	}
	if err != nil {
		o.Log.WithError(err).Warn("the image has no bill of materials")
		return nil, nil
	}
	err = transfer.AttachDocument(ctx, at.Endpoint, transfer.Document{Type: SPDXType, Content: bom}, transfer.Options{})
	if errors.Is(err, transfer.ErrUnavailable) || ctx.Err() != nil {
		return nil, vouchingFailure("sbom", err)
	}
	if err != nil { // some registries take no documents
		o.Log.WithError(err).Warn("the image's bill of materials is not attached")
		return nil, nil
	}
	return bom, nil
}

// Made says where and when a request was carried out.
type Made struct {
	// Place is the builder, a URL.
	Place string
	// Began and Finished are times of the build.
	Began, Finished time.Time
}

// BillOfMaterials is how provenance names one.
func BillOfMaterials(content []byte) sign.Dependency {
	return sign.Dependency{Name: "bill of materials", MediaType: SPDXType,
		Digest: sign.Digest(digest.FromBytes(content).String())}
}

// Provenance says what the image of a request was made from. Whoever signs it must know the request, not the image's
// builder: a pod that runs commands cannot say something else.
func Provenance(r Request, m Made) (sign.Provenance, error) {
	var p sign.Provenance
	id, err := r.identity()
	if err != nil {
		return p, err
	}
	p.BuildDefinition.ExternalParameters = sign.Parameters{Address: id.hash(), Pool: r.Pool,
		RenderedConfig: r.Config.Name, ConfigHash: id.Config, Platform: r.platform()}
	base := sign.Dependency{Name: "base", URI: "docker://" + baseName(r), Digest: sign.Digest(id.Base),
		Annotations: map[string]string{sign.AnnotationVerified: "false"}}
	if by := verifiedBy(r); by != "" {
		base.Annotations = map[string]string{sign.AnnotationVerified: "true", sign.AnnotationPolicy: by}
	}
	depends := []sign.Dependency{base}
	if r.Containerfile != "" {
		depends = append(depends, sign.Dependency{Name: "Containerfile", Digest: sign.Digest("sha256:" + id.Containerfile)})
	}
	if id.Extensions != "" {
		depends = append(depends, sign.Dependency{Name: "extensions", URI: "docker://" + r.Extensions.Reference,
			Digest: sign.Digest(id.Extensions)})
	}
	p.BuildDefinition.ResolvedDependencies = depends
	p.RunDetails = sign.Run{Builder: sign.Builder{ID: cmp.Or(m.Place, DefaultPlace)}, Metadata: sign.Metadata{
		StartedOn: m.Began.UTC().Truncate(time.Second), FinishedOn: m.Finished.UTC().Truncate(time.Second)}}
	return p, nil
}

// vouchingFailure is a failure with signatures, or what else is beside an image.
func vouchingFailure(step string, err error) *Failure {
	f := asFailure(step, err)
	if errors.Is(err, transfer.ErrUnavailable) {
		f.Class, f.Next = ClassTransient, "check the registry's log"
	}
	return f
}
