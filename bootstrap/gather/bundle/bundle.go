package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
)

// Bounds of what is read: a bundle of openshift-install has some thousand files and some hundred megabytes.
const (
	// maxEntries refuses archives with more entries.
	maxEntries = 50_000
	// maxTotal refuses archives that unpack to more, in bytes.
	maxTotal = 2 << 30
	// maxFile is how much of one file is kept, in bytes; what is longer is cut and marked.
	maxFile = 16 << 20
	// maxKept is how much is kept in memory of all files, in bytes; of what comes after, only names.
	maxKept = 512 << 20
	// maxPath refuses longer names, in bytes.
	maxPath = 1024
)

// errHostile says that an archive is not one that gather writes: it is refused as a whole.
var errHostile = errors.New("the archive is not safe to read")

// File is one file of a bundle.
type File struct {
	// Name is relative to the bundle's own directory, with slashes.
	Name string
	// Content may be cut: see Truncated.
	Content []byte
	// Truncated says that Content is not the whole file.
	Truncated bool
}

// Bundle is a log bundle in memory.
type Bundle struct {
	// Name is the directory inside the archive, log-bundle-<id>.
	Name  string
	files map[string]*File
	names []string
	// Damage says what is wrong with an archive that could be read only in part; "": nothing.
	Damage string

	total, kept int64
	entries     int
}

// Open reads a tar.gz or a directory.
func Open(name string) (*Bundle, error) {
	info, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open bundle: %w (name a log-bundle-*.tar.gz that dayone gather or openshift-install gather "+
			"bootstrap wrote, or its unpacked directory)", err)
	} else if err != nil {
		return nil, fmt.Errorf("open bundle: %w", err)
	}
	if info.IsDir() {
		return openDir(name)
	}
	if !info.Mode().IsRegular() { // before it is opened: that would wait for a pipe's other end
		return nil, fmt.Errorf("open bundle: %s is neither a file nor a directory", name)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open bundle: %w", err)
	}
	defer f.Close()
	return Read(f)
}

// Read reads a tar.gz. An archive that ends too early gives what came before, with Damage set: a bundle of a host that
// died is one.
func Read(r io.Reader) (*Bundle, error) {
	zip, err := gzip.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("read bundle: not a log bundle (name a log-bundle-*.tar.gz or its unpacked directory): %w",
			err)
	}
	b := &Bundle{files: map[string]*File{}}
	archive := tar.NewReader(zip)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = b.entry(header, archive)
		}
		if errors.Is(err, errHostile) {
			return nil, err
		}
		if err != nil {
			if b.entries == 0 {
				return nil, fmt.Errorf("read bundle: %w", err)
			}
			b.Damage = fmt.Sprintf("the archive ends too early or is damaged: %v", err)
			break
		}
	}
	b.finish()
	return b, nil
}

// entry takes one entry of an archive. Only files and directories are taken; a link, device or name that leads out
// refuses the archive.
func (b *Bundle) entry(h *tar.Header, content io.Reader) error {
	b.entries++
	if b.entries > maxEntries {
		return fmt.Errorf("%w: more than %d entries", errHostile, maxEntries)
	}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeDir, tar.TypeXGlobalHeader:
	case tar.TypeSymlink, tar.TypeLink:
		return nil // openshift-install's own bundles have some; they are never followed
	default:
		return fmt.Errorf("%w: %q is neither file nor directory", errHostile, shown(h.Name))
	}
	if h.Typeflag != tar.TypeReg {
		return checkName(h.Name)
	}
	if err := checkName(h.Name); err != nil {
		return err
	}
	if b.total += h.Size; h.Size < 0 || b.total > maxTotal {
		return fmt.Errorf("%w: it unpacks to more than %d bytes", errHostile, int64(maxTotal))
	}
	return b.take(path.Clean(h.Name), h.Size, content)
}

