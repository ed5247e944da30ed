package buildtest

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/registry/registrytest"
)

// created is the base's time: everything built on it gets it too.
var created = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) //nolint:gochecknoglobals // a constant in all but type

// Base says what the base image is like. The zero value is small, bootable and for this machine.
type Base struct {
	// Architecture in Go's name; default this program's.
	Architecture string
	// NotBootable leaves the labels out.
	NotBootable bool
	// Docker makes a Docker schema 2 manifest instead of OCI's.
	Docker bool
	// Encapsulated writes the layers of root, programs, files and links as ostree-ext does: all but directories are hard
	// links.
	Encapsulated bool
	// Layers adds this many layers of LayerSize random bytes each.
	Layers    int
	LayerSize int
	// Programs are scripts in /usr/bin, in a layer of their own.
	Programs map[string]string
	// Files are files by path, in a layer of their own.
	Files map[string]string
	// Links are symbolic links' texts by path, in the same layer.
	Links map[string]string
	// Fixed leaves this host's busybox out and packs without compression: the digest is the same on every host.
	Fixed bool
	// Tree is a directory whose files and links are a layer of their own, with their modes and owner root; empty for none.
	Tree string
	// Repository; default os/base.
	Repository string
}

// Need skips a test, or fails it in CI, when this host lacks a program or the rights. A short run skips tests that need
// root.
func Need(t testing.TB, root bool, programs ...string) {
	t.Helper()
	if root && testing.Short() {
		t.Skip("short run: this test needs root")
	}
	missing := func(format string, args ...any) {
		if os.Getenv("CI") == "true" {
			t.Fatalf(format, args...)
		}
		t.Skipf(format, args...)
	}
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			missing("%s is missing: %v", p, err)
		}
	}
	if root && os.Geteuid() != 0 {
		missing("this test needs root")
	}
}

// applets that the base's commands are; busybox looks at its name.
func applets() []string {
	return []string{"sh", "ls", "cat", "echo", "id", "mkdir", "touch", "cp", "rm", "sleep", "env", "mount", "test", "find",
		"ln", "date", "grep",
		"head", "dd", "true", "false", "seq", "yes", "stat", "readlink", "wget", "printf", "mv", "chmod", "chown", "ps",
		"kill"}
}

// Push makes the image and pushes it. The reference is by digest.
func Push(t testing.TB, r *registrytest.Registry, b Base) build.Image {
	t.Helper()
	if !b.Fixed {
		Need(t, false, "busybox")
	}
	b.Repository = cmp.Or(b.Repository, "os/base")
	b.Architecture = cmp.Or(b.Architecture, runtime.GOARCH)
	img := b.image(t)
	ref, err := name.ParseReference(r.Addr + "/" + b.Repository + ":v1")
	require.NoError(t, err)
	require.NoError(t, remote.Write(ref, img, r.Pusher(t)...))
	digest, err := img.Digest()
	require.NoError(t, err)
	return build.Image{Reference: ref.Context().Digest(digest.String()).String()}
}

func (b Base) image(t testing.TB) v1.Image {
	t.Helper()
	manifest, config, layer := types.OCIManifestSchema1, types.OCIConfigJSON, types.OCILayer
	if b.Docker {
		manifest, config, layer = types.DockerManifestSchema2, types.DockerConfigJSON, types.DockerLayer
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, manifest), config)
	level := gzip.BestSpeed
	add := func(raw []byte, by string) {
		l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(raw)), nil },
			tarball.WithMediaType(layer), tarball.WithCompressionLevel(level), tarball.WithCompressedCaching)
		require.NoError(t, err)
		img, err = mutate.Append(img, mutate.Addendum{Layer: l, History: v1.History{Created: v1.Time{Time: created},
			CreatedBy: by}})
		require.NoError(t, err)
	}
	form := func(raw []byte) []byte { return raw }
	if b.Encapsulated {
		form = func(raw []byte) []byte { return Encapsulate(t, raw) }
	}
	if b.Fixed {
		level = gzip.NoCompression
	}
	add(form(b.rootLayer(t)), "root")
	if len(b.Programs)+len(b.Files)+len(b.Links) > 0 {
		add(form(b.filesLayer(t)), "files")
	}
	if b.Tree != "" {
		add(treeLayer(t, b.Tree), "tree")
	}
	for i := range b.Layers {
		add(fillLayer(t, i, b.LayerSize), fmt.Sprintf("layer %d", i))
	}
	file, err := img.ConfigFile()
	require.NoError(t, err)
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Created = "linux", b.Architecture, v1.Time{Time: created}
	file.Config.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	file.Config.Labels = map[string]string{"version": "1"}
	if !b.NotBootable {
		diff := file.RootFS.DiffIDs[0].String()
		file.Config.Labels["containers.bootc"], file.Config.Labels["ostree.bootable"],
			file.Config.Labels["ostree.final-diffid"] = "1", "true", diff
	}
	img, err = mutate.ConfigFile(img, file)
	require.NoError(t, err)
	return img
}

