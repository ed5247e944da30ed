package incluster_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/buildcontroller"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/build/sign"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/registry/transfer"
)

// signingKey gives the cluster a key and a policy of base images, as the hand-over does. The base has the signature
// that the policy demands.
func (w *world) signingKey() *sign.Key {
	w.t.Helper()
	vendor, err := sign.LoadOrCreate(w.t.TempDir())
	require.NoError(w.t, err)
	repository := installconfig.Repository(w.base)
	_, err = vendor.Sign(w.t.Context(), sign.Image{Repository: repository, Endpoint: transfer.Endpoint{
		Reference: w.here(w.base), CAFile: w.reg.CAFile, AuthFile: w.reg.PushAuthFile}})
	require.NoError(w.t, err)
	policy := fmt.Sprintf(`{"default":[{"type":"reject"}],"transports":{"docker":{%q:[{"type":"sigstoreSigned",`+
		`"keyData":%q,"signedIdentity":{"type":"matchRepository"}}]}}}`, repository,
		base64.StdEncoding.EncodeToString(vendor.Public))
	dir := w.t.TempDir()
	key, err := sign.LoadOrCreate(dir)
	require.NoError(w.t, err)
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace, Name: cluster.SigningKey},
		Data: map[string][]byte{sign.BasePolicyFile: []byte(policy)}}
	for _, file := range []string{sign.KeyFile, sign.PassphraseFile, sign.PublicFile} {
		s.Data[file], err = os.ReadFile(filepath.Join(dir, file))
		require.NoError(w.t, err)
	}
	w.create(s)
	return key
}

// vouched looks for the signature, the bill of materials that the pod attached, and the controller's provenance.
func (w *world) vouched(key *sign.Key, reference string) {
	w.t.Helper()
	at := sign.Image{Repository: installconfig.Repository(reference), Endpoint: transfer.Endpoint{
		Reference: w.here(reference), CAFile: w.reg.CAFile, AuthFile: w.reg.PullAuthFile}}
	require.NoError(w.t, sign.Verify(w.t.Context(), at, key.Public))
	boms, err := transfer.Documents(w.t.Context(), at.Endpoint, build.SPDXType)
	require.NoError(w.t, err)
	require.Len(w.t, boms, 1)
	p, err := sign.ReadProvenance(w.t.Context(), at, key.Public)
	require.NoError(w.t, err)
	assert.Equal(w.t, build.DefaultPlace+"/cluster", p.RunDetails.Builder.ID)
	assert.Equal(w.t, []sign.Dependency{build.BillOfMaterials(boms[0])}, p.RunDetails.Byproducts)
	base := p.BuildDefinition.ResolvedDependencies[0]
	assert.Equal(w.t, "docker://"+w.base, base.URI)
	assert.Equal(w.t, map[string]string{sign.AnnotationVerified: "true", sign.AnnotationPolicy: "baseImagePolicy"},
		base.Annotations)
}

// policyOfStrangers lets an administrator demand a stranger's signature of the base, by a ClusterImagePolicy: the next
// build says so, and the image in use stays.
func (w *world) policyOfStrangers(pool, image string) {
	w.t.Helper()
	stranger, err := sign.LoadOrCreate(w.t.TempDir())
	require.NoError(w.t, err)
	scope := installconfig.Repository(w.base)
	p := &configv1.ClusterImagePolicy{ObjectMeta: metav1.ObjectMeta{Name: "strangers"},
		Spec: configv1.ClusterImagePolicySpec{Scopes: []configv1.ImageScope{configv1.ImageScope(scope)},
			Policy: configv1.ImageSigstoreVerificationPolicy{
				RootOfTrust: configv1.PolicyRootOfTrust{PolicyType: configv1.PublicKeyRootOfTrust,
					PublicKey: &configv1.ImagePolicyPublicKeyRootOfTrust{KeyData: stranger.Public}}}}}
	w.create(p)
	mosc := w.settled(pool, func(c *mcfgv1.MachineOSConfig) bool {
		return meta.IsStatusConditionTrue(c.Status.Conditions, buildcontroller.ConditionDegraded)
	})
	degraded := meta.FindStatusCondition(mosc.Status.Conditions, buildcontroller.ConditionDegraded)
	assert.Contains(w.t, degraded.Message, "the base image "+w.base+" is refused by scope "+scope+
		" of /etc/containers/policy.json")
	b := w.ended(pool, func(b *mcfgv1.MachineOSBuild) bool {
		return machineosbuild.CauseOf(b).Class == build.ClassPolicy
	})
	assert.Contains(w.t, machineosbuild.CauseOf(b).Next, "correct the ClusterImagePolicy")
	assert.Equal(w.t, image, string(mosc.Status.CurrentImagePullSpec))
	require.NoError(w.t, w.client.Delete(w.t.Context(), p))
	w.settled(pool, func(c *mcfgv1.MachineOSConfig) bool {
		return !meta.IsStatusConditionTrue(c.Status.Conditions, buildcontroller.ConditionDegraded) &&
			string(c.Status.CurrentImagePullSpec) == image
	})
}
