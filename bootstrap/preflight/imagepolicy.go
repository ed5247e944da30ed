package preflight

import (
	"bytes"
	"slices"

	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
)

// imagePolicyFile has the ClusterImagePolicy of the nodes' own images. The installer takes it along for MCO.
const imagePolicyFile = "openshift/" + ownPrefix + "clusterimagepolicy.yaml"

// requireSignatures adds the ClusterImagePolicy of the pools' images, unless install-config.yaml says that there is
// none. A file that was edited since is the user's own. Before dayone prepare there is no key.
func requireSignatures(d *directory, in *Input) {
	file := func(i manifests.Item[*configv1.ClusterImagePolicy]) bool { return i.Origin.File == imagePolicyFile }
	if slices.ContainsFunc(in.Set.ClusterImagePolicies, file) {
		if raw, err := d.file(imagePolicyFile); err != nil || !untouched(raw) {
			return
		}
		in.Set.ClusterImagePolicies = slices.DeleteFunc(in.Set.ClusterImagePolicies, file)
		in.earlier = append(in.earlier, imagePolicyFile)
	}
	scopes := repositories(in.Pools)
	if !in.Sidecar.Config.Signing.Required() || len(in.Signing.Public) == 0 || len(scopes) == 0 {
		return
	}
	var keys [][]byte
	for _, k := range in.Signing.Public {
		keys = append(keys, k)
	}
	object := &configv1.ClusterImagePolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: configv1.GroupVersion.String(), Kind: "ClusterImagePolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: cluster.ImagePolicy},
		Spec: configv1.ClusterImagePolicySpec{Scopes: scopes, Policy: configv1.ImageSigstoreVerificationPolicy{
			RootOfTrust: configv1.PolicyRootOfTrust{PolicyType: configv1.PublicKeyRootOfTrust,
				// The first is the one that signs: MCO's nodes read no other.
				PublicKey: &configv1.ImagePolicyPublicKeyRootOfTrust{KeyData: bytes.Join(keys, nil)}},
			SignedIdentity: &configv1.PolicyIdentity{MatchPolicy: configv1.IdentityMatchPolicyMatchRepository}}}}
	in.Generated = append(in.Generated, Generated{File: imagePolicyFile, Object: object})
	in.Set.ClusterImagePolicies = append(in.Set.ClusterImagePolicies, manifests.Item[*configv1.ClusterImagePolicy]{
		Object: object, Origin: manifests.Origin{File: imagePolicyFile, Document: 1}})
}

// repositories are those of the pools' images, each once.
func repositories(pools []Pool) (out []configv1.ImageScope) {
	for _, p := range pools {
		if p.Repository != "" {
			out = append(out, configv1.ImageScope(p.Repository))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
