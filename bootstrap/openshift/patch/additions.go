package patch

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	ign "github.com/coreos/ignition/v2/config/v3_6/types"

	"dayone.dev/dayone/manifests/machineconfig"
)

// Additions are what an installer's Ignition config gets.
type Additions struct {
	// Target is the config's file name; default installconfig.BootstrapIgnition.
	Target string
	// Needs is a unit by which the right config is known; a config without it is refused.
	Needs string `json:",omitempty"`
	// Moves make room for some of the Files.
	Moves   []Move
	Files   []File
	Units   []Unit
	DropIns []DropIn
}

// File is a file by its path. Content is written into the config; URL and SHA512 instead let Ignition fetch it, by
// digest.
type File struct {
	Path    string
	Mode    int
	Content []byte
	URL     string
	// SHA512 is in hex, with URL.
	SHA512 string
}

// Move gives a file of the installer's another path: one of the Files takes its place and calls it there. A config
// without the file is refused.
type Move struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// Unit is an enabled unit.
type Unit struct{ Name, Contents string }

// DropIn is a drop-in of a unit that may be there already, or must be.
type DropIn struct {
	Unit, Name, Contents string
	Required             bool
}

// markerPath is the marker's path on the bootstrap node.
const markerPath = "/etc/dayone/patch.json"

// marker tells a patched bootstrap.ign from others and lists what to take out.
type marker struct {
	Version int `json:"version"`
	// Digest identifies the additions.
	Digest string `json:"digest"`
	// Original is the SHA-256 of the file before.
	Original string   `json:"original"`
	Files    []string `json:"files"`
	Units    []string `json:"units"`
	// DropIns are UNIT/NAME.
	DropIns []string `json:"dropIns"`
	Moves   []Move   `json:"moves,omitempty"`
}

const markerVersion = 1

// digest is the same for equal additions.
func (a Additions) digest() (string, error) {
	raw, err := json.Marshal(a)
	if err != nil {
		return "", fmt.Errorf("hash additions: %w", err)
	}
	return sum(raw), nil
}

func sum(raw []byte) string {
	h := sha256.Sum256(raw)
	return hex.EncodeToString(h[:])
}

// marker lists the additions; itself is among the files.
func (a Additions) marker(original []byte) (marker, error) {
	d, err := a.digest()
	m := marker{Version: markerVersion, Digest: d, Original: sum(original), Moves: a.Moves}
	for _, f := range a.Files {
		m.Files = append(m.Files, f.Path)
	}
	for _, u := range a.Units {
		m.Units = append(m.Units, u.Name)
	}
	for _, d := range a.DropIns {
		m.DropIns = append(m.DropIns, d.Unit+"/"+d.Name)
	}
	m.Files = append(m.Files, markerPath)
	return m, err
}

// addTo merges the additions and the marker into c. What c has at a path or under a name of its own is never replaced:
// that is an error.
func (a Additions) addTo(c *ign.Config, m marker) error {
	note, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("encode marker: %w", err)
	}
	if a.Needs != "" && !slices.ContainsFunc(c.Systemd.Units, func(u ign.Unit) bool { return u.Name == a.Needs }) {
		return a.other("unit " + a.Needs)
	}
	for _, move := range a.Moves {
		if !rename(c, move.From, move.To) {
			return a.other("file " + move.From)
		}
	}
	for _, f := range append(slices.Clone(a.Files), File{Path: markerPath, Mode: 0o644, Content: append(note, '\n')}) {
		if slices.ContainsFunc(c.Storage.Files, func(have ign.File) bool { return have.Path == f.Path }) {
			return a.taken("file", f.Path)
		}
		c.Storage.Files = append(c.Storage.Files, f.ignition())
	}
	for _, u := range a.Units {
		if slices.ContainsFunc(c.Systemd.Units, func(have ign.Unit) bool { return have.Name == u.Name }) {
			return a.taken("unit", u.Name)
		}
		enabled := true
		c.Systemd.Units = append(c.Systemd.Units, ign.Unit{Name: u.Name, Contents: &u.Contents, Enabled: &enabled})
	}
	for _, d := range a.DropIns {
		i := slices.IndexFunc(c.Systemd.Units, func(have ign.Unit) bool { return have.Name == d.Unit })
		if i < 0 && d.Required {
			return a.other("unit " + d.Unit)
		}
		if i < 0 {
			c.Systemd.Units = append(c.Systemd.Units, ign.Unit{Name: d.Unit})
			i = len(c.Systemd.Units) - 1
		}
		unit := &c.Systemd.Units[i]
		if slices.ContainsFunc(unit.Dropins, func(have ign.Dropin) bool { return have.Name == d.Name }) {
			return a.taken("drop-in", d.Unit+"/"+d.Name)
		}
		unit.Dropins = append(slices.Clone(unit.Dropins), ign.Dropin{Name: d.Name, Contents: &d.Contents})
	}
	return nil
}

