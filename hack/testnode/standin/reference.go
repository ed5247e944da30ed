package standin

import (
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// reference is an ostree container image reference: signature policy, transport, image.
type reference struct {
	image     string // host:port/name@sha256:… or :tag
	signed    bool   // containers-policy.json must say something
	canonical string
}

// parseReference reads the forms that rpm-ostree takes; three of them mean the same.
func parseReference(s string) (reference, error) {
	for _, prefix := range []string{"ostree-unverified-registry:", "ostree-unverified-image:registry:",
		"ostree-unverified-image:docker://"} {
		if image, ok := strings.CutPrefix(s, prefix); ok {
			return reference{image: image, canonical: "ostree-unverified-registry:" + image}, nil
		}
	}
	for _, prefix := range []string{"ostree-image-signed:docker://", "ostree-image-signed:registry:"} {
		if image, ok := strings.CutPrefix(s, prefix); ok {
			return reference{image: image, signed: true, canonical: "ostree-image-signed:docker://" + image}, nil
		}
	}
	return reference{}, words("Invalid ostree image reference %q", s)
}

func (r reference) pinned() bool { return strings.Contains(r.image, "@sha256:") }

// kernelArgumentsFile is the form of kargs.d/*.toml; other keys are refused as bootc refuses them.
type kernelArgumentsFile struct {
	Kargs         []string `toml:"kargs"`
	Architectures []string `toml:"match-architectures"`
}

func parseKernelArguments(text string) ([]string, error) {
	var f kernelArgumentsFile
	m, err := toml.Decode(text, &f)
	if err != nil {
		return nil, err
	}
	if unknown := m.Undecoded(); len(unknown) > 0 {
		return nil, fmt.Errorf("unknown field `%s`", unknown[0])
	}
	machine := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	if machine == "" {
		machine = runtime.GOARCH
	}
	if len(f.Architectures) > 0 && !slices.Contains(f.Architectures, machine) {
		return nil, nil
	}
	return f.Kargs, nil
}
