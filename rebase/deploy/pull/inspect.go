package pull

import (
	"context"
	"errors"

	"github.com/opencontainers/go-digest"
)

// Inspected is what an image says of itself.
type Inspected struct {
	ManifestDigest digest.Digest
	Labels         map[string]string
	Source         string // the mirror or registry that answered
	Layers         int
	Bytes          int64 // compressed, all layers
	// Verified are the files of the policies that asked for a signature, and whose keys have signed the image.
	Verified []string
}

// Inspect fetches an image's manifest and configuration, whatever the deployer, and refuses what this node could not
// boot: another architecture, no bootable label; and what Policies do not allow, unless another mirror or the registry
// itself has a copy that they allow. Errors are Faults.
func Inspect(ctx context.Context, source string, o Options) (Inspected, error) {
	o = o.withDefaults()
	required, err := requirements(o.Policies, source)
	if err != nil {
		return Inspected{}, err
	}
	if o.SkipKeyFiles && required.mark() == "" {
		required = nil
	}
	return tryEach(ctx, source, o, func(c candidate) (Inspected, error) { return inspectAt(ctx, c, source, required, o) })
}

func inspectAt(ctx context.Context, c candidate, name string, required requiredAll, o Options) (found Inspected,
	err error) {
	f, err := c.fetch(ctx, o.StallTimeout)
	if err != nil {
		return Inspected{}, err
	}
	defer func() { err = errors.Join(err, f.source.Close()) }()
	if err := f.check(o); err != nil {
		return Inspected{}, err
	}
	if len(required) > 0 {
		err := inTime(ctx, o.StallTimeout, func(ctx context.Context) error { return required.check(ctx, name, c, f.source) })
		if err != nil {
			return Inspected{}, classify("read signatures of "+name, err)
		}
	}
	found = Inspected{ManifestDigest: f.manifestDigest, Labels: f.config.Config.Labels, Source: c.name,
		Layers: len(f.layers)}
	for _, one := range required {
		found.Verified = append(found.Verified, one.file)
	}
	for _, l := range f.layers {
		found.Bytes += max(l.Size, 0)
	}
	return found, nil
}
