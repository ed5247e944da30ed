package build

import (
	"cmp"
	"context"
	"errors"
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
		return nil, nil, signingFailure(err)
	}
	return image, note, nil
}

// DefaultPlace is the place of a builder that nobody has named.
const DefaultPlace = "https://dayone.dev/builder"

// spdxType is the media type of a bill of materials beside an image.
const spdxType = "application/spdx+json"

// Finished is an image that was built, for a bill of materials.
type Finished struct {
	// Name is REPOSITORY@DIGEST by which nodes know it.
	Name, Digest, BaseDigest string
	Created                  time.Time
	// Layers are its blobs, bottom first; the first BaseLayers are the base's.
	Layers     []basetree.Layer
	BaseLayers int
}

// vouch attaches to what this build has made and checked what is in it and what it was made from, and signs it.
func vouch(ctx context.Context, src source, image *appendengine.Image, o BuilderOptions, t *timeline) error {
	bom, err := describe(ctx, src, image, o, t)
	if err != nil || o.Keys == nil || o.Keys.Key == nil {
		return err
	}
	t.enter("sign")
	at := signed(src.Request, image)
	err = o.Keys.Key.Attest(ctx, at, src.provenance(cmp.Or(o.Place, DefaultPlace), t.started, bom))
	if err == nil {
		err = o.Keys.Sign(ctx, at)
	}
	if err != nil {
		return signingFailure(err)
	}
	return nil
}

// describe attaches the bill of materials and returns it. An image whose packages cannot be read gets none: it is no
// worse to boot.
func describe(ctx context.Context, src source, image *appendengine.Image, o BuilderOptions,
	t *timeline) ([]byte, error) {
	if o.BillOfMaterials == nil {
		return nil, nil
	}
	t.enter("sbom")
	layers, err := image.Layers(0)
	if err != nil {
		return nil, registryFailure("sbom", err)
	}
	at := signed(src.Request, image)
	bom, err := o.BillOfMaterials(ctx, Finished{Name: at.Repository + "@" + image.Ref.DigestStr(),
		Digest: image.Ref.DigestStr(), BaseDigest: src.baseDigest, Created: image.Created(), Layers: layers,
		BaseLayers: len(src.base.image.Manifest.Layers)})
	if err != nil && ctx.Err() != nil {
		return nil, err
	}
	if err != nil {
		o.Log.WithError(err).Warn("the image has no bill of materials")
		return nil, nil
	}
	err = transfer.AttachDocument(ctx, at.Endpoint, transfer.Document{Type: spdxType, Content: bom}, transfer.Options{})
	if err != nil {
		f := signingFailure(err)
		f.Step = "sbom"
		return nil, f
	}
	return bom, nil
}

// provenance says what the image was made from.
func (s source) provenance(place string, began time.Time, bom []byte) sign.Provenance {
	var p sign.Provenance
	p.BuildDefinition.ExternalParameters = sign.Parameters{Address: s.address, Pool: s.Pool,
		RenderedConfig: s.Config.Name, ConfigHash: s.configHash, Platform: s.platform()}
	depends := []sign.Dependency{{Name: "base", URI: "docker://" + s.Base.Reference, Digest: sign.Digest(s.baseDigest)}}
	if s.Containerfile != "" {
		depends = append(depends, sign.Dependency{Name: "Containerfile",
			Digest: sign.Digest("sha256:" + hash([]byte(s.Containerfile)))})
	}
	if s.Extensions != nil && s.usesExtensions() {
		if d, err := s.Extensions.Digest(); err == nil { // NewRequest has seen to it
			depends = append(depends, sign.Dependency{Name: "extensions", URI: "docker://" + s.Extensions.Reference,
				Digest: sign.Digest(d)})
		}
	}
	p.BuildDefinition.ResolvedDependencies = depends
	p.RunDetails = sign.Run{Builder: sign.Builder{ID: place}, Metadata: sign.Metadata{
		StartedOn: began.UTC().Truncate(time.Second), FinishedOn: time.Now().UTC().Truncate(time.Second)}}
	if bom != nil {
		p.RunDetails.Byproducts = []sign.Dependency{{Name: "bill of materials", MediaType: spdxType,
			Digest: sign.Digest(digest.FromBytes(bom).String())}}
	}
	return p
}

func signingFailure(err error) *Failure {
	f := asFailure("sign", err)
	if errors.Is(err, transfer.ErrUnavailable) {
		f.Class, f.Next = ClassTransient, "check the registry's log"
	}
	return f
}
