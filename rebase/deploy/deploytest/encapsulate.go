package deploytest

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// repository is where an encapsulated image has its objects.
const repository = "sysroot/ostree/repo/"

// Encapsulated is an image in the form in which rpm-ostree and bootc publish base images.
type Encapsulated struct {
	Commit string
	// Layers are the archives: first the one with the commit, then those with more of its files.
	Layers [][]byte
	// Objects are the names of files' objects by their paths in the tree ("/usr/bin/sh").
	Objects map[string]string
	config  *v1.ConfigFile
}

// Encapsulate makes of the tree of a plain image an ostree commit, with the real ostree, and cuts it into a layer with
// the commit and so many layers with objects. label, where it is not nil, may set extended attributes in the tree.
// Source of the form: ostree-ext, tar/export.rs, format 1.
func Encapsulate(t testing.TB, img v1.Image, layers int, label func(dir string)) *Encapsulated {
	t.Helper()
	dir := t.TempDir()
	extract(t, img, dir)
	if label != nil {
		label(dir)
	}
	repo := filepath.Join(t.TempDir(), "repo")
	Run(t, "ostree", "init", "--repo="+repo, "--mode=bare")
	commit := strings.TrimSpace(Run(t, "ostree", "commit", "--repo="+repo, "--branch=base", "--tree=dir="+dir,
		"--bootable"))
	config, err := img.ConfigFile()
	require.NoError(t, err)
	e := &Encapsulated{Commit: commit, Objects: map[string]string{}, config: config.DeepCopy()}
	e.write(t, repo, layers)
	return e
}

// extract unpacks the tree, as a commit has it: etc is usr/etc.
func extract(t testing.TB, img v1.Image, dir string) {
	t.Helper()
	flat := mutate.Extract(img)
	cmd := exec.CommandContext(t.Context(), "tar", "-xp", "--numeric-owner", "-C", dir)
	cmd.Stdin = flat
	out, err := cmd.CombinedOutput()
	require.NoError(t, errors.Join(err, flat.Close()), string(out))
	for _, name := range []string{"dev", "run", "tmp", "proc", "sys", "var"} {
		entries, err := os.ReadDir(filepath.Join(dir, name))
		require.NoError(t, err)
		for _, e := range entries { // as in the import of plain layers
			require.NoError(t, os.RemoveAll(filepath.Join(dir, name, e.Name())))
		}
	}
	require.NoError(t, os.Rename(filepath.Join(dir, "etc"), filepath.Join(dir, "usr/etc")))
}

func (e *Encapsulated) write(t testing.TB, repo string, layers int) {
	t.Helper()
	archives := make([]*archive, layers+1)
	for i := range archives {
		archives[i] = newArchive(t)
		for _, d := range []string{"sysroot/", "sysroot/ostree/", repository, repository + "objects/", repository + "refs/",
			repository + "tmp/"} {
			archives[i].put(tar.Header{Name: d, Typeflag: tar.TypeDir, Mode: 0o755}, nil)
		}
		archives[i].put(tar.Header{Name: repository + "config", Typeflag: tar.TypeReg, Mode: 0o644},
			[]byte("[core]\nrepo_version=1\nmode=bare-split-xattrs\n"))
	}
	archives[0].object(repo, e.Commit+".commit")
	metadata, err := filepath.Glob(filepath.Join(repo, "objects/*/*.dir*"))
	require.NoError(t, err)
	for _, m := range metadata {
		archives[0].object(repo, filepath.Base(filepath.Dir(m))+filepath.Base(m))
	}
	files := 0
	for _, line := range strings.Split(strings.TrimSpace(Run(t, "ostree", "ls", "--repo="+repo, "-R", "-C", "base")),
		"\n") {
		words := strings.Fields(line) // mode, owner, group, size, checksums (a directory has two), path
		if words[0][0] == 'd' {
			p := strings.TrimPrefix(words[6], "/")
			archives[0].put(tar.Header{Name: inImage(p) + "/", Typeflag: tar.TypeDir, Mode: 0o755}, nil)
			continue
		}
		p := words[5]
		e.Objects[p] = words[4]
		a := archives[files%len(archives)]
		for _, other := range archives { // equal files are one object, beside which all its links are
			if other.written[words[4]] {
				a = other
			}
		}
		a.file(repo, words[4], inImage(strings.TrimPrefix(p, "/")))
		files++
	}
	for _, a := range archives {
		e.Layers = append(e.Layers, a.bytes())
	}
}

