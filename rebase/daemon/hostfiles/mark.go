package hostfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
)

// Carry marks a config's files, and the links that enable its units, as the node's own, so that ostree's merge of /etc
// takes them along into a deployment whose image does not have them: what is equal to the running image's copy would be
// left behind. A regular file gets the sticky bit, which means nothing on files; a link gets another text for the same
// target. Uncarry takes the marks off in the new deployment. Both may be done again at any time.
func (h Host) Carry(c ign35.Config) error { return h.marks(c, true) }

// Uncarry takes off what Carry marked.
func (h Host) Uncarry(c ign35.Config) error { return h.marks(c, false) }

// etc is the only directory that is merged.
const etc = "/etc/"

func (h Host) marks(c ign35.Config, on bool) error {
	entries, err := entriesOf(h.Root, c) // what is others' must be there, too, when the next deployment boots
	if err != nil {
		return err
	}
	paths := sorted(entries)
	links, err := enablement(h.Root, c)
	if err != nil {
		return err
	}
	for _, p := range slices.Concat(paths, links) {
		if !strings.HasPrefix(p, etc) {
			continue
		}
		if err := mark(filepath.Join(h.Root, p), entries[p].mode&fs.ModeSticky != 0, on); err != nil {
			return fmt.Errorf("mark %s: %w", p, err)
		}
	}
	return nil
}

// mark changes one path; sticky says that its config wants the bit anyway, so that it cannot serve as a mark.
func mark(at string, sticky, on bool) error {
	info, err := os.Lstat(at)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // Drift; the next comparison reports it.
	}
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		text, err := os.Readlink(at)
		if err != nil {
			return err
		}
		if changed := linkText(text, on); changed != text {
			return replaceLink(at, changed)
		}
		return nil
	}
	if !info.Mode().IsRegular() || sticky {
		return nil
	}
	mode := info.Mode() &^ fs.ModeSticky
	if on {
		mode |= fs.ModeSticky
	}
	return os.Chmod(at, mode)
}

// linkText gives another text for the same target, or the plain one back.
func linkText(text string, on bool) string {
	plain := text
	switch {
	case strings.HasPrefix(text, "//"):
		plain = text[1:]
	case strings.HasPrefix(text, "./"):
		plain = text[2:]
	}
	switch {
	case !on:
		return plain
	case path.IsAbs(plain):
		return "/" + plain
	}
	return "./" + plain
}
