package installconfig

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/installconfig/report"
)

func TestEveryKeySurvivesTheSidecar(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, FileName), []byte(full), 0o600))
	written, err := Prepare(dir)
	require.NoError(t, err)
	read, err := ReadSidecar(dir)
	require.NoError(t, err)
	assert.Equal(t, written, read)
	assert.Equal(t, Build{Timeout: Duration(90 * time.Minute), Disk: 16 << 30, Attempts: 5, Offline: true},
		read.Config.Build)
	assert.Equal(t, HandOver{Policy: HandOverDeadline, Deadline: Duration(15 * time.Minute)}, read.Config.HandOver)
	assert.True(t, read.Config.On())
}

func TestFlowRefusesKeys(t *testing.T) {
	const pools = "onClusterLayering:\n  pools: [{name: master}]\n"
	for _, c := range []struct{ name, text, rule, path string }{
		{"no host for a standalone bootstrap", pools + "  flow: standalone\n", "dotted-host",
			"bootstrapRegistry.host"},
		{"a fallback of a standalone bootstrap", pools +
			"  flow: standalone\n  bootstrapRegistry: {host: 192.0.2.1}\n  onFailure: fallback\n", "on-failure", "onFailure"},
		{"a signature policy beside a release", pools + "  flow: openshift\n  signaturePolicyFile: policy.json\n",
			"signature-policy", "signaturePolicyFile"},
		{"a base image beside a release", pools + "  flow: openshift\n  baseImage: registry.example.com/a/b:1\n",
			"base-image", "baseImage"},
		{"an Ignition server beside the installer's", pools + "  flow: openshift\n  configServer: {port: 1}\n",
			"config-server", "configServer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			doc, err := parse([]byte(c.text))
			require.NoError(t, err)
			_, err = doc.Resolve(t.TempDir())
			found := report.Of(err)
			require.Len(t, found, 1, "%v", err)
			assert.Equal(t, c.rule, found[0].Rule)
			assert.Equal(t, Field+"."+c.path, found[0].Path)
			assert.Positive(t, found[0].Line)
		})
	}
}

func TestTheFlowIsTheDirectorys(t *testing.T) {
	doc, err := parse([]byte("onClusterLayering:\n  pools: [{name: master}]\n"))
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".openshift_install_state.json"), []byte("{}"), 0o600))
	s, err := doc.Resolve(dir)
	require.NoError(t, err)
	assert.Equal(t, FlowOpenShift, s.Config.Flow)
	assert.Empty(t, s.Config.BootstrapRegistry.Host, "the bootstrap node finds its own address")
}

func TestSizesAreReadAndWritten(t *testing.T) {
	for _, c := range []struct {
		name string
		want Size
	}{{"0", 0}, {"1", 1}, {"512Mi", 512 << 20}, {"8Gi", 8 << 30}, {"1536Ki", 1536 << 10}} {
		got, err := parseSize(c.name)
		require.NoError(t, err)
		assert.Equal(t, c.want, got)
		assert.Equal(t, c.name, got.String())
	}
	for _, text := range []string{"", "Gi", "-1", "1.5Gi", "8GB", "9999999999Ti", "1 Gi"} {
		_, err := parseSize(text)
		assert.Error(t, err, text)
	}
}

// FuzzSidecar: whatever the loader takes is the same after it was written and read, and the rest of the file keeps
// every key.
func FuzzSidecar(f *testing.F) {
	f.Add([]byte(sample))
	f.Add([]byte(full))
	f.Fuzz(func(t *testing.T, raw []byte) {
		doc, err := parse(raw)
		if err != nil || doc.Config == nil {
			return
		}
		dir := t.TempDir()
		s, err := doc.Resolve(dir)
		if err != nil {
			return
		}
		require.NoError(t, s.Write(dir))
		read, err := ReadSidecar(dir)
		require.NoError(t, err)
		require.Equal(t, s.Config, read.Config)
		if out, err := doc.stripped(); err == nil {
			require.True(t, sameButField(raw, out))
		}
	})
}
