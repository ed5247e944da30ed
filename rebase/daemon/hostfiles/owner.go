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

// ownerOf gives the numeric ids of a file's user and group; root where the config names none.
func ownerOf(root string, n ign35.Node) (uid, gid int, err error) {
	switch {
	case n.User.ID != nil:
		uid = *n.User.ID
	case n.User.Name != nil && *n.User.Name != "":
		if uid, err = idOf(root, "passwd", *n.User.Name); err != nil {
			return 0, 0, err
		}
	}
	switch {
	case n.Group.ID != nil:
		gid = *n.Group.ID
	case n.Group.Name != nil && *n.Group.Name != "":
		if gid, err = idOf(root, "group", *n.Group.Name); err != nil {
			return 0, 0, err
		}
	}
	return uid, gid, nil
}

// idOf finds a name in the node's own etc/TABLE, not the agent's container's, or in usr/lib/TABLE, where ostree hosts
// have the system's own (nss-altfiles).
func idOf(root, table, name string) (int, error) {
	for _, dir := range []string{"etc", "usr/lib"} {
		f, err := os.Open(filepath.Join(root, dir, table))
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
