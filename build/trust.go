package build

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"dayone.dev/dayone/build/basetree"
	"dayone.dev/dayone/installconfig/report"
)

// trustBundles are the files that programs read authorities from: Fedora and RHEL (ca-certificates,
// update-ca-trust(8)), Debian (update-ca-certificates(8)). Where one is a link to another, that one is mounted over
// once.
func trustBundles() []string {
	return []string{"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/pki/tls/certs/ca-bundle.crt",
		"/etc/pki/tls/cert.pem",
		"/etc/ssl/certs/ca-certificates.crt", "/etc/ssl/cert.pem"}
}

// anchorFiles are where the programs that make those files find additional authorities.
func anchorFiles() []string {
	return []string{"/etc/pki/ca-trust/source/anchors/dayone-additional-trust-bundle.pem",
		"/usr/local/share/ca-certificates/dayone-additional-trust-bundle.crt"}
}

// updatesTrust finds instructions that write the trust store anew: they cannot replace a file that is mounted over.
var updatesTrust = regexp.MustCompile(`update-ca-(trust|certificates)`)

// trust makes RUN trust the additional bundle without a trace in the image: files of authorities are mounted over with
// one that has the bundle too. A Containerfile that writes the trust store itself gets the bundle as an anchor only,
// which its command then adds, to the image as well. Only directories that the base has are used, so that no empty one
// is left.
func (w *work) trust() ([]Mount, error) {
	plain, err := w.trustFile(w.r.TrustBundle)
	if err != nil {
		return nil, err
	}
	var mounts []Mount
	for _, anchor := range anchorFiles() {
		if at, err := w.tree.Resolve(anchor); err == nil && isDirectory(w.tree, filepath.Dir(at)) {
			mounts = append(mounts, Mount{Source: plain, Target: at})
		}
	}
	if updatesTrust.MatchString(w.r.Containerfile) {
		return mounts, nil
	}
	tree, err := w.withConfig()
	if err != nil {
		return nil, err
	}
	mounted := map[string]bool{}
	for _, bundle := range trustBundles() {
		at, err := follow(tree, bundle)
		if err != nil || mounted[at] {
			continue
		}
		if entry, ok := tree.Lookup(at); !ok || entry.Kind != basetree.Regular {
			continue
		}
		known, ok := w.contentOf(tree, at)
		if !ok {
			place := w.place()
			place.Rule, place.Severity, place.Path = "trust-bundle", report.Warning, at
			place.Message, place.Next = "the base's file of authorities is too large to add the trust bundle to",
				"let a RUN call update-ca-trust before it downloads anything"
			w.found.files = append(w.found.files, place)
			continue
		}
		both, err := w.trustFile(joinPEM(known, w.r.TrustBundle))
		if err != nil {
			return nil, err
		}
		mounts, mounted[at] = append(mounts, Mount{Source: both, Target: at}), true
	}
	return mounts, nil
}

// contentOf is what a RUN finds there: the rendered config comes before the base.
func (w *work) contentOf(tree *basetree.Tree, p string) ([]byte, bool) {
	for _, e := range w.layer.Entries {
		if e.Path == p && e.Kind == basetree.Regular && !e.Whiteout {
			return e.Content, true
		}
	}
	return tree.Content(p)
}

// maxLinks is the kernel's bound on symbolic links in a path (path_resolution(7)).
const maxLinks = 40

// follow resolves a path wholly, its last name too: a mount ends where links lead.
func follow(tree *basetree.Tree, p string) (string, error) {
	for range maxLinks {
		at, err := tree.Resolve(p)
		if err != nil {
			return "", err
		}
		entry, ok := tree.Lookup(at)
		if !ok || entry.Kind != basetree.Symlink {
			return at, nil
		}
		if p = entry.Link; !filepath.IsAbs(p) {
			p = filepath.Join(filepath.Dir(at), p)
		}
	}
	return "", fmt.Errorf("resolve %s: too many links", p)
}

// isDirectory also knows directories that a layer has only in the paths of their files.
func isDirectory(tree *basetree.Tree, p string) bool {
	entry, ok := tree.Lookup(p)
	return ok && entry.Kind == basetree.Directory || len(tree.Under(p)) > 0
}

func joinPEM(a, b []byte) []byte {
	return bytes.Join([][]byte{bytes.TrimRight(a, "\n"), append(bytes.TrimRight(b, "\n"), '\n')}, []byte("\n"))
}

// trustFile puts authorities where RUN can have them mounted; equal ones share a file.
func (w *work) trustFile(content []byte) (string, error) {
	if w.b.o.StateDir == "" {
		return "", &Failure{Class: ClassInfrastructure, Step: "containerfile",
			Message: "a trust bundle needs a state directory", Next: "give one"}
	}
	dir := filepath.Join(w.b.o.StateDir, "trust")
	file := filepath.Join(dir, hash(content)+".pem")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("write trust bundle: %w", err)
	}
	if err := os.WriteFile(file, content, 0o644); err != nil {
		return "", fmt.Errorf("write trust bundle: %w", err)
	}
	return file, nil
}
