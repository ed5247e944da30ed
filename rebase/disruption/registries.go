package disruption

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/BurntSushi/toml"
)

// registriesConf is the file whose changes are judged by what they mean. Source: containers-registries.conf(5).
const registriesConf = "/etc/containers/registries.conf"

// MirrorKind is the kind of cluster object that a part of registries.conf comes from.
type MirrorKind string

const (
	// DigestMirrors come from ImageDigestMirrorSets and ImageContentSourcePolicies, which leave the same lines.
	DigestMirrors MirrorKind = "ImageDigestMirrorSet"
	// TagMirrors come from ImageTagMirrorSets.
	TagMirrors MirrorKind = "ImageTagMirrorSet"
	// ImageSettings come from the cluster's Image config: insecure and blocked registries, the search list.
	ImageSettings MirrorKind = "Image"
)

// MirrorChange is one difference between two registries.conf.
type MirrorChange struct {
	// Kind is the kind of object that the changed part comes from.
	Kind MirrorKind `json:"kind"`
	// What is added, removed or changed, in words.
	What string `json:"what"`
	// Unsafe changes could let the image of a running pod come from elsewhere, or from nowhere: they drain.
	Unsafe bool `json:"unsafe"`
}

// mirrorFile is what registries.conf holds; Rest is what is not compared piece by piece.
type mirrorFile struct {
	Search     []string   `toml:"unqualified-search-registries"`
	ShortNames string     `toml:"short-name-mode"`
	Registries []registry `toml:"registry"`
	Rest       map[string]any
}

type registry struct {
	Prefix     string   `toml:"prefix"`
	Location   string   `toml:"location"`
	Blocked    bool     `toml:"blocked"`
	Insecure   bool     `toml:"insecure"`
	DigestOnly bool     `toml:"mirror-by-digest-only"`
	Mirrors    []mirror `toml:"mirror"`
}

type mirror struct {
	Location string `toml:"location"`
	Insecure bool   `toml:"insecure"`
	Pull     string `toml:"pull-from-mirror"`
}

// kind tells which objects make mirrors like this one.
func (m mirror) kind() MirrorKind {
	if m.Pull == digestOnly {
		return DigestMirrors
	}
	return TagMirrors
}

// digestOnly is for mirrors that are asked for digests only. Source: containers-registries.conf(5).
const digestOnly = "digest-only"

// decodeMirrorFile reads the file as it is written.
func decodeMirrorFile(data []byte) (f mirrorFile, err error) {
	_, err = toml.Decode(string(data), &f)
	return f, err
}

func readMirrorFile(data []byte) (mirrorFile, error) {
	f, err := decodeMirrorFile(data)
	if err != nil {
		return f, err
	}
	if _, err := toml.Decode(string(data), &f.Rest); err != nil {
		return f, err
	}
	for _, key := range []string{"unqualified-search-registries", "short-name-mode", "registry"} {
		delete(f.Rest, key)
	}
	for i, r := range f.Registries {
		if r.Prefix == "" {
			f.Registries[i].Prefix = r.Location
		}
		if r.DigestOnly {
			for j, m := range r.Mirrors {
				if m.Pull == "" || m.Pull == "all" {
					f.Registries[i].Mirrors[j].Pull = digestOnly
				}
			}
		}
	}
	return f, nil
}

// CompareMirrors gives what differs between two registries.conf in what they mean; their form does not matter. Nil data
// is a file that is not there. A file that cannot be read makes one unsafe change that says so.
func CompareMirrors(before, after []byte) []MirrorChange {
	old, err := readMirrorFile(before)
	if err != nil {
		return []MirrorChange{{Kind: ImageSettings, What: fmt.Sprintf("the present file cannot be read: %v", err),
			Unsafe: true}}
	}
	now, err := readMirrorFile(after)
	if err != nil {
		return []MirrorChange{{Kind: ImageSettings, What: fmt.Sprintf("the new file cannot be read: %v", err), Unsafe: true}}
	}
	var c mirrorChanges
	kind := ImageSettings
	if (len(before) == 0) != (len(after) == 0) {
		// The first mirror set brings the whole file, its search list included, and the last one takes it along: that is
		// their change.
		kind = fileKind(append(old.Registries, now.Registries...))
	}
	c.settings(kind, old, now)
	were, are := byPrefix(old), byPrefix(now)
	for _, prefix := range slices.Sorted(maps.Keys(were)) {
		if r, found := are[prefix]; found {
			c.registry(prefix, were[prefix], r)
		} else {
			c.add(registryKind(were[prefix]), true, "registry %s removed", prefix)
		}
	}
	for _, prefix := range slices.Sorted(maps.Keys(are)) {
		if _, found := were[prefix]; !found {
			c.added(prefix, are[prefix])
		}
	}
	return c
}

// byPrefix sorts registries by the prefix of the images that they are for. Two for one prefix are refused by the reader
// of the file.
func byPrefix(f mirrorFile) map[string]registry {
	out := make(map[string]registry, len(f.Registries))
	for _, r := range f.Registries {
		out[r.Prefix] = r
	}
	return out
}

