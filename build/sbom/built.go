package sbom

import (
	"bytes"
	"context"

	"dayone.dev/dayone/build"
)

// OfBuilds writes the bill of materials of images that a build.Builder has made, for its options. version is that of
// this program.
func OfBuilds(version string) func(ctx context.Context, image build.Finished) ([]byte, error) {
	return func(ctx context.Context, f build.Finished) ([]byte, error) {
		img := Image{Name: f.Name, Digest: f.Digest, BaseDigest: f.BaseDigest, Created: f.Created, Layers: f.Layers,
			BaseLayers: f.BaseLayers}
		contents, err := Read(ctx, img, "")
		if err != nil {
			return nil, err
		}
		var out bytes.Buffer
		if err := WriteSPDX(&out, img, contents, version); err != nil {
			return nil, err
		}
		return out.Bytes(), nil
	}
}
