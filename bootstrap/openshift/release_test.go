package openshift_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/openshift"
)

// release stands for the installer's script of that name: a release has the images of two streams, OKD's has one.
const (
	release    = `image_for() { case $1 in rhel-coreos) echo nine;; rhel-coreos-10) echo ten;; *) return 1;; esac; }`
	releaseOKD = `image_for() { [ "$1" = stream-coreos ] && echo okd; }`
)

// TestReleaseBase asks the release for the image of the stream that the installer's manifests name.
func TestReleaseBase(t *testing.T) {
	stream := func(version, name string) string {
		return "apiVersion: machineconfiguration.openshift.io/" + version + "\nkind: OSImageStream\n" +
			"metadata: {name: cluster}\nspec: {defaultStream: " + name + "}\n"
	}
	for _, c := range []struct{ name, release, manifest, want, refused string }{
		{name: "no stream", release: release, want: "nine"},
		{name: "no stream, OKD", release: releaseOKD, want: "okd"},
		{name: "rhel-9", release: release, manifest: stream("v1", "rhel-9"), want: "nine"},
		{name: "rhel-10", release: release, manifest: stream("v1", "rhel-10"), want: "ten"},
		{name: "rhel-10, older version", release: release, manifest: stream("v1alpha1", "rhel-10"), want: "ten"},
		{name: "not in the release", release: release, manifest: stream("v1", "rhel-11"), refused: "rhel-coreos-11"},
		{name: "unknown", release: release, manifest: stream("v1", "own"), refused: "OS image stream own: its name"},
		{name: "broken manifest", release: release, manifest: "{", refused: "look for the OS image stream"},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			write := func(file, text string) {
				file = filepath.Join(root, file)
				require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
				require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
			}
			write("usr/local/bin/release-image.sh", c.release+"\n")
			if c.manifest != "" {
				write("opt/openshift/openshift/99_osimagestream.yaml", c.manifest)
			}
			image, err := openshift.ReleaseBase(t.Context(), root)
			if c.refused != "" {
				assert.ErrorContains(t, err, c.refused)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.want, image)
		})
	}
}
