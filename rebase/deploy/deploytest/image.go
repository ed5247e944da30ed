package deploytest

import (
	"archive/tar"
	"bytes"
	"cmp"
	"io"
	"path/filepath"
	"runtime"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/require"
)

// Entry is one entry of a layer; a directory by a name that ends in "/", a regular file with mode 0644 unless said
// otherwise.
type Entry struct {
	Name string
	Body string
	Link string // target: a symbolic link unless Type is tar.TypeLink
	Type byte
	Mode int64
	UID  int
	GID  int
}

// Layer makes a gzip layer.
func Layer(t testing.TB, entries ...Entry) v1.Layer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e.Name, Typeflag: e.Type, Mode: e.Mode, Uid: e.UID, Gid: e.GID, Linkname: e.Link,
			Size: int64(len(e.Body))}
		isDir := e.Name[len(e.Name)-1] == '/'
		switch {
		case h.Typeflag != 0:
		case isDir:
			h.Typeflag = tar.TypeDir
		case e.Link != "":
			h.Typeflag = tar.TypeSymlink
		default:
			h.Typeflag = tar.TypeReg
		}
		if h.Mode == 0 {
			h.Mode = 0o644
			if isDir {
				h.Mode = 0o755
			}
		}
		require.NoError(t, w.WriteHeader(h))
		_, err := io.WriteString(w, e.Body)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(b.Bytes())),
			nil
	},
		tarball.WithMediaType(types.OCILayer))
	require.NoError(t, err)
	return layer
}

// Base is a layer with what ostree demands of a deployable tree: top-level directories, os-release and a kernel of fake
// bytes.
func Base(version string) []Entry {
	e := []Entry{{Name: "./"}, {Name: "usr/"}, {Name: "usr/lib/"}, {Name: "usr/bin/"}, {Name: "etc/"}}
	for _, d := range []string{"sysroot/", "var/", "proc/", "sys/", "dev/", "run/", "tmp/", "boot/"} {
		e = append(e, Entry{Name: d})
	}
	return append(e,
		Entry{Name: "ostree", Link: "sysroot/ostree"}, Entry{Name: "bin", Link: "usr/bin"},
		Entry{Name: "lib", Link: "usr/lib"},
		Entry{Name: "usr/lib/os-release", Body: "NAME=Test\nID=test\nVERSION_ID=" + version + "\nPRETTY_NAME=\"Test " +
			version + "\"\n"},
		Entry{Name: "etc/os-release", Link: "../usr/lib/os-release"},
		Entry{Name: "usr/lib/modules/"}, Entry{Name: "usr/lib/modules/1.0/"},
		Entry{Name: "usr/lib/modules/1.0/vmlinuz", Body: "kernel"}, Entry{Name: "usr/lib/modules/1.0/initramfs.img",
			Body: "initramfs"},
		Entry{Name: "etc/vendor", Body: "vendor " + version + "\n"})
}

// Options of Image; the zero value is a bootable image for this machine.
type Options struct {
	Labels       map[string]string // default: the bootable ones
	Architecture string            // default: this machine's
}

// Image puts layers together.
func Image(t testing.TB, o Options, layers ...v1.Layer) v1.Image {
	t.Helper()
	img, err := mutate.AppendLayers(mutate.MediaType(mutate.ConfigMediaType(empty.Image, types.OCIConfigJSON),
		types.OCIManifestSchema1), layers...)
	require.NoError(t, err)
	config, err := img.ConfigFile()
	require.NoError(t, err)
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", o.Architecture
	config.Architecture = cmp.Or(config.Architecture, runtime.GOARCH)
	config.Config.Labels = o.Labels
	if o.Labels == nil {
		config.Config.Labels = map[string]string{"ostree.bootable": "1", "containers.bootc": "1"}
	}
	img, err = mutate.ConfigFile(img, config)
	require.NoError(t, err)
	return img
}

// WriteOCI writes an OCI layout and gives its source string.
func WriteOCI(t testing.TB, img v1.Image) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "oci")
	p, err := layout.Write(dir, empty.Index)
	require.NoError(t, err)
	require.NoError(t, p.AppendImage(img))
	return "oci:" + dir
}
