package layertar

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"
)

// whiteoutPrefix starts the name of a file that removes its namesake of a lower layer.
// Source: OCI image specification, layer.md, "Whiteouts".
const whiteoutPrefix = ".wh."

// ErrHostile marks a layer that names a path outside of the image, or has an entry that has no place in an image.
var ErrHostile = errors.New("layer holds an entry that is not allowed")

// ErrEncapsulated marks a layer that carries an ostree repository although the image does not say that it is
// encapsulated.
var ErrEncapsulated = errors.New("layer carries an ostree repository, not files")

// Repository is where the layers of an encapsulated image carry their objects. Source: ostree-ext, tar/export.rs.
const (
	Repository = OSTree + "/repo"
	OSTree     = "sysroot/ostree"
)

// capability is the extended attribute of file capabilities; without it programs such as newuidmap fail on the node.
// xattrRecord starts the names of extended attributes in archives. Source: capabilities(7); GNU tar, bsdtar and
// libarchive alike.
const (
	xattrRecord = "SCHILY.xattr."
	capability  = xattrRecord + "security.capability"
)

// Stats says what Read left out.
type Stats struct {
	Entries int            // entries given
	Dropped map[string]int // entries and extended attributes left out, by reason
}

// Read gives each of the tar archive src, in constant memory, those entries that an OS image keeps:
//
//   - etc becomes usr/etc, also in the targets of hard links and in whiteouts (`ostree admin deploy` makes /etc from
//     usr/etc);
//   - what is below run, tmp, proc, sys, dev and var is dropped: the first five are mounted over, and /var belongs to
//     the node;
//   - devices, fifos and sockets are dropped, ostree cannot hold them;
//   - names of owners, times and extended attributes are dropped, but for file capabilities (SELinux labels are the
//     host policy's);
//   - "..", hard links to something dropped and unknown types refuse the layer with ErrHostile.
//
// src is read to its end, padding included, because that counts for digests.
func Read(src io.Reader, each func(h *tar.Header, content io.Reader) error) (Stats, error) {
	return read(src, each, false)
}

// ReadDerived is Read for a layer over an encapsulated image: where a build has changed a file, the layer may have the
// file below Repository, and links to it. Each gets both; what is below Repository is no part of the image.
func ReadDerived(src io.Reader, each func(h *tar.Header, content io.Reader) error) (Stats, error) {
	return read(src, each, true)
}

func read(src io.Reader, each func(h *tar.Header, content io.Reader) error, derived bool) (Stats, error) {
	s := Stats{Dropped: map[string]int{}}
	err := walk(src, func(h *tar.Header, content io.Reader) error {
		keep, err := rewriteHeader(h, s.Dropped, derived)
		if err != nil || !keep {
			return err
		}
		s.Entries++
		return each(h, content)
	})
	return s, err
}

// walk gives each the entries of an archive, and reads what is behind them.
func walk(src io.Reader, each func(h *tar.Header, content io.Reader) error) error {
	tr := tar.NewReader(src)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read layer archive: %w", err)
		}
		if err := each(h, tr); err != nil {
			return err
		}
	}
	if _, err := io.Copy(io.Discard, src); err != nil {
		return fmt.Errorf("read layer to its end: %w", err)
	}
	return nil
}

func rewriteHeader(h *tar.Header, dropped map[string]int, derived bool) (keep bool, err error) {
	name, err := imagePath(h.Name, derived)
	if err != nil {
		return false, err
	}
	if reason := dropReason(name); reason != "" {
		dropped[reason]++
		return false, nil
	}
	clean := tar.Header{Typeflag: h.Typeflag, Name: name, Size: h.Size, Mode: h.Mode & 0o7777, Uid: h.Uid, Gid: h.Gid,
		ModTime: time.Unix(0, 0)}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeGNUSparse:
		clean.Typeflag = tar.TypeReg
		clean.PAXRecords = keptRecords(h.PAXRecords, dropped)
	case tar.TypeDir:
		if name == "" {
			clean.Name = "."
		}
		clean.Name += "/"
	case tar.TypeSymlink:
		clean.Linkname = h.Linkname
	case tar.TypeLink:
		target, err := imagePath(h.Linkname, derived)
		if err != nil {
			return false, err
		}
		if reason := dropReason(target); reason != "" || target == "" {
			return false, fmt.Errorf("hard link %q to %q, which is no part of an image: %w", h.Name, h.Linkname, ErrHostile)
		}
		clean.Linkname = target
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		dropped["special file"]++
		return false, nil
	case tar.TypeXGlobalHeader:
		return false, nil
	default:
		return false, fmt.Errorf("entry %q of unknown type %q: %w", h.Name, h.Typeflag, ErrHostile)
	}
	if name == "" && h.Typeflag != tar.TypeDir {
		return false, fmt.Errorf("entry %q replaces the root directory: %w", h.Name, ErrHostile)
	}
	*h = clean
	return true, nil
}

// keptRecords gives the file's capabilities and counts its other extended attributes.
func keptRecords(records map[string]string, dropped map[string]int) map[string]string {
	var kept map[string]string
	for key, value := range records {
		if key == capability {
			kept = map[string]string{key: value}
		} else if name, ok := strings.CutPrefix(key, xattrRecord); ok {
			dropped["extended attribute "+name]++
		}
	}
	return kept
}

// plainPath gives the path below the image's root, without a leading slash; "" is the root itself.
func plainPath(name string) (string, error) {
	if slices.Contains(strings.Split(name, "/"), "..") {
		return "", fmt.Errorf("path %q leaves the image: %w", name, ErrHostile)
	}
	if strings.ContainsRune(name, 0) {
		return "", fmt.Errorf("path %q holds a zero byte: %w", name, ErrHostile)
	}
	return strings.TrimPrefix(path.Clean("/"+name), "/"), nil
}

// imagePath is plainPath with etc moved to usr/etc.
func imagePath(name string, derived bool) (string, error) {
	p, err := plainPath(name)
	if err != nil {
		return "", err
	}
	top, rest, _ := strings.Cut(p, "/")
	switch {
	case top == "etc" || p == whiteoutPrefix+"etc":
		return "usr/" + p, nil
	case derived:
		return p, nil
	case top == "sysroot" && strings.HasPrefix(rest, "ostree/"), top == "ostree" && strings.HasPrefix(rest, "repo/"):
		return "", fmt.Errorf("path %q: %w", name, ErrEncapsulated)
	}
	return p, nil
}

// dropReason names the directory whose content has no place in a deployment, or "".
func dropReason(p string) string {
	top, rest, _ := strings.Cut(p, "/")
	bare := strings.TrimPrefix(top, whiteoutPrefix)
	switch bare {
	case "run", "tmp", "proc", "sys", "dev", "var":
		if rest != "" || bare != top {
			return "below /" + bare
		}
	}
	return ""
}
