package hostfiles

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
)

// owner gives the numeric ids of a file's user and group; root where none is named.
func (h Host) owner(n ign35.Node) (uid, gid int, err error) {
	var user, group string
	if n.User.ID != nil {
		uid = *n.User.ID
	} else if n.User.Name != nil {
		user = *n.User.Name
	}
	if n.Group.ID != nil {
		gid = *n.Group.ID
	} else if n.Group.Name != nil {
		group = *n.Group.Name
	}
	if user == "" && group == "" {
		return uid, gid, nil
	}
	lookup := h.Lookup
	if lookup == nil {
		lookup = h.lookup
	}
	u, g, err := lookup(user, group)
	if err != nil {
		return 0, 0, err
	}
	if user != "" {
		uid = u
	}
	if group != "" {
		gid = g
	}
	return uid, gid, nil
}

// lookup reads the node's own tables, not those of the agent's container.
func (h Host) lookup(user, group string) (uid, gid int, err error) {
	if user != "" {
		if uid, err = h.id("passwd", user); err != nil {
			return 0, 0, err
		}
	}
	if group != "" {
		gid, err = h.id("group", group)
	}
	return uid, gid, err
}

// id finds a name in etc/TABLE, or in usr/lib/TABLE, where ostree hosts have the system's own (nss-altfiles).
func (h Host) id(table, name string) (int, error) {
	for _, dir := range []string{"etc", "usr/lib"} {
		f, err := os.Open(filepath.Join(h.Root, dir, table))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("look up %s: %w", name, err)
		}
		id, found := scan(f, name)
		if err := f.Close(); err != nil {
			return 0, fmt.Errorf("look up %s: %w", name, err)
		}
		if found {
			return id, nil
		}
	}
	return 0, fmt.Errorf("the node has no %q in %s", name, table)
}

// scan finds NAME:x:ID:… Source: passwd(5), group(5).
func scan(f *os.File, name string) (int, bool) {
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Split(lines.Text(), ":")
		if len(fields) < 3 || fields[0] != name {
			continue
		}
		if id, err := strconv.Atoi(fields[2]); err == nil {
			return id, true
		}
	}
	return 0, false
}
