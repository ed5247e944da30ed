package manifests

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"

	"dayone.dev/dayone/installconfig/report"
)

// Bounds of what is read; a Default is where ReadOptions leave it at zero. An install directory has some 200 manifests
// of a few kilobytes; etcd refuses objects above 1.5 MiB.
const (
	MaxFileBytes         = 32 << 20
	DefaultMaxTotalBytes = 256 << 20
	maxDocuments         = 5000
	// DefaultMaxDocumentBytes leaves room for an object of etcd's limit in verbose YAML. Parsing takes some fifty times a
	// document's size.
	DefaultMaxDocumentBytes = 4 << 20
)

// ReadOptions bound what ReadDir reads; the zero value has the defaults.
type ReadOptions struct {
	// MaxTotalBytes refuses directories whose files together are larger, in bytes. Default DefaultMaxTotalBytes.
	MaxTotalBytes int64
	// MaxDocumentBytes refuses larger documents, in bytes. Default DefaultMaxDocumentBytes.
	MaxDocumentBytes int
	// ExpandLists reads the items of a v1 List, as kubectl get writes it. Default: a List is passed over, as MCO does at
	// install time.
	ExpandLists bool
	// Prefix stands before file names in findings and origins, for example openshift. Default: none.
	Prefix string
	// Inspect is shown every document as JSON, of whatever kind, before it is decoded; nil shows nothing.
	Inspect func(raw []byte, at Origin)
	// Extensions limits the files that are read, for example .yaml, and refuses those in UTF-16 with a byte order mark.
	// Default: every file, as MCO's bootstrap does.
	Extensions []string
}

// InstallDirectory are the options for a directory that openshift-install fills: it reads these extensions only.
func InstallDirectory(prefix string) ReadOptions {
	return ReadOptions{Prefix: prefix, Extensions: []string{".yaml", ".yml", ".json"}}
}

// repeated says that keys that occur twice count: in what a user writes, not in what a program has written.
func (o ReadOptions) repeated() bool { return len(o.Extensions) > 0 }

func (o ReadOptions) reads(name string) bool {
	return len(o.Extensions) == 0 || slices.Contains(o.Extensions, path.Ext(name))
}

// ReadDir reads every regular file of dir in the order of names, whatever its extension, as MCO does: several YAML
// documents or JSON values a file, kinds that are not known passed over. Folders inside dir are not entered. Symbolic
// links are followed only inside dir. The error is a report with every refused document.
func ReadDir(dir string, o ReadOptions) (*Set, error) {
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return nil, fmt.Errorf("open manifest directory: %s is a file, and a directory is wanted", dir)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open manifest directory: %w", err)
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("list manifest directory %s: %w", dir, err)
	}
	var (
		set   = &Set{}
		bad   report.Report
		kinds = readKinds(o)
		left  = cmp.Or(o.MaxTotalBytes, int64(DefaultMaxTotalBytes))
	)
	for _, entry := range entries {
		if !o.reads(entry.Name()) {
			continue
		}
		shown := path.Join(o.Prefix, entry.Name())
		raw, err := readFile(root, entry.Name(), min(MaxFileBytes, left))
		if err == nil && raw != nil {
			left -= int64(len(raw))
			err = set.add(raw, shown, o, kinds)
		}
		if err != nil {
			findings := report.Of(err)
			if findings == nil {
				return nil, err
			}
			for i := range findings {
				findings[i].File = shown
			}
			bad.Add(findings...)
		}
	}
	if err := bad.Err(); err != nil {
		return nil, err
	}
	return set, nil
}

// Read adds the documents of one file's bytes to a Set; name is what findings call the file.
func Read(raw []byte, name string, o ReadOptions) (*Set, error) {
	set := &Set{}
	if err := set.add(raw, name, o, readKinds(o)); err != nil {
		return nil, err
	}
	return set, nil
}

func (s *Set) add(raw []byte, name string, o ReadOptions, kinds map[string]map[string]kind) error {
	docs, err := cut(raw, name, len(o.Extensions) > 0)
	if err != nil {
		return err
	}
	var bad report.Report
	for i, doc := range docs {
		count := i + 1
		if count > maxDocuments {
			place := report.Finding{File: name, Line: doc.line, Rule: "too-many-documents", Next: "divide the file"}
			bad.Errorf(place, "the file holds more than %d documents", maxDocuments)
			break
		}
		if most := cmp.Or(o.MaxDocumentBytes, DefaultMaxDocumentBytes); len(doc.raw) > most {
			place := Origin{File: name, Document: count, Line: doc.line}.At("", "document-too-large")
			place.Next = "divide the object; the cluster takes 1.5 MiB"
			bad.Errorf(place, "the document has %d bytes, more than the %d that may be read", len(doc.raw), most)
			continue
		}
		if err := decode(s, kinds, o, doc, Origin{File: name, Document: count, Line: doc.line}); err != nil {
			bad.Add(report.Of(err)...)
		}
	}
	return bad.Err()
}

// readFile returns the bytes of a regular file, nil for a folder.
func readFile(root *os.Root, name string, limit int64) ([]byte, error) {
	info, err := root.Stat(name)
	if err != nil {
		place := report.Finding{File: name, Rule: "unreadable-file",
			Next: "replace the link by the file itself, or remove it"}
		return nil, refuse(place, "cannot be opened inside the directory: %s", reason(err))
	}
	if info.IsDir() {
		return nil, nil
	}
	if !info.Mode().IsRegular() {
		place := report.Finding{File: name, Rule: "not-a-file", Next: "remove it from the manifest directory"}
		return nil, refuse(place, "is a %s, not a file", info.Mode().Type())
	}
	tooLarge := func(size int64) error {
		place := report.Finding{File: name, Rule: "file-too-large", Next: "remove what is no manifest, or divide the file"}
		return refuse(place, "%d bytes are more than the %d that may be read here", size, limit)
	}
	if info.Size() > limit {
		return nil, tooLarge(info.Size())
	}
	file, err := root.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open manifest %s: %w", name, err)
	}
	defer file.Close()
	raw := make([]byte, 0, info.Size()+512)
	for {
		n, err := file.Read(raw[len(raw):cap(raw)])
		raw = raw[:len(raw)+n]
		if int64(len(raw)) > limit {
			return nil, tooLarge(int64(len(raw)))
		}
		if errors.Is(err, io.EOF) {
			return raw, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read manifest %s: %w", name, err)
		}
		if len(raw) == cap(raw) {
			raw = append(raw, 0)[:len(raw)]
		}
	}
}

// reason is the innermost cause of a file system error, without the path that the finding already has.
func reason(err error) string {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err.Error()
	}
	return err.Error()
}
