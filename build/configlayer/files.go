package configlayer

import (
	"errors"
	"fmt"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"dayone.dev/dayone/build/basetree"
	"dayone.dev/dayone/manifests/machineconfig"
)

const (
	defaultFileMode = 0o644
	// specialBits are set-uid, set-gid and sticky: Ignition before 2.14 and configs before 3.4 drop them.
	specialBits = 0o7000
)

func (c *compiler) directories(list []types.Directory) {
	for i, d := range list {
		in := index("storage.directories", i)
		resolved, ok := c.destination(in, d.Path)
		if resolved == "" {
			continue
		}
		uid, gid, good := c.owner(in, d.Node)
		if !good {
			continue
		}
		mode := int64(defaultDirMode)
		known, exists := c.tree.Lookup(resolved)
		if exists && !isTrue(d.Overwrite) {
			if known.Kind != basetree.Directory {
				c.refuse("exists-in-base", in, "set overwrite: true or choose another path",
					"%s exists in the base and is no directory", d.Path)
				continue
			}
			mode = known.Mode
			uid, gid = keep(uid, known.UID, d.User.ID == nil && d.User.Name == nil), keep(gid, known.GID, d.Group.ID == nil &&
				d.Group.Name == nil)
		}
		if d.Mode != nil {
			mode = int64(*d.Mode)
		}
		if !ok {
			c.tmpfiles = append(c.tmpfiles, tmpfilesLine("d", resolved, fmt.Sprintf("%04o %d %d - -", mode, uid, gid)))
			c.placed(resolved, Tmpfiles, "a directory that belongs to the machine, made on every boot if it is missing")
			continue
		}
		if exists && isTrue(d.Overwrite) && len(c.tree.Under(resolved)) > 0 {
			c.refuse("overwrite-directory", in, "remove its files in the Containerfile",
				"%s is not empty in the base and overwrite would delete what is in it", d.Path)
			continue
		}
		c.add(in, d.Path, Entry{Path: resolved, Kind: basetree.Directory, Mode: mode, UID: uid, GID: gid})
	}
}

func keep(given, known int, unset bool) int {
	if unset {
		return known
	}
	return given
}

func (c *compiler) files(list []types.File) {
	for i, f := range list {
		in := index("storage.files", i)
		resolved, ok := c.destination(in, f.Path)
		if resolved == "" {
			continue
		}
		if !ok {
			c.firstBoot(in, f.Path, resolved, "a file")
			continue
		}
		c.file(in, f, resolved)
	}
}

func (c *compiler) file(in string, f types.File, resolved string) {
	uid, gid, ok := c.owner(in, f.Node)
	if !ok {
		return
	}
	entry := Entry{Path: resolved, Kind: basetree.Regular, Mode: defaultFileMode, UID: uid, GID: gid}
	known, exists := c.tree.Lookup(resolved)
	if exists && !isTrue(f.Overwrite) {
		if known.Kind != basetree.Regular || f.Contents.Source != nil {
			c.refuse("exists-in-base", in, "set overwrite: true",
				"%s exists in the base and overwrite is not set: Ignition stops the first boot over it", f.Path)
			return
		}
		content, have := c.tree.Content(resolved)
		if !have {
			c.refuse("base-content", in, "give the whole content", "%s keeps the base's content, which is too large to be read",
				f.Path)
			return
		}
		entry.Content = append([]byte{}, content...)
		entry.Mode = known.Mode
		entry.UID, entry.GID = keep(uid, known.UID, f.User.ID == nil && f.User.Name == nil),
			keep(gid, known.GID, f.Group.ID == nil && f.Group.Name == nil)
	}
	if exists && known.Kind == basetree.Directory {
		c.refuse("directory-to-file", in, "choose another path",
			"%s is a directory in the base: a merge of /etc cannot make a file of it", f.Path)
		return
	}
	for k, r := range append([]types.Resource{f.Contents}, f.Append...) {
		data, err := contents(r)
		if err != nil {
			c.badContents(in, f.Path, k, err)
			return
		}
		entry.Content = append(entry.Content, data...)
	}
	if f.Mode != nil {
		entry.Mode = int64(*f.Mode)
	}
	if entry.Mode&specialBits != 0 {
		c.warn("special-mode", in+".mode", "leave set-uid, set-gid and sticky out of configs",
			"%s has mode %04o: Ignition drops these bits for configs older than 3.4, and the file then counts as changed by hand", f.Path, entry.Mode)
	}
	c.add(in, f.Path, entry)
}

func (c *compiler) badContents(in, p string, k int, err error) {
	in += ".contents"
	if k > 0 {
		in = fmt.Sprintf("%s.append[%d]", in[:len(in)-len(".contents")], k-1)
	}
	if errors.Is(err, machineconfig.ErrRemote) {
		c.refuse("remote-source", in+".source", "embed the content as a data URL",
			"%s: %v: an image must not depend on what a server gives out later", p, err)
		return
	}
	c.refuse("contents", in, "mend the content", "%s: %v", p, err)
}

func (c *compiler) links(list []types.Link) {
	for i, l := range list {
		in := index("storage.links", i)
		resolved, ok := c.destination(in, l.Path)
		if resolved == "" {
			continue
		}
		uid, gid, good := c.owner(in, l.Node)
		if !good {
			continue
		}
		target := ""
		if l.Target != nil {
			target = *l.Target
		}
		switch {
		case isTrue(l.Hard) && !ok:
			c.firstBoot(in, l.Path, resolved, "a hard link")
		case isTrue(l.Hard):
			c.hardLink(in, l.Path, resolved, target)
		case !ok:
			c.tmpfiles = append(c.tmpfiles, tmpfilesLine("L", resolved, "- - - - "+tmpfilesArgument(target)))
			c.placed(resolved, Tmpfiles,
				"a link in a directory that belongs to the machine, made on every boot if it is missing")
		default:
			known, exists := c.tree.Lookup(resolved)
			same := known.Kind == basetree.Symlink && known.Link == target
			if exists && !same && !isTrue(l.Overwrite) {
				c.refuse("exists-in-base", in, "set overwrite: true",
					"%s exists in the base and overwrite is not set: Ignition stops the first boot over it", l.Path)
				continue
			}
			if exists && known.Kind == basetree.Directory {
				c.refuse("directory-to-file", in, "choose another path",
					"%s is a directory in the base: a merge of /etc cannot make a link of it", l.Path)
				continue
			}
			c.add(in, l.Path, Entry{Path: resolved, Kind: basetree.Symlink, Link: target, UID: uid, GID: gid})
		}
	}
}

// hardLink copies the target: after a merge of /etc both are files of their own anyway, and they compare equal.
func (c *compiler) hardLink(in, p, resolved, target string) {
	at, err := c.tree.Resolve(target)
	if err != nil {
		c.refuse("path", in, "choose another target", "%s: %v", target, err)
		return
	}
	if e, ok := c.entries[at]; ok && e.Kind == basetree.Regular {
		e.Path = resolved
		c.add(in, p, e)
		return
	}
	known, ok := c.tree.Lookup(at)
	content, have := c.tree.Content(at)
	if !ok || !have || known.Kind != basetree.Regular {
		c.refuse("hard-link", in, "link to a file of the same config, or use a symbolic link",
			"%s is a hard link to %s, which is neither in the config nor a small file in the base's /etc", p, target)
		return
	}
	c.add(in, p, Entry{Path: resolved, Kind: basetree.Regular, Mode: known.Mode, UID: known.UID, GID: known.GID,
		Content: content})
}

func isTrue(b *bool) bool { return b != nil && *b }