// checkName refuses names that lead out of the bundle or that a terminal would act on.
func checkName(name string) error {
	if len(name) > maxPath {
		return fmt.Errorf("%w: a name of %d bytes", errHostile, len(name))
	}
	clean := strings.TrimSuffix(strings.TrimPrefix(name, "./"), "/")
	if clean != "" && clean != "." && (!filepath.IsLocal(filepath.FromSlash(clean)) || strings.Contains(clean, "\\")) {
		return fmt.Errorf("%w: the name %q leads out of it", errHostile, shown(name))
	}
	if strings.IndexFunc(name, unicode.IsControl) >= 0 {
		return fmt.Errorf("%w: the name %q has control characters", errHostile, shown(name))
	}
	return nil
}

func shown(name string) string {
	if len(name) > 80 {
		name = name[:80]
	}
	return strings.ToValidUTF8(name, "?")
}

// take keeps a file's content within the bounds.
func (b *Bundle) take(name string, size int64, content io.Reader) error {
	f := &File{Name: name}
	room := min(int64(maxFile), maxKept-b.kept)
	raw, err := io.ReadAll(io.LimitReader(content, room))
	f.Content, f.Truncated = raw, int64(len(raw)) < size
	b.kept += int64(len(raw))
	if len(raw) > 0 || err == nil {
		b.files[name] = f
	}
	if err != nil {
		f.Truncated = true
		return fmt.Errorf("read %s: %w", shown(name), err)
	}
	return nil
}

// finish takes the bundle's own directory off the names.
func (b *Bundle) finish() {
	for name := range b.files {
		b.names = append(b.names, name)
	}
	if len(b.names) > 0 {
		first, _, _ := strings.Cut(b.names[0], "/")
		if !slices.ContainsFunc(b.names, func(n string) bool { return !strings.HasPrefix(n, first+"/") }) &&
			!slices.Contains([]string{"bootstrap", "resources", "control-plane", "rendered-assets", "unit-status", "pods"},
				first) {
			b.Name = first
		}
	}
	files := map[string]*File{}
	for name, f := range b.files {
		f.Name = strings.TrimPrefix(name, b.Name+"/")
		files[f.Name] = f
	}
	b.files, b.names = files, b.names[:0]
	for name := range files {
		b.names = append(b.names, name)
	}
	slices.Sort(b.names)
}

// openDir reads an unpacked bundle. Links are not followed.
func openDir(dir string) (*Bundle, error) {
	b := &Bundle{files: map[string]*File{}}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open bundle: %w", err)
	}
	defer root.Close()
	err = fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			b.Damage = fmt.Sprintf("not everything can be read: %v", err)
			return nil
		}
		if b.entries++; b.entries > maxEntries {
			return fmt.Errorf("%w: more than %d files and directories; is it a bundle's directory?", errHostile, maxEntries)
		}
		if !e.Type().IsRegular() {
			return nil
		}
		info, err := e.Info()
		if err != nil {
			return nil // gone
		}
		f, err := root.Open(name)
		if err != nil {
			b.Damage = fmt.Sprintf("not everything can be read: %v", err)
			return nil
		}
		defer f.Close()
		return b.take(name, info.Size(), f)
	})
	if err != nil {
		return nil, err
	}
	b.finish()
	if b.Name == "" {
		b.Name = filepath.Base(filepath.Clean(dir))
	}
	return b, nil
}

// Names are all files, sorted.
func (b *Bundle) Names() []string { return b.names }

// Get is one file; nil when it is not there.
func (b *Bundle) Get(name string) *File { return b.files[name] }

// Below are the files of a directory and what lies below it, sorted.
func (b *Bundle) Below(dir string) []*File {
	var out []*File
	for _, name := range b.names {
		if strings.HasPrefix(name, dir+"/") {
			out = append(out, b.files[name])
		}
	}
	return out
}

// Lines are a file's lines.
func (f *File) Lines() []string {
	if f == nil || len(f.Content) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(bytes.ToValidUTF8(f.Content, []byte("?"))), "\n"), "\n")
}
