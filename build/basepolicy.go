package build

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/containers/image/v5/docker"
	"github.com/containers/image/v5/docker/reference"
	"github.com/containers/image/v5/signature"

	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/manifests/render/mirrors"
	"dayone.dev/dayone/registry/imagepolicy"
	"dayone.dev/dayone/registry/transfer"
)

// demand is what a policy asks of the base image. next says how an admin corrects the policy.
type demand struct {
	policy, scope, next string
	reqs                signature.PolicyRequirements
}

// nodePolicy is a file of the rendered config by which nodes judge images.
type nodePolicy struct{ path, next string }

// nodePolicies are made of ClusterImagePolicies. In the second one MCO merges the ImagePolicies of the namespace of
// build pods into them (its pkg/controller/container-runtime-config, updateNamespacedPolicyJSONs).
func nodePolicies() []nodePolicy {
	const namespace = cluster.DefaultNamespace
	return []nodePolicy{
		{mirrors.PolicyPath, "correct the ClusterImagePolicy with that scope (kubectl get clusterimagepolicies -o yaml), " +
			"or the MachineConfig with that file"},
		{"/etc/crio/policies/" + namespace + ".json", "correct the ImagePolicy with that scope (kubectl get imagepolicies " +
			"-n " + namespace + " -o yaml)"},
	}
}

// demandsOn gives what policies ask of a request's base: Options.BasePolicy, and the policies of the rendered config.
// Of the latter only keys that are written out count: the others are on nodes, and nodes do not pull the base by their
// default.
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
			out = append(out, demand{"baseImagePolicy", scope, "correct signing.baseImagePolicy", reqs})
		}
	}
	var paths []string
	for _, p := range nodePolicies() {
		paths = append(paths, p.path)
	}
	files, onNodes := machineconfig.FilesAt(r.Config.Spec.Config.Raw, paths...), []demand(nil)
	for _, p := range nodePolicies() {
		policy, err := signature.NewPolicyFromBytes(files[p.path])
		if err != nil {
			continue // there is none, or the nodes' own matter: it was rendered before
		}
		scope, all := imagepolicy.For(policy, ref)
		reqs := signedByKeys(all)
		same := func(d demand) bool { return d.scope == scope && reflect.DeepEqual(d.reqs, reqs) }
		if len(reqs) > 0 && !slices.ContainsFunc(onNodes, same) {
			onNodes = append(onNodes, demand{p.path, scope, p.next, reqs})
		}
	}
	return append(out, onNodes...), nil
}

// baseName is the base image's own name.
func baseName(r Request) string { return cmp.Or(r.BaseName, r.Base.Reference) }

// signedByKeys are the requirements about sigstore's signatures that can be judged without other files. An image must
// satisfy each requirement, so that one beside them, such as to take anything, undoes none.
func signedByKeys(reqs signature.PolicyRequirements) signature.PolicyRequirements {
	return slices.DeleteFunc(slices.Clone(reqs), func(r signature.PolicyRequirement) bool {
		var one []struct {
			Type string `json:"type"`
		}
		err := json.Unmarshal(imagepolicy.Text(signature.PolicyRequirements{r}), &one)
		return err != nil || one[0].Type != "sigstoreSigned"
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
					"--recursive, dayone sign), or " + d.next}
		}
		if err != nil {
			return vouchingFailure("base", err)
		}
	}
	return nil
}

// BaseRefused says that a build has failed because a policy does not allow its base.
func BaseRefused(err error) bool {
	f := AsFailure(err)
	return f != nil && f.Step == "base" && errors.Is(f, transfer.ErrNotAllowed)
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
