package openshift_test

import (
	"os"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/random"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/bootstrap/openshift"
	"dayone.dev/dayone/build"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/registry/imagecopy"
	"dayone.dev/dayone/registry/registrytest"
)

func TestImagesReachTheFinalRegistryByTheSameDigest(t *testing.T) {
	img, err := random.Image(512, 2)
	require.NoError(t, err)
	dir := t.TempDir()
	l, err := layout.Write(dir, empty.Index)
	require.NoError(t, err)
	require.NoError(t, l.AppendImage(img, layout.WithPlatform(v1.Platform{OS: "linux", Architecture: "amd64"})))
	embedded, final := registrytest.Start(t), registrytest.Start(t)
	here := embedded.Addr + "/ocp/master-os"
	done, err := imagecopy.Copy(t.Context(), imagecopy.Endpoint{Reference: "oci:" + dir},
		imagecopy.Endpoint{Reference: "docker://" + here + ":1", CAFile: embedded.CAFile, AuthFile: embedded.PushAuthFile}, imagecopy.Options{})
	require.NoError(t, err)
	auth, err := os.ReadFile(final.PushAuthFile)
	require.NoError(t, err)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "push"}, Data: map[string][]byte{corev1.DockerConfigJsonKey: auth}}
	mosc := &mcfgv1.MachineOSConfig{Spec: mcfgv1.MachineOSConfigSpec{MachineConfigPool: mcfgv1.MachineConfigPoolReference{Name: "master"},
		RenderedImagePushSecret: mcfgv1.ImageSecretObjectReference{Name: "push"}, RenderedImagePushSpec: mcfgv1.ImageTagFormat(final.Addr + "/ocp/master-os:latest")}}
	digest := done.Digest.String()
	o := openshift.Outcome{CAFile: embedded.CAFile, AuthFile: embedded.PullAuthFile,
		Built: map[string]*build.Result{"master": {Digest: digest, Reference: here + "@" + digest}},
		Set: &manifests.Set{Secrets: []manifests.Item[*corev1.Secret]{manifests.NewItem(secret)},
			MachineOSConfigs: []manifests.Item[*mcfgv1.MachineOSConfig]{manifests.NewItem(mosc)}}}
	require.NoError(t, openshift.PushImages(t.Context(), o, final.CAFile))
	got, err := imagecopy.Inspect(t.Context(), imagecopy.Endpoint{Reference: "docker://" + final.Addr + "/ocp/master-os@" + digest, CAFile: final.CAFile, AuthFile: final.PullAuthFile}, "")
	require.NoError(t, err)
	assert.Equal(t, digest, got.Digest.String())

	secret.Data[corev1.DockerConfigJsonKey] = []byte(`{"auths":{}}`)
	err = openshift.PushImages(t.Context(), o, final.CAFile)
	require.ErrorContains(t, err, "pool master")
}