// registryKind is the kind of objects that a whole entry comes from: that of its least strict part. An entry that is
// blocked and has mirrors is a mirror set's whose mirrorSourcePolicy is NeverContactSource.
func registryKind(r registry) MirrorKind {
	if r.Insecure || len(r.Mirrors) == 0 {
		return ImageSettings
	}
	for _, m := range r.Mirrors {
		if m.kind() == TagMirrors {
			return TagMirrors
		}
	}
	return DigestMirrors
}

// fileKind is the kind of objects that a whole file comes from: that of its least strict entry.
func fileKind(all []registry) MirrorKind {
	kind := DigestMirrors
	for _, r := range all {
		switch registryKind(r) {
		case ImageSettings:
			return ImageSettings
		case TagMirrors:
			kind = TagMirrors
		}
	}
	if len(all) == 0 {
		return ImageSettings
	}
	return kind
}

type mirrorChanges []MirrorChange

func (c *mirrorChanges) add(kind MirrorKind, unsafe bool, format string, args ...any) {
	*c = append(*c, MirrorChange{Kind: kind, What: fmt.Sprintf(format, args...), Unsafe: unsafe})
}

// settings compares what is not a registry; changes of it are of a kind.
func (c *mirrorChanges) settings(kind MirrorKind, old, now mirrorFile) {
	if !slices.Equal(old.Search, now.Search) {
		appended := len(now.Search) > len(old.Search) && slices.Equal(old.Search, now.Search[:len(old.Search)])
		c.add(kind, !appended, "search list %v becomes %v", old.Search, now.Search)
	}
	if old.ShortNames != now.ShortNames {
		c.add(kind, true, "short-name-mode %q becomes %q", old.ShortNames, now.ShortNames)
	}
	if !reflect.DeepEqual(old.Rest, now.Rest) && len(old.Rest)+len(now.Rest) > 0 {
		c.add(kind, true, "other settings change")
	}
}

// added judges a registry that was not there: only mirrors by digest leave every image what it is.
func (c *mirrorChanges) added(prefix string, r registry) {
	kind := registryKind(r)
	unsafe := kind != DigestMirrors || (r.Location != "" && r.Location != prefix)
	c.add(kind, unsafe, "registry %s added with %d mirrors", prefix, len(r.Mirrors))
}

// registry compares two entries for one prefix.
func (c *mirrorChanges) registry(prefix string, old, now registry) {
	if old.Location != now.Location {
		c.add(ImageSettings, true, "registry %s: location %s becomes %s", prefix, old.Location, now.Location)
	}
	if old.Blocked != now.Blocked {
		c.blocked(prefix, old, now)
	}
	if old.Insecure != now.Insecure {
		c.add(ImageSettings, true, "registry %s: insecure becomes %t", prefix, now.Insecure)
	}
	were, are := byLocation(old.Mirrors), byLocation(now.Mirrors)
	changed := false
	for _, location := range slices.Sorted(maps.Keys(were)) {
		before := were[location]
		after, found := are[location]
		switch {
		case !found:
			c.add(before.kind(), true, "registry %s: mirror %s removed", prefix, location)
		case before != after:
			c.add(looser(before, after), after.kind() != DigestMirrors || before.Insecure != after.Insecure,
				"registry %s: mirror %s changed", prefix, location)
		default:
			continue
		}
		changed = true
	}
	for _, location := range slices.Sorted(maps.Keys(are)) {
		if _, found := were[location]; !found {
			m := are[location]
			c.add(m.kind(), m.kind() != DigestMirrors || m.Insecure, "registry %s: mirror %s added", prefix, location)
			changed = true
		}
	}
	if !changed && !slices.Equal(old.Mirrors, now.Mirrors) {
		kind := registryKind(registry{Mirrors: now.Mirrors})
		// The order of mirrors by digest says only who is asked first for the same bytes; a tag's bytes may differ.
		c.add(kind, kind != DigestMirrors, "registry %s: order of mirrors changed", prefix)
	}
}

// blocked judges a source that pulls may no longer reach, or may reach again. Where all mirrors are by digest the
// former is a mirror set's NeverContactSource: what a mirror has comes from there as before, with the same bytes, and a
// drain would not bring what no mirror has.
func (c *mirrorChanges) blocked(prefix string, old, now registry) {
	kind := ImageSettings
	if len(old.Mirrors) > 0 && len(now.Mirrors) > 0 {
		kind = registryKind(registry{Mirrors: append(slices.Clone(old.Mirrors), now.Mirrors...)})
	}
	c.add(kind, kind != DigestMirrors || !now.Blocked, "registry %s: blocked becomes %t", prefix, now.Blocked)
}

func byLocation(mirrors []mirror) map[string]mirror {
	out := make(map[string]mirror, len(mirrors))
	for _, m := range mirrors {
		out[m.Location] = m
	}
	return out
}

// looser gives the kind of the two that allows more.
func looser(a, b mirror) MirrorKind {
	if a.kind() == TagMirrors || b.kind() == TagMirrors {
		return TagMirrors
	}
	return DigestMirrors
}
