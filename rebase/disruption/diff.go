package disruption

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/manifests/postconfig"
)

// Kind is what part of a config changed.
type Kind string

// The kinds of changes.
const (
	KindFile      Kind = "file"
	kindUnit      Kind = "unit"
	kindSSHKey    Kind = "sshkey"
	kindOS        Kind = "os"
	kindImage     Kind = "image"
	kindDirectory Kind = "directory"
	kindLink      Kind = "link"
	// kindOther is content of Ignition that only a first boot applies: disks, filesystems, users other than core and their
	// like.
	kindOther Kind = "other"
)

// Change is one difference between what a node has and what it is to have.
type Change struct {
	// Kind is what part of the config it is in.
	Kind Kind `json:"kind"`
	// Name is the path, the unit or the field.
	Name string `json:"name"`
	// What is "added", "removed" or what changed, such as "contents, mode".
	What string `json:"what"`
	// Actions are what it makes necessary.
	Actions []Action `json:"actions"`
	// Rule is the one that applies; absent: none does.
	Rule *Rule `json:"rule,omitempty"`
	// Why says in words why these actions.
	Why string `json:"why"`
	// Mirrors are what changes in the meaning of registries.conf.
	Mirrors []MirrorChange `json:"mirrors,omitempty"`
}

// side is one of the two configs, in a form that can be compared.
type side struct {
	spec      mcfgv1.MachineConfigSpec
	config    ign35.Config
	files     map[string]ign35.File
	units     map[string]ign35.Unit
	templates Policies
}

func read(mc *mcfgv1.MachineConfig) (side, error) {
	s := side{spec: mc.Spec}
	var err error
	if s.config, err = machineconfig.ParseRendered3(mc.Spec.Config.Raw); err != nil {
		return s, fmt.Errorf("read rendered config %s: %w", mc.Name, err)
	}
	owners, err := postconfig.Decode(mc.Annotations)
	if err != nil {
		return s, fmt.Errorf("read rendered config %s: %w", mc.Name, err)
	}
	s.templates = Policies{Files: owners.Files, Units: owners.Units}
	s.files = make(map[string]ign35.File, len(s.config.Storage.Files))
	for _, f := range s.config.Storage.Files {
		s.files[f.Path] = f
	}
	s.units = make(map[string]ign35.Unit, len(s.config.Systemd.Units))
	for _, u := range s.config.Systemd.Units {
		s.units[u.Name] = u
	}
	return s, nil
}

// keys gives the keys of both maps, sorted.
func keys[V any](a, b map[string]V) []string {
	out := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(out)
	return slices.Compact(out)
}

// presence says whether something was added or removed; empty: it is on both sides.
func presence(before, after bool) string {
	switch {
	case !before:
		return "added"
	case !after:
		return "removed"
	}
	return ""
}

// fileChange says what differs between two files on the node; the empty string: nothing.
func fileChange(before, after ign35.File) (string, error) {
	var words []string
	equal, err := sameContents(before.Contents, after.Contents)
	if err != nil {
		return "", fmt.Errorf("compare file %s: %w", after.Path, err)
	}
	if !equal || !reflect.DeepEqual(before.Append, after.Append) {
		words = append(words, "contents")
	}
	if value(before.Mode, defaultMode) != value(after.Mode, defaultMode) {
		words = append(words, "mode")
	}
	if !reflect.DeepEqual(before.User, after.User) || !reflect.DeepEqual(before.Group, after.Group) {
		words = append(words, "owner")
	}
	return list(words), nil
}

// defaultMode is a file's mode where none is given. Source: Ignition's configuration specification.
const defaultMode = 0o644

func value[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

// sameContents compares what is written, whatever the encoding; remote contents are equal when they are named equally.
func sameContents(a, b ign35.Resource) (bool, error) {
	if reflect.DeepEqual(a, b) {
		return true, nil
	}
	before, err := machineconfig.Contents(a)
	if errors.Is(err, machineconfig.ErrRemote) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	after, err := machineconfig.Contents(b)
	if errors.Is(err, machineconfig.ErrRemote) {
		return false, nil
	}
	return bytes.Equal(before, after), err
}

// unitChange says what differs between two units; the empty string: nothing.
func unitChange(before, after ign35.Unit) string {
	var words []string
	if value(before.Contents, "") != value(after.Contents, "") {
		words = append(words, "contents")
	}
	if value(before.Enabled, false) != value(after.Enabled, false) || (before.Enabled == nil) != (after.Enabled == nil) {
		words = append(words, "enablement")
	}
	if value(before.Mask, false) != value(after.Mask, false) {
		words = append(words, "mask")
	}
	if !maps.Equal(dropins(before), dropins(after)) {
		words = append(words, "drop-ins")
	}
	return list(words)
}

func dropins(u ign35.Unit) map[string]string {
	out := make(map[string]string, len(u.Dropins))
	for _, d := range u.Dropins {
		out[d.Name] = value(d.Contents, "")
	}
	return out
}

func list(words []string) string {
	if len(words) == 0 {
		return ""
	}
	out := words[0]
	for _, w := range words[1:] {
		out += ", " + w
	}
	return out
}

// coreUser is the one user whose keys and password hash an agent may change. Source: MCO's daemon.
const coreUser = "core"

// users splits what differs in passwd: keys and password hash of core, and anything else.
func users(before, after ign35.Config) (keys string, others []string) {
	was, is := passwd(before), passwd(after)
	var words []string
	if !slices.Equal(was[coreUser].SSHAuthorizedKeys, is[coreUser].SSHAuthorizedKeys) {
		words = append(words, "authorized keys")
	}
	if value(was[coreUser].PasswordHash, "") != value(is[coreUser].PasswordHash, "") {
		words = append(words, "password hash")
	}
	for name := range maps.Keys(was) {
		if _, found := is[name]; !found && name != coreUser {
			others = append(others, "user "+name)
		}
	}
	for name, u := range is {
		o := was[name]
		if name == coreUser {
			o.SSHAuthorizedKeys, u.SSHAuthorizedKeys, o.PasswordHash, u.PasswordHash, o.Name = nil, nil, nil, nil, u.Name
		}
		if !reflect.DeepEqual(o, u) {
			others = append(others, "user "+name)
		}
	}
	if !reflect.DeepEqual(before.Passwd.Groups, after.Passwd.Groups) {
		others = append(others, "groups")
	}
	slices.Sort(others)
	return list(words), others
}

func passwd(c ign35.Config) map[string]ign35.PasswdUser {
	out := make(map[string]ign35.PasswdUser, len(c.Passwd.Users))
	for _, u := range c.Passwd.Users {
		out[u.Name] = u
	}
	return out
}