type archive struct {
	t testing.TB
	w *tar.Writer
}

func (a archive) put(name string, kind byte, mode int64, text string) {
	h := &tar.Header{Name: name, Typeflag: kind, Mode: mode, ModTime: created, Format: tar.FormatPAX}
	if kind == tar.TypeSymlink {
		h.Linkname, text = text, ""
	}
	h.Size = int64(len(text))
	require.NoError(a.t, a.w.WriteHeader(h))
	_, err := io.WriteString(a.w, text)
	require.NoError(a.t, err)
}

// rootLayer is a root like an ostree host's, with busybox for commands and a file that stands for the kernel.
func (b Base) rootLayer(t testing.TB) []byte {
	t.Helper()
	var out bytes.Buffer
	a := archive{t, tar.NewWriter(&out)}
	for _, d := range []string{"dev/", "etc/", "proc/", "run/", "sys/", "tmp/", "usr/", "usr/bin/", "usr/lib/",
		"usr/lib/modules/", "usr/lib/modules/6.1.0/", "usr/lib/systemd/", "usr/lib/systemd/system/", "usr/share/", "var/",
		"var/home/", "var/roothome/"} {
		a.put(d, tar.TypeDir, 0o755, "")
	}
	for _, l := range [][2]string{{"bin", "usr/bin"}, {"home", "var/home"}, {"opt", "var/opt"}, {"root", "var/roothome"},
		{"usr/local", "../var/usrlocal"}} {
		a.put(l[0], tar.TypeSymlink, 0o777, l[1])
	}
	if !b.Fixed {
		program, err := exec.LookPath("busybox")
		require.NoError(t, err, "the base needs a static busybox")
		busybox, err := os.ReadFile(program)
		require.NoError(t, err)
		a.put("usr/bin/busybox", tar.TypeReg, 0o755, string(busybox))
		for _, name := range applets() {
			a.put(path.Join("usr/bin", name), tar.TypeSymlink, 0o777, "busybox")
		}
	}
	a.put("etc/passwd", tar.TypeReg, 0o644, "root:x:0:0:root:/root:/bin/sh\n")
	a.put("etc/group", tar.TypeReg, 0o644, "root:x:0:\n")
	a.put("etc/stock.conf", tar.TypeReg, 0o644, "stock\n")
	a.put("usr/lib/modules/6.1.0/vmlinuz", tar.TypeReg, 0o644, "kernel\n")
	a.put("usr/lib/modules/6.1.0/initramfs.img", tar.TypeReg, 0o644, "initramfs\n")
	a.put("usr/lib/systemd/system/vendor.service", tar.TypeReg, 0o644,
		"[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n")
	require.NoError(t, a.w.Close())
	return out.Bytes()
}

