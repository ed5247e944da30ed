package pull

import (
	"context"
	"errors"
	"fmt"

	"github.com/containers/image/v5/docker"
	"github.com/containers/image/v5/docker/reference"
	"github.com/containers/image/v5/image"
	"github.com/containers/image/v5/signature"
	"github.com/containers/image/v5/types"
	"github.com/opencontainers/go-digest"

	"dayone.dev/dayone/rebase/deploy"
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
func Inspect(ctx context.Context, source string, o Options) (Inspected, error) {
	o = o.withDefaults()
	return tryEach(ctx, source, o, func(c candidate) (Inspected, error) { return inspectAt(ctx, c, source, o) })
}

func inspectAt(ctx context.Context, c candidate, name string, o Options) (found Inspected, err error) {
	f, err := c.fetch(ctx, o.StallTimeout)
	if err != nil {
		return Inspected{}, err
	}
	defer func() { err = errors.Join(err, f.source.Close()) }()
	if err := f.check(o); err != nil {
		return Inspected{}, err
	}
	if o.PolicyFile != "" {
		err := inTime(ctx, o.StallTimeout, func(ctx context.Context) error {
			return checkPolicy(ctx, o.PolicyFile, name, f.source)
		})
		if err != nil {
			return Inspected{}, classify("read signatures of "+name, err)
		}
	}
	found = Inspected{ManifestDigest: f.manifestDigest, Architecture: f.config.Architecture,
		Labels: f.config.Config.Labels, Source: c.name, Layers: len(f.layers)}
	for _, l := range f.layers {
		found.Bytes += max(l.Size, 0)
	}
	return found, nil
}

// checkPolicy applies a containers-policy.json(5) to an image under its own name, wherever its copy came from: what a
// mirror holds must be signed as the final registry's would be. The policy speaks of a digest, so it need not be asked
// again for the same one.
func checkPolicy(ctx context.Context, policyFile, name string, src types.ImageSource) (err error) {
	fault := func(class deploy.Class, err error, next string) error {
		return &deploy.Fault{Class: class, Op: "check signatures of " + name, Err: err, Next: next}
	}
	policy, err := signature.NewPolicyFromFile(policyFile)
	if err != nil {
		return fault(deploy.ClassConfig, err, "repair the policy file, or take signaturePolicy out of firstboot.json")
	}
	logical, err := logicalReference(name)
	if err != nil {
		return err
	}
	pc, err := signature.NewPolicyContext(policy)
	if err != nil {
		return fault(deploy.ClassConfig, err, "repair the policy file")
	}
	defer func() { err = errors.Join(err, pc.Destroy()) }()
	unparsed := image.UnparsedInstanceWithReference(image.UnparsedInstance(src, nil), logical)
	if allowed, err := pc.IsRunningImageAllowed(ctx, unparsed); err != nil || !allowed {
		if isNetwork(err) || httpStatus(err) != 0 {
			return classify("read signatures of "+name, err)
		}
		return fault(deploy.ClassUnsigned, fmt.Errorf("%s does not allow it: %w", policyFile, err),
			"sign the image, or change the policy")
	}
	return nil
}

// ParsePolicy checks the form of a containers-policy.json(5); key files that it names are looked at on the node only.
func ParsePolicy(raw []byte) error {
	_, err := signature.NewPolicyFromBytes(raw)
	return err
}

func logicalReference(name string) (types.ImageReference, error) {
	i, err := deploy.ParseImage(name)
	if err != nil {
		return nil, err
	}
	named, err := reference.ParseNamed(i.String())
	if err != nil {
		return nil, fmt.Errorf("read image reference %q: %w", name, err)
	}
	return docker.NewReference(named)
}
