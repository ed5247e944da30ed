package places

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"

	"github.com/containers/image/v5/docker/reference"
	"github.com/containers/image/v5/pkg/sysregistriesv2"
	"github.com/containers/image/v5/types"
)

// table finds a registry in a registries.conf, also at its beginning and without the comments.
var table = regexp.MustCompile(`(?m)^\s*\[\[registry\]\]`)

// InConfig tells whether a registries.conf says anything of registries: an OS image's own file may only have defaults
// for names without one.
func InConfig(conf []byte) bool { return table.Match(conf) }

// Of lists where an image may be had by a registries.conf: its mirrors, then its own registry. Without the file it is
// the latter. A registry that the file blocks is left out; where none is left that is an error.
func Of(conf, image string) ([]string, error) {
	if _, err := os.Stat(conf); errors.Is(err, fs.ErrNotExist) {
		return []string{image}, nil
	}
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return nil, fmt.Errorf("read image reference %q: %w", image, err)
	}
	sysregistriesv2.InvalidateCache()
	sys := &types.SystemContext{SystemRegistriesConfPath: conf, SystemRegistriesConfDirPath: conf + ".d"}
	found, err := sysregistriesv2.FindRegistry(sys, named.Name())
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", conf, err)
	}
	if found == nil {
		return []string{image}, nil
	}
	pulls, err := found.PullSourcesFromReference(named)
	if err != nil {
		return nil, fmt.Errorf("apply %s to %q: %w", conf, image, err)
	}
	if pulls, err = Unblocked(sys, found.Prefix, pulls); err != nil {
		return nil, fmt.Errorf("find a place that has %q: %w", image, err)
	}
	var out []string
	for _, p := range pulls {
		out = append(out, p.Reference.String())
	}
	return out, nil
}

// Unblocked leaves out the places that registries.conf blocks, as containers/image does: a blocked registry's mirrors
// count (NeverContactSource in an ImageDigestMirrorSet). It refuses an image of prefix that no place is left for.
func Unblocked(sys *types.SystemContext, prefix string, pulls []sysregistriesv2.PullSource) (
	[]sysregistriesv2.PullSource, error) {
	var out []sysregistriesv2.PullSource
	for _, p := range pulls {
		r, err := sysregistriesv2.FindRegistry(sys, p.Reference.Name())
		if err != nil {
			return nil, fmt.Errorf("read registries.conf: %w", err)
		}
		if r == nil || !r.Blocked {
			out = append(out, p)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("registries.conf blocks %q", prefix)
	}
	return out, nil
}