// takeFrom takes out what the marker lists.
func (m marker) takeFrom(c *ign.Config) {
	c.Storage.Files = slices.DeleteFunc(c.Storage.Files, func(f ign.File) bool { return slices.Contains(m.Files, f.Path) })
	for _, move := range m.Moves {
		rename(c, move.To, move.From)
	}
	c.Systemd.Units = slices.DeleteFunc(c.Systemd.Units, func(u ign.Unit) bool { return slices.Contains(m.Units, u.Name) })
	for i := range c.Systemd.Units {
		u := &c.Systemd.Units[i]
		u.Dropins = slices.DeleteFunc(u.Dropins, func(d ign.Dropin) bool {
			return slices.Contains(m.DropIns,
				u.Name+"/"+d.Name)
		})
	}
	c.Systemd.Units = slices.DeleteFunc(c.Systemd.Units, func(u ign.Unit) bool {
		held := slices.ContainsFunc(m.DropIns, func(d string) bool { return strings.HasPrefix(d, u.Name+"/") })
		return held && len(u.Dropins) == 0 && u.Contents == nil && u.Enabled == nil && u.Mask == nil
	})
}

// rename gives a file of a config another path, if it has the file.
func rename(c *ign.Config, from, to string) bool {
	i := slices.IndexFunc(c.Storage.Files, func(f ign.File) bool { return f.Path == from })
	if i >= 0 {
		c.Storage.Files = slices.Clone(c.Storage.Files)
		c.Storage.Files[i].Path = to
	}
	return i >= 0
}

// squeezeFrom is the size in bytes from which a file's content is packed, where that makes it smaller.
const squeezeFrom = 1024

// ignition is the file in a form that every spec from 3.1 on has.
func (f File) ignition() ign.File {
	overwrite, mode := true, f.Mode
	out := ign.File{Node: ign.Node{Path: f.Path, Overwrite: &overwrite}, FileEmbedded1: ign.FileEmbedded1{Mode: &mode}}
	if f.URL != "" {
		hash := "sha512-" + f.SHA512
		out.Contents = ign.Resource{Source: &f.URL, Verification: ign.Verification{Hash: &hash}}
		return out
	}
	if packed := squeeze(f.Content); len(f.Content) >= squeezeFrom && len(packed) < len(f.Content) {
		source, kind := "data:;base64,"+base64.StdEncoding.EncodeToString(packed), "gzip"
		out.Contents = ign.Resource{Source: &source, Compression: &kind}
		return out
	}
	source := *machineconfig.Inline(f.Content).Source
	out.Contents = ign.Resource{Source: &source}
	return out
}

// squeeze packs without a time or a name, so that equal content gives equal bytes.
func squeeze(content []byte) []byte {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // the level is a valid one
	_, _ = w.Write(content)                               // a buffer takes everything
	_ = w.Close()
	return b.Bytes()
}
