package storage

import (
	"fmt"
	"path"
	"strings"

	"github.com/opencontainers/go-digest"
)

// Subdirectory of a root that holds everything: storagePathRoot and storagePathVersion of distribution v3.
const Subdirectory = "docker/registry/v2"

// Paths are those of distribution's layout, as its drivers get them: absolute below the root. Repository names are
// checked by the caller.
const (
	top          = "/" + Subdirectory
	blobs        = top + "/blobs"
	repositories = top + "/repositories"

	dataFile      = "data"
	linkFile      = "link"
	startedAtFile = "startedat"
	hashStatesDir = "hashstates"
	uploadsDir    = "_uploads"
)

func blobDir(d digest.Digest) string {
	return blobs + "/" + string(d.Algorithm()) + "/" + d.Encoded()[:2] + "/" + d.Encoded()
}

func blobData(d digest.Digest) string { return blobDir(d) + "/" + dataFile }

func repositoryDir(name string) string { return repositories + "/" + name }

func layersDir(name string) string { return repositoryDir(name) + "/_layers" }

func revisionsDir(name string) string { return repositoryDir(name) + "/_manifests/revisions" }

func layerLink(name string, d digest.Digest) string { return linkBelow(layersDir(name), d) }

func revisionLink(name string, d digest.Digest) string { return linkBelow(revisionsDir(name), d) }

func linkBelow(dir string, d digest.Digest) string {
	return dir + "/" + string(d.Algorithm()) + "/" + d.Encoded() + "/" + linkFile
}

func tagDir(name, tag string) string { return repositoryDir(name) + "/_manifests/tags/" + tag }

func tagLink(name, tag string) string { return tagDir(name, tag) + "/current/" + linkFile }

func uploadDir(name, id string) string { return repositoryDir(name) + "/" + uploadsDir + "/" + id }

// blobOf is the digest of a blob whose data has this path.
func blobOf(p string) (digest.Digest, bool) {
	if !strings.HasPrefix(p, blobs+"/") || path.Base(p) != dataFile {
		return "", false
	}
	dir := path.Dir(p)
	d := digest.NewDigestFromEncoded(digest.Algorithm(path.Base(path.Dir(path.Dir(dir)))), path.Base(dir))
	return d, d.Validate() == nil
}

// linked is the digest in the path of a link: .../ALGORITHM/HEX/link.
func linked(p string) (digest.Digest, bool) {
	dir := path.Dir(p)
	d := digest.NewDigestFromEncoded(digest.Algorithm(path.Base(path.Dir(dir))), path.Base(dir))
	return d, path.Base(p) == linkFile && d.Validate() == nil
}

// ParseDigest accepts sha256 and sha512, the algorithms of the OCI image specification.
func ParseDigest(text string) (digest.Digest, error) {
	d, err := digest.Parse(text)
	if err != nil {
		return "", fmt.Errorf("%w %q: %w", ErrDigest, text, err)
	}
	if a := d.Algorithm(); a != digest.SHA256 && a != digest.SHA512 {
		return "", fmt.Errorf("%w %q: algorithm %s is not supported, use sha256 or sha512", ErrDigest, text, a)
	}
	return d, nil
}
