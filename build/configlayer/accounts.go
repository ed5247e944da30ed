package configlayer

import (
	"bufio"
	"bytes"
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"dayone.dev/dayone/build/basetree"
)

const sysusersPath = "/usr/lib/sysusers.d/50-dayone-config.conf"

// accounts are the numeric ids that names have on every machine: those of the base and those that the config fixes.
type accounts struct {
	users, groups map[string]int
	// base tells which of them the base has itself.
	baseUsers, baseGroups map[string]bool
}

func readAccounts(tree *basetree.Tree, passwd types.Passwd) accounts {
	a := accounts{users: map[string]int{"root": 0}, groups: map[string]int{"root": 0},
		baseUsers: map[string]bool{"root": true}, baseGroups: map[string]bool{"root": true}}
	for _, dir := range []string{"/usr/lib/", "/etc/"} { // nss-altfiles: /etc wins
		readIDs(tree, dir+"passwd", a.users, a.baseUsers)
		readIDs(tree, dir+"group", a.groups, a.baseGroups)
	}
	for _, u := range passwd.Users {
		if u.UID != nil && !a.baseUsers[u.Name] {
			a.users[u.Name] = *u.UID
		}
	}
	for _, g := range passwd.Groups {
		if g.Gid != nil && !a.baseGroups[g.Name] {
			a.groups[g.Name] = *g.Gid
		}
	}
	return a
}

// readIDs reads name:x:id lines.
func readIDs(tree *basetree.Tree, p string, ids map[string]int, known map[string]bool) {
	content, _ := tree.Content(p)
	lines := bufio.NewScanner(bytes.NewReader(content))
	for lines.Scan() {
		fields := strings.Split(lines.Text(), ":")
		if len(fields) < 3 {
			continue
		}
		if id, err := strconv.Atoi(fields[2]); err == nil {
			ids[fields[0]], known[fields[0]] = id, true
		}
	}
}

// owner gives the numeric owner of a node. A name must have the same number on every machine, or the file could never
// match.
func (c *compiler) owner(in string, n types.Node) (uid, gid int, ok bool) {
	uid, okUser := c.id(in+".user", "user", n.User.ID, n.User.Name, c.accounts.users)
	gid, okGroup := c.id(in+".group", "group", n.Group.ID, n.Group.Name, c.accounts.groups)
	return uid, gid, okUser && okGroup
}

func (c *compiler) id(in, kind string, id *int, name *string, known map[string]int) (int, bool) {
	switch {
	case id != nil:
		return *id, true
	case name == nil || *name == "":
		return 0, true
	}
	if n, ok := known[*name]; ok {
		return n, true
	}
	c.refuse("owner-name", in, "give the numeric id, or give the "+kind+" a fixed id in passwd",
		"the %s %q has no fixed id in the base or the config", kind, *name)
	return 0, false
}

// users turns accounts into sysusers.d: the passwd files themselves are the machine's own and an image's would never
// arrive.
func (c *compiler) users(passwd types.Passwd) {
	var lines []string
	for i, g := range passwd.Groups {
		lines = append(lines, c.group(index("passwd.groups", i), g)...)
	}
	for i, u := range passwd.Users {
		lines = append(lines, c.user(index("passwd.users", i), u)...)
	}
	if len(lines) == 0 {
		return
	}
	c.add("passwd", sysusersPath, Entry{Path: sysusersPath, Kind: basetree.Regular, Mode: defaultFileMode,
		Content: []byte(strings.Join(lines, "\n") + "\n")})
}

func (c *compiler) group(in string, g types.PasswdGroup) []string {
	switch {
	case c.accounts.baseGroups[g.Name]:
		return nil
	case g.ShouldExist != nil && !*g.ShouldExist:
		c.placed("group "+g.Name, FirstBoot, "an image cannot remove a group")
		return nil
	}
	id := "-"
	if g.Gid != nil {
		id = strconv.Itoa(*g.Gid)
	}
	c.placed("group "+g.Name, Sysusers, "made on the first boot of an image that names it")
	return []string{fmt.Sprintf("g %s %s", g.Name, id)}
}

func (c *compiler) user(in string, u types.PasswdUser) []string {
	if len(u.SSHAuthorizedKeys) > 0 {
		c.placed("SSH keys of "+u.Name, FirstBoot, "a home directory belongs to the machine")
		c.warn("first-boot", in+".sshAuthorizedKeys", "the agent on the node keeps them up to date later",
			"SSH keys of %s stay out of the image: Ignition writes them on first boot", u.Name)
	}
	if u.PasswordHash != nil && *u.PasswordHash != "" {
		c.placed("password of "+u.Name, FirstBoot, "passwords are never in an image")
	}
	if u.ShouldExist != nil && !*u.ShouldExist {
		c.placed("user "+u.Name, FirstBoot, "an image cannot remove a user")
		return nil
	}
	lines := c.memberships(u)
	if c.accounts.baseUsers[u.Name] {
		return lines
	}
	c.placed("user "+u.Name, Sysusers, "made on the first boot of an image that names it")
	return append([]string{c.userLine(in, u)}, lines...)
}

func (c *compiler) userLine(in string, u types.PasswdUser) string {
	id := "-"
	if u.UID != nil {
		id = strconv.Itoa(*u.UID)
		if u.PrimaryGroup != nil && *u.PrimaryGroup != "" {
			id += ":" + *u.PrimaryGroup
		}
	} else {
		c.warn("user-id", in+".uid", "give the user a uid", "user %s has no uid: machines may give it different ones", u.Name)
	}
	home, shell := "/home/"+u.Name, "-"
	if u.HomeDir != nil && *u.HomeDir != "" {
		home = *u.HomeDir
	}
	if u.Shell != nil && *u.Shell != "" {
		shell = *u.Shell
	} else if u.System == nil || !*u.System {
		shell = "/bin/bash" // useradd's default on the systems that Ignition supports; sysusers' own is nologin
	}
	gecos := ""
	if u.Gecos != nil {
		gecos = *u.Gecos
	}
	return fmt.Sprintf("u %s %s %s %s %s", u.Name, id, quoted(gecos), home, shell)
}

func (c *compiler) memberships(u types.PasswdUser) []string {
	groups := make([]string, 0, len(u.Groups))
	for _, g := range u.Groups {
		groups = append(groups, fmt.Sprintf("m %s %s", u.Name, string(g)))
	}
	sort.Strings(groups)
	return groups
}

// quoted is a field of sysusers.d: "-" stands for empty.
func quoted(s string) string {
	if s == "" {
		return "-"
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%").Replace(s) + `"`
}
