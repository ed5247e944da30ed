package deploy

import (
	"context"
	"errors"

	"github.com/opencontainers/go-digest"
)

// Inspected is what an image says of itself.
type Inspected struct {
	ManifestDigest digest.Digest
	Architecture   string
	Labels         map[string]string
	Source         string // the mirror or registry that answered
	Layers         int
	Bytes          int64 // compressed, all layers
}

// Inspect fetches an image's manifest and configuration, whatever the deployer, and refuses what this node could not
// boot: another architecture, no bootable label; and what PolicyFile does not allow. Errors are Faults.
func Inspect(ctx context.Context, source string, o ImportOptions) (Inspected, error) {
	all, err := candidates(source, o)
	if err != nil {
		return Inspected{}, &Fault{Class: ClassConfig, Op: "find image " + source, Err: err}
	}
	var failures []error
	for _, c := range all {
		found, err := inspectAt(ctx, c, source, o)
		if err == nil {
			return found, nil
		}
		failures = append(failures, err)
		if !worthAnotherRegistry(ClassOf(err)) || ctx.Err() != nil {
			break
		}
	}
	return Inspected{}, firstOf(failures)
}

func inspectAt(ctx context.Context, c candidate, name string, o ImportOptions) (found Inspected, err error) {
	f, err := c.fetch(ctx)
	if err != nil {
		return Inspected{}, err
	}
	defer func() { err = errors.Join(err, f.source.Close()) }()
	if err := f.check(o); err != nil {
		return Inspected{}, err
	}
	if o.PolicyFile != "" {
		if err := checkPolicy(ctx, o.PolicyFile, name, f.source); err != nil {
			return Inspected{}, err
		}
	}
	found = Inspected{ManifestDigest: f.manifestDigest, Architecture: f.config.Architecture,
		Labels: f.config.Config.Labels, Source: c.name, Layers: len(f.layers)}
	for _, l := range f.layers {
		found.Bytes += max(l.Size, 0)
	}
	return found, nil
}
