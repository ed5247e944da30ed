package deploy

import (
	"context"
	"errors"
	"fmt"

	"github.com/containers/image/v5/docker"
	"github.com/containers/image/v5/docker/reference"
	"github.com/containers/image/v5/image"
	"github.com/containers/image/v5/signature"
	"github.com/containers/image/v5/types"
)

// checkPolicy applies a containers-policy.json(5) to an image under its own name, wherever its copy came from: what a
// mirror holds must be signed as the final registry's would be. The policy speaks of a digest, so it need not be asked
// again for the same one.
func checkPolicy(ctx context.Context, policyFile, name string, src types.ImageSource) (err error) {
	fault := func(class Class, err error, next string) error {
		return &Fault{Class: class, Op: "check signatures of " + name, Err: err, Next: next}
	}
	policy, err := signature.NewPolicyFromFile(policyFile)
	if err != nil {
		return fault(ClassConfig, err, "repair the policy file, or take signaturePolicy out of firstboot.json")
	}
	logical, err := logicalReference(name)
	if err != nil {
		return err
	}
	pc, err := signature.NewPolicyContext(policy)
	if err != nil {
		return fault(ClassConfig, err, "repair the policy file")
	}
	defer func() { err = errors.Join(err, pc.Destroy()) }()
	unparsed := image.UnparsedInstanceWithReference(image.UnparsedInstance(src, nil), logical)
	if allowed, err := pc.IsRunningImageAllowed(ctx, unparsed); err != nil || !allowed {
		if isNetwork(err) || httpStatus(err) != 0 {
			return classify("read signatures of "+name, err)
		}
		return fault(ClassUnsigned, fmt.Errorf("%s does not allow it: %w", policyFile, err),
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
	i, err := ParseImage(name)
	if err != nil {
		return nil, err
	}
	named, err := reference.ParseNamed(i.String())
	if err != nil {
		return nil, fmt.Errorf("read image reference %q: %w", name, err)
	}
	return docker.NewReference(named)
}