// inImage is where a container sees a file of the commit.
func inImage(p string) string {
	if rest, ok := strings.CutPrefix(p, "usr/etc"); ok && (rest == "" || rest[0] == '/') {
		return "etc" + rest
	}
	return p
}

// Image puts the layers together; the labels may be changed before.
func (e *Encapsulated) Image(t testing.TB, change func(labels map[string]string)) v1.Image {
	t.Helper()
	layers := make([]v1.Layer, 0, len(e.Layers))
	for _, raw := range e.Layers {
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(raw)), nil
		}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(1))
		require.NoError(t, err)
		layers = append(layers, layer)
	}
	img, err := mutate.AppendLayers(mutate.MediaType(mutate.ConfigMediaType(empty.Image, types.OCIConfigJSON),
		types.OCIManifestSchema1), layers...)
	require.NoError(t, err)
	last, err := layers[len(layers)-1].DiffID()
	require.NoError(t, err)
	made, err := img.ConfigFile()
	require.NoError(t, err)
	config := e.config.DeepCopy()
	config.RootFS, config.History = made.RootFS, made.History
	if config.Config.Labels == nil {
		config.Config.Labels = map[string]string{}
	}
	config.Config.Labels["ostree.commit"], config.Config.Labels["ostree.final-diffid"] = e.Commit, last.String()
	if change != nil {
		change(config.Config.Labels)
	}
	img, err = mutate.ConfigFile(img, config)
	require.NoError(t, err)
	return img
}

// archive is one layer while it is written.
type archive struct {
	t       testing.TB
	out     bytes.Buffer
	tar     *tar.Writer
	written map[string]bool
}

func newArchive(t testing.TB) *archive {
	a := &archive{t: t, written: map[string]bool{}}
	a.tar = tar.NewWriter(&a.out)
	return a
}

func (a *archive) put(h tar.Header, content []byte) {
	h.Size, h.ModTime = int64(len(content)), time.Unix(0, 0)
	require.NoError(a.t, a.tar.WriteHeader(&h))
	_, err := a.tar.Write(content)
	require.NoError(a.t, err)
}

func objectPath(name string) string { return "objects/" + name[:2] + "/" + name[2:] }

func (a *archive) object(repo, name string) {
	raw, err := os.ReadFile(filepath.Join(repo, objectPath(name)))
	require.NoError(a.t, err)
	a.put(tar.Header{Name: repository + objectPath(name), Typeflag: tar.TypeReg, Mode: 0o644}, raw)
}

// file writes an object with its extended attributes, once, and the path as a link to it.
func (a *archive) file(repo, sum, p string) {
	source, name := filepath.Join(repo, objectPath(sum+".file")), repository+objectPath(sum+".file")
	info, err := os.Lstat(source)
	require.NoError(a.t, err)
	stat := new(unix.Stat_t)
	require.NoError(a.t, unix.Lstat(source, stat))
	h := tar.Header{Name: name, Mode: int64(stat.Mode & 0o7777), Uid: int(stat.Uid), Gid: int(stat.Gid)}
	var content []byte
	if info.Mode()&os.ModeSymlink != 0 {
		h.Typeflag = tar.TypeSymlink
		h.Linkname, err = os.Readlink(source)
	} else {
		h.Typeflag = tar.TypeReg
		content, err = os.ReadFile(source)
	}
	require.NoError(a.t, err)
	if !a.written[sum] {
		a.written[sum] = true
		a.put(tar.Header{Name: name + "-xattrs-link", Typeflag: tar.TypeReg, Mode: 0o644}, extendedAttributes(a.t, source))
		a.put(h, content)
	}
	h.Name = p
	if h.Typeflag == tar.TypeSymlink || len(content) > 0 {
		h.Typeflag, h.Linkname = tar.TypeLink, name
	}
	a.put(h, nil)
}

