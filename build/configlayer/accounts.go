package configlayer

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"dayone.dev/dayone/build/basetree"
)

const sysusersPath = "/usr/lib/sysusers.d/50-dayone-config.conf"

// accounts are the numeric ids that names have on every machine: those of the base and those that the config fixes.
type accounts struct {
	users, groups map[string]int
	// baseUsers and baseGroups are those that the base has itself.
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
	for line := range strings.Lines(string(content)) {
		fields := strings.Split(strings.TrimRight(line, "\r\n"), ":")
		if len(fields) < 3 {
			continue
		}
		if id, err := strconv.Atoi(fields[2]); err == nil {
			ids[fields[0]], known[fields[0]] = id, true
		}
	}
}

// numericID gives a node's user or group: unset without a name. A name must have the same number on every machine, or
// the file could never match.
func numericID(kind, in string, id *int, name *string, unset int, known map[string]int, d *draft) (int, bool) {
	switch {
	case id != nil:
		return *id, true
	case name == nil:
		return unset, true
	case *name == "":
		return 0, true
	}
	if n, ok := known[*name]; ok {
		return n, true
	}
	d.refuse("owner-name", in+"."+kind, "set the numeric id, or set a fixed id of the "+kind+" in passwd",
		"the %s %q has no fixed id in the base or the config", kind, *name)
	return 0, false
}

// users turns accounts into sysusers.d: the passwd files are the machine's own, and an image's would never reach it.
func users(s source, d *draft) {
	var lines []string
	for _, g := range s.config.Passwd.Groups {
		lines = append(lines, group(s.ids, g, d)...)
	}
	for i, u := range s.config.Passwd.Users {
		lines = append(lines, user(s.ids, index("passwd.users", i), u, d)...)
	}
	if len(lines) > 0 {
		d.add("passwd", sysusersPath, textFile(sysusersPath, lines))
	}
}

// textFile is an entry with these lines.
func textFile(p string, lines []string) Entry {
	return Entry{Path: p, Kind: basetree.Regular, Mode: defaultFileMode, Content: []byte(strings.Join(lines, "\n") + "\n")}
}

func group(ids accounts, g types.PasswdGroup, d *draft) []string {
	switch {
	case ids.baseGroups[g.Name]:
		return nil
	case g.ShouldExist != nil && !*g.ShouldExist:
		d.placed("group "+g.Name, firstBoot, "an image cannot remove a group")
		return nil
	}
	id := "-"
	if g.Gid != nil {
		id = strconv.Itoa(*g.Gid)
	}
	d.placed("group "+g.Name, inSysusers, "made on the first boot of an image that names it")
	return []string{fmt.Sprintf("g %s %s", g.Name, id)}
}

func user(ids accounts, in string, u types.PasswdUser, d *draft) []string {
	if len(u.SSHAuthorizedKeys) > 0 {
		d.placed("SSH keys of "+u.Name, firstBoot, "a home directory belongs to the machine")
		d.warn("first-boot", in+".sshAuthorizedKeys", "the agent on the node keeps them up to date later",
			"SSH keys of %s stay out of the image: Ignition writes them on first boot", u.Name)
	}
	if value(u.PasswordHash) != "" {
		d.placed("password of "+u.Name, firstBoot, "passwords are never in an image")
	}
	if u.ShouldExist != nil && !*u.ShouldExist {
		d.placed("user "+u.Name, firstBoot, "an image cannot remove a user")
		return nil
	}
	lines := make([]string, 0, len(u.Groups))
	for _, g := range u.Groups {
		lines = append(lines, fmt.Sprintf("m %s %s", u.Name, string(g)))
	}
	slices.Sort(lines)
	if ids.baseUsers[u.Name] {
		return lines
	}
	d.placed("user "+u.Name, inSysusers, "made on the first boot of an image that names it")
	if u.UID == nil {
		d.warn("user-id", in+".uid", "set the user's uid", "user %s has no uid: machines may give it different ones", u.Name)
	}
	return append([]string{userLine(u)}, lines...)
}

func userLine(u types.PasswdUser) string {
	id := "-"
	if u.UID != nil {
		id = strconv.Itoa(*u.UID)
		if group := value(u.PrimaryGroup); group != "" {
			id += ":" + group
		}
	}
	shell := "/bin/bash" // useradd's default on the systems that Ignition supports; sysusers' own is nologin
	if isTrue(u.System) {
		shell = "-"
	}
	return fmt.Sprintf("u %s %s %s %s %s", u.Name, id, quoted(value(u.Gecos)), cmp.Or(value(u.HomeDir), "/home/"+u.Name),
		cmp.Or(value(u.Shell), shell))
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// quoted is a field of sysusers.d: "-" stands for empty.
func quoted(s string) string {
	if s == "" {
		return "-"
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%").Replace(s) + `"`
}
