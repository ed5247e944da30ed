package releasecontroller

import (
	"encoding/base64"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render"
)

// Config makes a MachineConfig with files and units of one version.
var Config = config

// EntriesOf are its files' contents and its units' names.
var EntriesOf = entriesOf

// noise is text of n characters that does not pack.
func noise(n int) string {
	raw := make([]byte, n*3/4)
	for i := range raw {
		raw[i] = byte(rand.IntN(256))
	}
	return base64.StdEncoding.EncodeToString(raw)
}

// WriteResult writes the output of MCO's program as the Job leaves it: version, and its three folders.
func WriteResult(t testing.TB, dir, raw, osImage string, configs map[string]*mcfgv1.MachineConfig) {
	t.Helper()
	put := func(o any, name ...string) {
		text, err := manifests.Marshal(o)
		require.NoError(t, err)
		file := filepath.Join(append([]string{dir, "out"}, name...)...)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file, text, 0o600))
	}
	kind := func(name string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: mcfgv1.GroupVersion.String(), Kind: name}
	}
	for role, m := range configs {
		m = m.DeepCopy()
		m.TypeMeta = kind("MachineConfig")
		put(m, render.ConfigsDir, m.Name+".yaml")
		p := &mcfgv1.MachineConfigPool{TypeMeta: kind("MachineConfigPool"), ObjectMeta: metav1.ObjectMeta{Name: role}}
		p.Spec.Configuration.Name = m.Name
		put(p, render.PoolsDir, role+".yaml")
	}
	put(&mcfgv1.ControllerConfig{TypeMeta: kind("ControllerConfig"), ObjectMeta: metav1.ObjectMeta{
		Name: render.ControllerConfigName}, Spec: mcfgv1.ControllerConfigSpec{BaseOSContainerImage: osImage,
		BaseOSExtensionsContainerImage: osImage}}, render.ControllerDir, render.ControllerFile)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "raw"), []byte(raw), 0o600))
}
