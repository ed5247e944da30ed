package basetree

import (
	"errors"
	"fmt"
	"path"
	"sort"
	"strings"
)

// Kind is the type of a file.
type Kind byte

const (
	Directory Kind = 'd'
	Regular   Kind = 'f'
	Symlink   Kind = 'l'
	// Other is a device node or a pipe.
	Other Kind = 'o'
)

// Entry is what the tree knows of one path.
type Entry struct {
	Kind Kind
	// Mode holds the permission bits with set-uid, set-gid and sticky (12 bits).
	Mode     int64
	UID, GID int
	// Link is a symlink's text.
	Link string
}

// Tree is an image's file tree. Paths are absolute and clean; usr/etc of an image is /etc, as on a booted host. The
// zero value is an empty tree. It is safe for concurrent reading.
type Tree struct {
	Entries map[string]Entry
	// Contents holds small files that a config compiler must read: accounts, units and what lies in /etc.
	Contents map[string][]byte
	// Inventory is what the maker of bills of materials has found in the image while it was read, in a form of its own;
	// empty if none was asked.
	Inventory []byte
}

// maxLinks bounds a chain of symlinks, as the kernel does (MAXSYMLINKS).
const maxLinks = 40

var errManyLinks = errors.New("too many levels of symbolic links")

// Lookup gives the entry at exactly this path; symlinks are not followed.
func (t *Tree) Lookup(p string) (Entry, bool) {
	e, ok := t.Entries[p]
	return e, ok
}

// Content gives the bytes of a file whose content is kept.
func (t *Tree) Content(p string) ([]byte, bool) {
	c, ok := t.Contents[p]
	return c, ok
}

// Resolve follows symlinks in all components but the last, inside the image, as a process with the image as its root
// would.
func (t *Tree) Resolve(p string) (string, error) {
	current, rest := "/", split(path.Clean("/"+p))
	for links := 0; len(rest) > 1; {
		next := path.Join(current, rest[0])
		rest = rest[1:]
		e, ok := t.Entries[next]
		if !ok || e.Kind != Symlink {
			current = next
			continue
		}
		if links++; links > maxLinks {
			return "", fmt.Errorf("resolve %s: %w", p, errManyLinks)
		}
		target := e.Link
		if !path.IsAbs(target) {
			target = path.Join(current, target)
		}
		rest = append(split(path.Clean(target)), rest...)
		current = "/"
	}
	if len(rest) == 0 {
		return current, nil
	}
	return path.Join(current, rest[0]), nil
}

// ResolveAll is Resolve that follows a symlink in the last component, too.
func (t *Tree) ResolveAll(p string) (string, error) {
	for range maxLinks {
		at, err := t.Resolve(p)
		if err != nil {
			return "", err
		}
		entry, ok := t.Lookup(at)
		if !ok || entry.Kind != Symlink {
			return at, nil
		}
		if p = entry.Link; !path.IsAbs(p) {
			p = path.Join(path.Dir(at), p)
		}
	}
	return "", fmt.Errorf("resolve %s: %w", p, errManyLinks)
}

// Under lists the paths below dir, in order.
func (t *Tree) Under(dir string) []string {
	var out []string
	for p := range t.Entries {
		if strings.HasPrefix(p, dir+"/") {
			out = append(out, p)
		}
	}
	sort.Strings(out)
	return out
}

func split(p string) []string {
	p = strings.Trim(p, "/")
	if p == "" {
		return nil
	}
	return strings.Split(p, "/")
}

// isDirectory reports whether p is one: only then can something lie below that goes with it.
func (t *Tree) isDirectory(p string) bool { return t.Entries[p].Kind == Directory }