func (a *archive) bytes() []byte {
	require.NoError(a.t, a.tar.Close())
	return a.out.Bytes()
}

// extendedAttributes reads those of a file in GVariant's form a(ayay).
func extendedAttributes(t testing.TB, path string) []byte {
	t.Helper()
	buffer := make([]byte, 64<<10)
	n, err := unix.Llistxattr(path, buffer)
	require.NoError(t, err)
	names := strings.FieldsFunc(string(buffer[:n]), func(r rune) bool { return r == 0 })
	slices.Sort(names)
	var body []byte
	var ends []int
	for _, name := range names {
		value := make([]byte, 64<<10)
		n, err := unix.Lgetxattr(path, name, value)
		require.NoError(t, err)
		pair := append(append([]byte(name), 0), value[:n]...)
		require.Less(t, len(pair), 0xff, "the end of the first member is one byte")
		body = append(append(body, pair...), byte(len(name)+1))
		ends = append(ends, len(body))
	}
	width := 1
	if len(body)+len(ends) > 0xff {
		width = 2
	}
	for _, end := range ends {
		raw := binary.LittleEndian.AppendUint16(nil, uint16(end))
		body = append(body, raw[:width]...)
	}
	return body
}

// Unpack writes the objects of all layers as the repository that they are, for the real ostree to read.
func (e *Encapsulated) Unpack(t testing.TB) (repo string) {
	t.Helper()
	dir := t.TempDir()
	for _, raw := range e.Layers {
		cmd := exec.CommandContext(t.Context(), "tar", "-xp", "--numeric-owner", "-C", dir)
		cmd.Stdin = bytes.NewReader(raw)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
	}
	return filepath.Join(dir, repository)
}

// WithoutObject takes a file's object and all links to it out of the layers.
func (e *Encapsulated) WithoutObject(t testing.TB, p string) {
	t.Helper()
	e.edit(t, func(h *tar.Header, _ []byte) bool {
		return !strings.Contains(h.Name+h.Linkname, objectPath(e.Objects[p]))
	})
}

// ChangeObject changes a file's content, but not the name of its object.
func (e *Encapsulated) ChangeObject(t testing.TB, p string) {
	t.Helper()
	e.edit(t, func(h *tar.Header, content []byte) bool {
		if h.Name == repository+objectPath(e.Objects[p])+".file" {
			content[0] ^= 1
		}
		return true
	})
}

// Add puts an entry beside the objects of the last layer.
func (e *Encapsulated) Add(t testing.TB, name, body string) {
	t.Helper()
	last := len(e.Layers) - 1
	a := newArchive(t)
	a.copy(e.Layers[last], func(*tar.Header, []byte) bool { return true })
	a.put(tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644}, []byte(body))
	e.Layers[last] = a.bytes()
}

func (e *Encapsulated) edit(t testing.TB, keep func(h *tar.Header, content []byte) bool) {
	for i := range e.Layers {
		a := newArchive(t)
		a.copy(e.Layers[i], keep)
		e.Layers[i] = a.bytes()
	}
}

func (a *archive) copy(raw []byte, keep func(h *tar.Header, content []byte) bool) {
	for r := tar.NewReader(bytes.NewReader(raw)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(a.t, err)
		content, err := io.ReadAll(r)
		require.NoError(a.t, err)
		if keep(h, content) {
			a.put(*h, content)
		}
	}
}
