package pinnedimages

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/rebase/deploy"
)

// Ref is a PinnedImageSet that a node must have, in one generation.
type Ref struct {
	Name string
	// Generation is 0 for a set that does not exist.
	Generation int64
}

// Wanted lists the sets of a node's pools: each pool's in its order, each once. generation gives a set's; 0: it does
// not exist.
func Wanted(pools []*mcfgv1.MachineConfigPool, generation func(name string) int64) []Ref {
	var out []Ref
	for _, p := range pools {
		for _, s := range p.Spec.PinnedImageSets {
			if !slices.ContainsFunc(out, func(r Ref) bool { return r.Name == s.Name }) {
				out = append(out, Ref{s.Name, generation(s.Name)})
			}
		}
	}
	return out
}

// Encode writes sets for a node's annotation: NAME=GENERATION, with commas between them.
func Encode(refs []Ref) string {
	words := make([]string, 0, len(refs))
	for _, r := range refs {
		words = append(words, r.Name+"="+strconv.FormatInt(r.Generation, 10))
	}
	return strings.Join(words, ",")
}

// Parse reads what Encode writes.
func Parse(text string) ([]Ref, error) {
	if text == "" {
		return nil, nil
	}
	var out []Ref
	for _, word := range strings.Split(text, ",") {
		name, number, _ := strings.Cut(word, "=")
		generation, err := strconv.ParseInt(number, 10, 64)
		if name == "" || err != nil || generation < 0 {
			return nil, fmt.Errorf("read pinned image sets: %q is not NAME=GENERATION", word)
		}
		out = append(out, Ref{name, generation})
	}
	return out, nil
}

// Images are those of some sets, in the order of the sets, each once. A reference without a digest is refused.
func Images(sets []*mcfgv1.PinnedImageSet) ([]string, error) {
	var out []string
	var errs []error
	for _, s := range sets {
		for _, i := range s.Spec.PinnedImages {
			name := strings.TrimSpace(string(i.Name))
			if _, err := deploy.ParseImage(name); err != nil {
				errs = append(errs, fmt.Errorf("PinnedImageSet %s: %w", s.Name, err))
			} else if !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out, errors.Join(errs...)
}
