package build

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/containers/image/v5/docker"
	"github.com/containers/image/v5/docker/reference"
	"github.com/containers/image/v5/signature"

	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/manifests/render/mirrors"
	"dayone.dev/dayone/registry/imagepolicy"
	"dayone.dev/dayone/registry/transfer"
)

// demand is what a policy asks of the base image.
type demand struct {
	policy, scope string
	reqs          signature.PolicyRequirements
}

// demandsOn gives what policies ask of a request's base: Options.BasePolicy, and the policy.json of the rendered
// config, where a ClusterImagePolicy brings it. Of the latter only keys that are written out count: the others are on
// nodes, and nodes do not pull the base by their default.
func demandsOn(r Request) (out []demand, err error) {
	named, err := reference.ParseNormalizedNamed(baseName(r))
	if err != nil {
		return nil, fmt.Errorf("read name of base image %q: %w", baseName(r), err)
	}
	ref, err := docker.NewReference(named)
	if err != nil {
		return nil, fmt.Errorf("read name of base image %q: %w", baseName(r), err)
	}
	if len(r.Options.BasePolicy) > 0 {
		policy, err := signature.NewPolicyFromBytes(r.Options.BasePolicy)
		if err != nil {
			return nil, fmt.Errorf("read policy of base images: %w", err)
		}
		if scope, reqs := imagepolicy.For(policy, ref); !imagepolicy.Anything(reqs) {
			out = append(out, demand{"baseImagePolicy", scope, reqs})
		}
	}
	policy, err := signature.NewPolicyFromBytes(nodePolicy(r))
	if err != nil {
		return out, nil //nolint:nilerr // there is none, or the nodes' own matter: it was rendered before
	}
	if scope, reqs := imagepolicy.For(policy, ref); signedByKeys(reqs) {
		out = append(out, demand{mirrors.PolicyPath, scope, reqs})
	}
	return out, nil
}

// baseName is the base image's own name.
func baseName(r Request) string { return cmp.Or(r.BaseName, r.Base.Reference) }

// nodePolicy is policy.json of the rendered config, nil without one.
func nodePolicy(r Request) []byte {
	config, err := machineconfig.ParseRendered(r.Config.Spec.Config.Raw)
	if err != nil {
		return nil // the build says so
	}
	for _, f := range config.Storage.Files {
		if path.Clean(f.Path) == mirrors.PolicyPath {
			raw, err := machineconfig.Contents(f.Contents)
			if err != nil {
				return nil
			}
			return raw
		}
	}
	return nil
}

// signedByKeys says that the requirements are about sigstore's signatures and can be judged without other files.
func signedByKeys(reqs signature.PolicyRequirements) bool {
	var types []struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(imagepolicy.Text(reqs), &types) != nil {
		return false
	}
	return !slices.ContainsFunc(types, func(one struct {
		Type string `json:"type"`
	}) bool {
		return one.Type != "sigstoreSigned"
	})
}

// accept parses a request whose base the policies allow.
func accept(ctx context.Context, r Request, id identity) (input, error) {
	in, err := normalise(r, id)
	if err != nil {
		return in, err
	}
	return in, checkBase(ctx, r)
}

// checkBase refuses a base that the policies do not allow under its own name, wherever it is read from. Each engine's
// build begins with it.
func checkBase(ctx context.Context, r Request) error {
	demands, err := demandsOn(r)
	if err != nil {
		return &Failure{Class: ClassUser, Step: "base", Message: err.Error(),
			Next: "write signing.baseImagePolicy as containers-policy.json(5) says", Cause: err}
	}
	if len(demands) == 0 {
		return nil
	}
	at := transfer.Endpoint{Reference: r.Base.Reference, CAFile: r.Registry.CAFile, AuthFile: r.Registry.AuthFile}
	for _, d := range demands {
		err := transfer.Allow(ctx, at, baseName(r), &signature.Policy{Default: d.reqs})
		if errors.Is(err, transfer.ErrNotAllowed) {
			return &Failure{Class: ClassPolicy, Step: "base", Cause: err,
				Message: fmt.Sprintf("the base image %s is refused by %s of %s: %v", baseName(r), d.scope, d.policy, err),
				Next: "take a base image that a key of the policy has signed, each architecture's image too (cosign sign " +
					"--recursive, dayone sign), or correct the policy"}
		}
		if err != nil {
			return vouchingFailure("base", err)
		}
	}
	return nil
}

// verifiedBy names the policies that have judged the base of a build that succeeded; empty: none demands a signature.
func verifiedBy(r Request) string {
	demands, err := demandsOn(r)
	if err != nil {
		return ""
	}
	var out []string
	for _, d := range demands {
		out = append(out, d.policy)
	}
	return strings.Join(out, ", ")
}