// filesLayer has the programs and files that the base shall have, in order of their paths.
func (b Base) filesLayer(t testing.TB) []byte {
	t.Helper()
	var raw bytes.Buffer
	a := archive{t, tar.NewWriter(&raw)}
	dirs := map[string]bool{}
	for name := range b.Files {
		dirs[path.Dir(name)] = true
	}
	for name := range b.Links {
		dirs[path.Dir(name)] = true
	}
	for dir := range maps.Clone(dirs) {
		for ; dir != "/"; dir = path.Dir(dir) {
			dirs[dir] = true
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		a.put(strings.TrimPrefix(dir, "/")+"/", tar.TypeDir, 0o755, "")
	}
	for _, name := range slices.Sorted(maps.Keys(b.Programs)) {
		a.put(path.Join("usr/bin", name), tar.TypeReg, 0o755, b.Programs[name])
	}
	for _, name := range slices.Sorted(maps.Keys(b.Files)) {
		a.put(strings.TrimPrefix(name, "/"), tar.TypeReg, 0o644, b.Files[name])
	}
	for _, name := range slices.Sorted(maps.Keys(b.Links)) {
		a.put(strings.TrimPrefix(name, "/"), tar.TypeSymlink, 0o777, b.Links[name])
	}
	require.NoError(t, a.w.Close())
	return raw.Bytes()
}

// treeLayer packs a directory.
func treeLayer(t testing.TB, dir string) []byte {
	t.Helper()
	var raw bytes.Buffer
	w := tar.NewWriter(&raw)
	require.NoError(t, filepath.WalkDir(dir, func(p string, e os.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		name, err := filepath.Rel(dir, p)
		require.NoError(t, err)
		info, err := e.Info()
		require.NoError(t, err)
		link := ""
		if e.Type()&os.ModeSymlink != 0 {
			link, err = os.Readlink(p)
			require.NoError(t, err)
		}
		h, err := tar.FileInfoHeader(info, link)
		require.NoError(t, err)
		h.Name, h.ModTime, h.Uid, h.Gid, h.Uname, h.Gname, h.Format = name, created, 0, 0, "", "", tar.FormatPAX
		if e.IsDir() {
			h.Name += "/"
		}
		require.NoError(t, w.WriteHeader(h))
		if e.Type().IsRegular() {
			content, err := os.ReadFile(p)
			require.NoError(t, err)
			_, err = w.Write(content)
			require.NoError(t, err)
		}
		return nil
	}))
	require.NoError(t, w.Close())
	return raw.Bytes()
}

// fillLayer has bytes that do not pack, the same on every run.
func fillLayer(t testing.TB, n, size int) []byte {
	t.Helper()
	var b bytes.Buffer
	a := archive{t, tar.NewWriter(&b)}
	raw := make([]byte, size)
	state := uint64(n)*0x9e3779b97f4a7c15 + 1
	for i := range raw { // xorshift: fast and without a seed to keep
		state ^= state << 13
		state ^= state >> 7
		state ^= state << 17
		raw[i] = byte(state)
	}
	a.put(fmt.Sprintf("usr/lib/fill-%02d", n), tar.TypeReg, 0o644, string(raw))
	require.NoError(t, a.w.Close())
	return b.Bytes()
}

// Config is a rendered config with a file, a unit that is enabled, and what more is given as Ignition files.
func Config(t testing.TB, files map[string]string) *mcfgv1.MachineConfig {
	t.Helper()
	list := []map[string]any{{"path": "/etc/from-config", "mode": 0o640, "overwrite": true,
		"contents": map[string]any{"source": "data:,config%0A"}}}
	for p, text := range files {
		list = append(list, map[string]any{"path": p, "overwrite": true, "contents": map[string]any{"source": "data:," +
			text}})
	}
	raw, err := json.Marshal(map[string]any{
		"ignition": map[string]any{"version": "3.5.0"},
		"storage":  map[string]any{"files": list},
		"systemd": map[string]any{"units": []map[string]any{
			{"name": "mine.service", "enabled": true,
				"contents": "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"},
			{"name": "vendor.service", "enabled": true},
		}},
	})
	require.NoError(t, err)
	return &mcfgv1.MachineConfig{
		ObjectMeta: metav1.ObjectMeta{Name: "rendered-master-0123"},
		Spec:       mcfgv1.MachineConfigSpec{Config: k8sruntime.RawExtension{Raw: raw}},
	}
}

// Request asks for an image of that base in the same registry.
func Request(t testing.TB, r *registrytest.Registry, base build.Image, containerfile string) build.Request {
	t.Helper()
	return build.Request{
		Pool: "master", Base: base, Config: Config(t, nil), Containerfile: containerfile, Target: r.Addr + "/ocp/master-os",
		Registry: build.Access{CAFile: r.CAFile, AuthFile: r.PushAuthFile},
	}
}
