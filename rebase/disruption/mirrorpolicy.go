package disruption

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// MirrorPolicy says for which kinds of changes that could let an image come from elsewhere no drain is needed, because
// the admin has other ways to be sure of images. The zero value drains for all of them.
type MirrorPolicy map[MirrorKind]bool

// mirrorRule begins the path of an admin's rule for one kind of mirror object; the kind follows. No file has such a
// path, so that a reader who does not know these rules applies them to nothing.
const mirrorRule = registriesConf + "#"

// mirrorKind reads a kind as people write it.
func mirrorKind(word string) (MirrorKind, bool) {
	k := MirrorKind(word)
	if k == "ImageContentSourcePolicy" {
		k = DigestMirrors // they leave the same lines
	}
	return k, slices.Contains([]MirrorKind{DigestMirrors, TagMirrors, ImageSettings}, k)
}

// mirrorFault names what is wrong with an admin's rule for a kind of mirror object; nil for every other rule.
func mirrorFault(r Rule) error {
	word, is := strings.CutPrefix(r.Name, mirrorRule)
	if !is {
		return nil
	}
	if _, known := mirrorKind(word); !known {
		return fmt.Errorf("there is no kind %q: kinds are ImageDigestMirrorSet, ImageContentSourcePolicy, "+
			"ImageTagMirrorSet and Image", word)
	}
	if len(r.Actions) != 1 || r.Actions[0].Type != None && r.Actions[0].Type != Drain {
		return errors.New("a rule for a kind of mirrors is None or Drain: it says whether pods leave the node; CRI-O is " +
			"reloaded in any case")
	}
	return nil
}

// mirrors are what an admin's rules say of kinds of mirror objects.
func (p Policies) mirrors() MirrorPolicy {
	out := MirrorPolicy{}
	for _, r := range p.Files {
		word, is := strings.CutPrefix(r.Name, mirrorRule)
		kind, known := mirrorKind(word)
		if !is || !known {
			continue
		}
		none := slices.Equal(r.Actions, []Action{{Type: None}})
		if before, twice := out[kind]; twice {
			none = none && before // two words for one kind: the careful one counts
		}
		out[kind] = none
	}
	return out
}

// ParseMirrorPolicy reads the value of the annotation dayone.dev/mirror-policy on the MachineConfiguration, in which
// earlier versions had what rules for registries.conf#KIND say now: pairs of kind and None or Drain, such as
// "ImageDigestMirrorSet=None, ImageTagMirrorSet=Drain".
func ParseMirrorPolicy(s string) (MirrorPolicy, error) {
	out := MirrorPolicy{}
	for _, pair := range strings.Split(s, ",") {
		word, action, found := strings.Cut(strings.TrimSpace(pair), "=")
		k, known := mirrorKind(word)
		if !found || !known || (action != string(None) && action != string(Drain)) {
			return nil, fmt.Errorf(
				"read mirror policy %q: %q is no pair such as ImageDigestMirrorSet=None; kinds are ImageDigestMirrorSet, "+
					"ImageContentSourcePolicy, ImageTagMirrorSet and Image, actions None and Drain", s, strings.TrimSpace(pair))
		}
		out[k] = action == string(None)
	}
	return out, nil
}
