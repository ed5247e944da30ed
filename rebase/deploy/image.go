package deploy

import (
	"fmt"
	"strings"

	"github.com/containers/image/v5/docker/reference"
	"github.com/opencontainers/go-digest"
)

// Image names an OS image: a repository and the digest of the manifest in it. The digest is the identity.
type Image struct {
	Repository string        // host[:port]/path, no tag; may be empty when only the digest is known
	Digest     digest.Digest // sha256:…
}

// ParseImage reads host[:port]/path@sha256:…; a tag or a missing digest is refused, because a node must never run "what
// the tag names now".
func ParseImage(s string) (Image, error) {
	s = strings.TrimPrefix(s, "docker://")
	named, err := reference.ParseNormalizedNamed(s)
	if err != nil {
		return Image{}, fmt.Errorf("read image reference %q: %w", s, err)
	}
	canonical, ok := named.(reference.Canonical)
	if !ok {
		return Image{}, fmt.Errorf("read image reference %q: it names no digest; write host/path@sha256:…", s)
	}
	if _, tagged := named.(reference.Tagged); tagged {
		return Image{}, fmt.Errorf("read image reference %q: it names a tag beside the digest; leave the tag out", s)
	}
	return Image{Repository: named.Name(), Digest: canonical.Digest()}, nil
}

// String gives host/path@sha256:…, or only the digest when the repository is unknown.
func (i Image) String() string {
	if i.Repository == "" {
		return i.Digest.String()
	}
	return i.Repository + "@" + i.Digest.String()
}

// IsZero tells that no image is named.
func (i Image) IsZero() bool { return i.Digest == "" }

// ImageOfOrigin reads an ostree image reference, which has a signature policy and a transport before the name.
// Source: ostree-ext, container/mod.rs (OstreeImageReference).
func ImageOfOrigin(reference string) (Image, error) {
	for _, prefix := range []string{"ostree-unverified-registry:", "ostree-unverified-image:docker://",
		"ostree-unverified-image:registry:",
		"ostree-image-signed:docker://", "ostree-image-signed:registry:"} {
		if rest, ok := strings.CutPrefix(reference, prefix); ok {
			return ParseImage(rest)
		}
	}
	if rest, ok := strings.CutPrefix(reference, "ostree-remote-registry:"); ok {
		_, name, _ := strings.Cut(rest, ":")
		return ParseImage(name)
	}
	return ParseImage(reference)
}
