package build

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"github.com/google/renameio/v2"

	"dayone.dev/dayone/build/basetree"
	"dayone.dev/dayone/installconfig/report"
)

// trustBundles are the files that programs read CAs from: Fedora and RHEL (ca-certificates,
// update-ca-trust(8)), Debian (update-ca-certificates(8)). Where one is a link to another, that one is mounted over
// once.
func trustBundles() []string {
	return []string{"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/pki/tls/certs/ca-bundle.crt",
		"/etc/pki/tls/cert.pem", "/etc/ssl/certs/ca-certificates.crt", "/etc/ssl/cert.pem"}
}

// anchorFiles are where the programs that make those files find additional CAs.
func anchorFiles() []string {
	return []string{"/etc/pki/ca-trust/source/anchors/dayone-additional-trust-bundle.pem",
		"/usr/local/share/ca-certificates/dayone-additional-trust-bundle.crt"}
}

// updatesTrust finds instructions that rewrite the trust store: they cannot replace a file that is mounted over.
var updatesTrust = regexp.MustCompile(`update-ca-(trust|certificates)`)

// trustMounts make RUN trust the additional bundle without a trace in the image: CA files are mounted over with one
// that has the bundle too. A Containerfile that writes the trust store itself gets the bundle as an anchor only, which
// its command then adds, to the image as well. Only directories that the base has are used, so that no empty one is
// left.
func trustMounts(src source, stateDir string) ([]Mount, []report.Finding, error) {
	plain, err := trustFile(stateDir, src.TrustBundle)
	if err != nil {
		return nil, nil, err
	}
	var mounts []Mount
	for _, anchor := range anchorFiles() {
		if at, err := src.base.tree.Resolve(anchor); err == nil && isDirectory(src.base.tree, filepath.Dir(at)) {
			mounts = append(mounts, Mount{Source: plain, Target: at})
		}
	}
	if updatesTrust.MatchString(src.Containerfile) {
		return mounts, nil, nil
	}
	tree, seen := src.configured(), map[string]bool{}
	var findings []report.Finding
	for _, bundle := range trustBundles() {
		at, err := tree.ResolveAll(bundle)
		if err != nil || seen[at] {
			continue
		}
		seen[at] = true
		if entry, ok := tree.Lookup(at); !ok || entry.Kind != basetree.Regular {
			continue
		}
		known, ok := tree.Content(at)
		if !ok {
			findings = append(findings, report.Finding{Severity: report.Warning, File: src.containerfileName(), Path: at,
				Rule: "trust-bundle", Message: "the base's CA file is too large to add the trust bundle to",
				Next: "let a RUN call update-ca-trust before it downloads anything"})
			continue
		}
		both, err := trustFile(stateDir, joinPEM(known, src.TrustBundle))
		if err != nil {
			return nil, nil, err
		}
		mounts = append(mounts, Mount{Source: both, Target: at})
	}
	return mounts, findings, nil
}

// isDirectory also knows directories that a layer has only in the paths of their files.
func isDirectory(tree *basetree.Tree, p string) bool {
	entry, ok := tree.Lookup(p)
	return ok && entry.Kind == basetree.Directory || len(tree.Under(p)) > 0
}

func joinPEM(a, b []byte) []byte {
	return bytes.Join([][]byte{bytes.TrimRight(a, "\n"), append(bytes.TrimRight(b, "\n"), '\n')}, []byte("\n"))
}

// trustFile puts CAs where RUN can have them mounted; equal ones share a file.
func trustFile(stateDir string, content []byte) (string, error) {
	if stateDir == "" {
		return "", &Failure{Class: ClassInfrastructure, Step: "containerfile",
			Message: "a trust bundle needs a state directory", Next: "set the builder's state directory"}
	}
	dir := filepath.Join(stateDir, "trust")
	file := filepath.Join(dir, hash(content)+".pem")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("write trust bundle: %w", err)
	}
	if err := renameio.WriteFile(file, content, 0o644); err != nil {
		return "", fmt.Errorf("write trust bundle: %w", err)
	}
	return file, nil
}
