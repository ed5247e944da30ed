package configlayer

import (
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"dayone.dev/dayone/build/basetree"
	"dayone.dev/dayone/manifests/machineconfig"
)

const (
	defaultFileMode = 0o644
	// specialBits are set-uid, set-gid and sticky: Ignition before 2.14 and configs before 3.4 drop them.
	specialBits = 0o7000
)

// local are trees that belong to the machine and not to the image: nothing in them changes with an image. Symlinks of
// the base (/home, /root, /opt, /srv, /usr/local of most ostree systems) lead to /var and are followed before this list
// is asked.
var local = [...]string{"/var", "/home", "/root", "/opt", "/srv", "/mnt", "/tmp", "/run", "/boot", "/proc", "/sys",
	"/dev"}

func below(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

// forbidden are files in /etc that every machine changes itself: the image's would never reach it or would be a trap.
var forbidden = map[string]bool{
	"/etc/passwd": true, "/etc/group": true, "/etc/shadow": true, "/etc/gshadow": true, "/etc/subuid": true,
	"/etc/subgid": true, "/etc/passwd-": true, "/etc/group-": true, "/etc/shadow-": true, "/etc/gshadow-": true,
	"/etc/machine-id": true,
}

// node is a file, directory or link of the config at its place in the base.
type node struct {
	in, path, resolved string
	// inImage is false for a path in a directory that belongs to the machine.
	inImage bool
	// base is what the base has there, if exists.
	base   basetree.Entry
	exists bool
	// overwrite replaces what the base has.
	overwrite bool
	config    types.Node
}

// locate resolves a path of the config against the base; it fails when the path is refused.
func locate(s source, in string, n types.Node, d *draft) (node, bool) {
	out := node{in: in, path: n.Path, config: n, overwrite: isTrue(n.Overwrite)}
	var err error
	if out.resolved, err = s.tree.Resolve(n.Path); err != nil {
		d.refuse("path", in, "remove the loop of symlinks from the base image", "%s: %v", n.Path, err)
		return out, false
	}
	out.base, out.exists = s.tree.Lookup(out.resolved)
	for _, dir := range local {
		if below(out.resolved, dir) {
			return out, true
		}
	}
	switch {
	case forbidden[out.resolved]:
		d.refuse("machine-file", in,
			"users and groups belong in passwd.users and passwd.groups; the machine id is the machine's own",
			"every machine changes %s: it cannot come from an image", n.Path)
	case below(out.resolved, "/etc"):
		out.inImage = true
		return out, true
	case below(out.resolved, "/usr"):
		d.refuse("usr-read-only", in, "put the file into the Containerfile (COPY), or write it below /etc",
			"%s lies in /usr, which is read only on the machine that Ignition writes to on first boot", n.Path)
	default:
		d.refuse("top-level", in, "write below /etc, or below /usr in the Containerfile",
			"%s lies outside /etc, /usr and /var: an ostree system drops it", n.Path)
	}
	return out, false
}

// keeps reports whether the config changes what the base has there and does not replace it.
func (n node) keeps() bool { return n.exists && !n.overwrite }

// owner gives the numeric owner: what the config names, else the one of an entry that is kept, else root.
func (n node) owner(ids accounts, kept basetree.Entry, d *draft) (uid, gid int, ok bool) {
	user, group := n.config.User, n.config.Group
	uid, okUser := numericID("user", n.in, user.ID, user.Name, kept.UID, ids.users, d)
	gid, okGroup := numericID("group", n.in, group.ID, group.Name, kept.GID, ids.groups, d)
	return uid, gid, okUser && okGroup
}

// directoryAway refuses a directory of the base in the place of a file or link.
func (n node) directoryAway(what string, d *draft) bool {
	if n.exists && n.base.Kind == basetree.Directory {
		d.refuse("directory-to-file", n.in, "choose another path",
			"%s is a directory in the base: a merge of /etc cannot make a %s of it", n.path, what)
		return false
	}
	return true
}

// leave keeps a node out of the image.
func (n node) leave(what string, d *draft) {
	d.placed(n.resolved, firstBoot, what+" in a directory that belongs to the machine")
	d.warn("first-boot", n.in,
		"a change to it reaches only machines that are installed again; use /etc or /usr for what an image shall change",
		"%s stays out of the image: Ignition writes it on first boot only", n.path)
}

func directories(s source, d *draft) {
	for i, dir := range s.config.Storage.Directories {
		if n, ok := locate(s, index("storage.directories", i), dir.Node, d); ok {
			directory(s, n, dir.Mode, d)
		}
	}
}

func directory(s source, n node, configured *int, d *draft) {
	kept := basetree.Entry{Mode: defaultDirMode}
	if n.keeps() {
		kept = n.base
	}
	uid, gid, ok := n.owner(s.ids, kept, d)
	if !ok {
		return
	}
	mode := kept.Mode
	if n.keeps() && kept.Kind != basetree.Directory {
		d.refuse("exists-in-base", n.in, "set overwrite: true or choose another path",
			"%s exists in the base and is no directory", n.path)
		return
	}
	if configured != nil {
		mode = int64(*configured)
	}
	switch {
	case !n.inImage:
		d.tmpfiles = append(d.tmpfiles, tmpfilesLine("d", n.resolved, fmt.Sprintf("%04o %d %d - -", mode, uid, gid)))
		d.placed(n.resolved, inTmpfiles, "a directory that belongs to the machine, made on every boot if it is missing")
	case n.exists && n.overwrite && len(s.tree.Under(n.resolved)) > 0:
		d.refuse("overwrite-directory", n.in, "remove its files in the Containerfile",
			"%s is not empty in the base and overwrite would delete what is in it", n.path)
	default:
		d.add(n.in, n.path, Entry{Path: n.resolved, Kind: basetree.Directory, Mode: mode, UID: uid, GID: gid})
	}
}

func files(s source, d *draft) {
	for i, f := range s.config.Storage.Files {
		n, ok := locate(s, index("storage.files", i), f.Node, d)
		switch {
		case ok && n.inImage:
			file(s, n, f, d)
		case ok:
			n.leave("a file", d)
		}
	}
}

func file(s source, n node, f types.File, d *draft) {
	kept := basetree.Entry{Mode: defaultFileMode}
	if n.keeps() {
		kept = n.base
	}
	uid, gid, ok := n.owner(s.ids, kept, d)
	if !ok {
		return
	}
	entry := Entry{Path: n.resolved, Kind: basetree.Regular, Mode: kept.Mode, UID: uid, GID: gid}
	if n.keeps() {
		if n.base.Kind != basetree.Regular || f.Contents.Source != nil {
			d.refuse("exists-in-base", n.in, "set overwrite: true",
				"%s exists in the base and overwrite is not set: Ignition stops the first boot over it", n.path)
			return
		}
		content, kept := s.tree.Content(n.resolved)
		if !kept {
			d.refuse("base-content", n.in, "set the whole content",
				"%s keeps the base's content, which is too large to be read", n.path)
			return
		}
		entry.Content = append([]byte{}, content...)
	}
	if !n.directoryAway("file", d) {
		return
	}
	for k, r := range append([]types.Resource{f.Contents}, f.Append...) {
		data, err := contents(r)
		if err != nil {
			badContents(n, k, err, d)
			return
		}
		entry.Content = append(entry.Content, data...)
	}
	if f.Mode != nil {
		entry.Mode = int64(*f.Mode)
	}
	if entry.Mode&specialBits != 0 {
		d.warn("special-mode", n.in+".mode", "leave set-uid, set-gid and sticky out of configs",
			"%s has mode %04o: Ignition drops these bits for configs older than 3.4, and the file then counts as config drift",
			n.path, entry.Mode)
	}
	d.add(n.in, n.path, entry)
}

func badContents(n node, k int, err error, d *draft) {
	in := n.in + ".contents"
	if k > 0 {
		in = fmt.Sprintf("%s.append[%d]", n.in, k-1)
	}
	if errors.Is(err, machineconfig.ErrRemote) {
		d.refuse("remote-source", in+".source", "embed the content as a data URL",
			"%s: %v: an image must not depend on what a server returns later", n.path, err)
		return
	}
	d.refuse("contents", in, "fix the content", "%s: %v", n.path, err)
}

func links(s source, d *draft) {
	for i, l := range s.config.Storage.Links {
		n, ok := locate(s, index("storage.links", i), l.Node, d)
		if !ok {
			continue
		}
		uid, gid, ok := n.owner(s.ids, basetree.Entry{}, d)
		if !ok {
			continue
		}
		target := ""
		if l.Target != nil {
			target = *l.Target
		}
		switch {
		case isTrue(l.Hard) && !n.inImage:
			n.leave("a hard link", d)
		case isTrue(l.Hard):
			hardLink(s, n, target, d)
		case !n.inImage:
			d.tmpfiles = append(d.tmpfiles, tmpfilesLine("L", n.resolved, "- - - - "+tmpfilesArgument(target)))
			d.placed(n.resolved, inTmpfiles,
				"a link in a directory that belongs to the machine, made on every boot if it is missing")
		case n.keeps() && (n.base.Kind != basetree.Symlink || n.base.Link != target):
			d.refuse("exists-in-base", n.in, "set overwrite: true",
				"%s exists in the base and overwrite is not set: Ignition stops the first boot over it", n.path)
		case n.directoryAway("link", d):
			d.add(n.in, n.path, Entry{Path: n.resolved, Kind: basetree.Symlink, Link: target, UID: uid, GID: gid})
		}
	}
}

// hardLink copies the target: after a merge of /etc both are files of their own anyway, and they compare equal.
func hardLink(s source, n node, target string, d *draft) {
	at, err := s.tree.Resolve(target)
	if err != nil {
		d.refuse("path", n.in, "choose another target", "%s: %v", target, err)
		return
	}
	if e, ok := d.entries[at]; ok && e.Kind == basetree.Regular {
		e.Path = n.resolved
		d.add(n.in, n.path, e)
		return
	}
	known, ok := s.tree.Lookup(at)
	content, kept := s.tree.Content(at)
	if !ok || !kept || known.Kind != basetree.Regular {
		d.refuse("hard-link", n.in, "link to a file of the same config, or use a symbolic link",
			"%s is a hard link to %s, which is neither in the config nor a small file in the base's /etc", n.path, target)
		return
	}
	d.add(n.in, n.path, Entry{Path: n.resolved, Kind: basetree.Regular, Mode: known.Mode, UID: known.UID, GID: known.GID,
		Content: content})
}

func isTrue(b *bool) bool { return b != nil && *b }

// contents gives a resource's bytes as Ignition would write them: decoded, unpacked, compared with verification.hash
// (Ignition specification: sha512-HEX or sha256-HEX, of the unpacked content).
func contents(r types.Resource) ([]byte, error) {
	data, err := machineconfig.Contents(r)
	if err != nil || r.Verification.Hash == nil {
		return data, err
	}
	kind, want, _ := strings.Cut(*r.Verification.Hash, "-")
	var got string
	switch kind {
	case "sha512":
		sum := sha512.Sum512(data)
		got = hex.EncodeToString(sum[:])
	case "sha256":
		sum := sha256.Sum256(data)
		got = hex.EncodeToString(sum[:])
	default:
		return nil, fmt.Errorf("unknown hash function %q", kind)
	}
	if got != strings.ToLower(want) {
		return nil, fmt.Errorf("content has hash %s-%s, the config says %s", kind, got, *r.Verification.Hash)
	}
	return data, nil
}
