package disruption

import (
	"reflect"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"

	"dayone.dev/dayone/manifests/machineconfig"
)

// effectOfMCO is the plan of MCO's daemon, by its own rules: it compares the configs as they are written, knows no
// owners' rules but those in the MachineConfiguration, and boots for every other image. Source: MCO, pkg/daemon.
func effectOfMCO(in Input, before, after side) Plan {
	e := &effect{Input: in, before: before, after: after}
	e.filesOfMCO()
	e.unitsOfMCO()
	e.passwdOfMCO()
	e.storageOfMCO()
	e.os()
	if e.before.spec.FIPS != e.after.spec.FIPS {
		e.cannot(kindOther, "fips")
	}
	p := Plan{Changes: e.changes, Impossible: e.impossible, Stage: e.Image != ImageSame,
		Steps: inOrderOfMCO(e.changes, e.Reverts)}
	p.Level = level(p)
	p.Live = e.Layered && len(p.Changes) > 0 && p.Level < LevelReboot
	return p
}

func (e *effect) filesOfMCO() {
	for _, name := range keys(e.before.files, e.after.files) {
		was, had := e.before.files[name]
		is, has := e.after.files[name]
		what := presence(had, has)
		if what == "" && !reflect.DeepEqual(was, is) {
			if what, _ = fileChange(was, is); what == "" {
				what = "written in another way"
			}
		}
		if what == "" {
			continue
		}
		c := Change{Kind: KindFile, Name: name, What: what}
		if r, found := closest(e.Policies.Files, name); found {
			c.apply(r, "policy for "+r.Name)
			c.specialOfMCO(e.before.files[registriesConf], e.after.files[registriesConf])
		} else {
			c.reboot("no policy covers this path")
		}
		e.changes = append(e.changes, c)
	}
}

// specialOfMCO resolves Special: CRI-O is reloaded, and the node drained when registries.conf changed unsafely.
func (c *Change) specialOfMCO(was, is ign35.File) {
	for i, a := range c.Actions {
		if a.Type != Special {
			continue
		}
		c.Actions[i] = Action{Type: Reload, Service: "crio.service"}
		before, errBefore := machineconfig.Contents(was.Contents)
		after, errAfter := machineconfig.Contents(is.Contents)
		why := "its contents are not inline"
		if errBefore == nil && errAfter == nil {
			why = unsafeForMCO(before, after)
		}
		if why == "" {
			c.Why += "; no drain: every image keeps its source"
			continue
		}
		c.Actions = append(c.Actions, Action{Type: Drain})
		c.Why += "; drain because images could come from elsewhere: " + why
	}
}

func (e *effect) unitsOfMCO() {
	for _, name := range keys(e.before.units, e.after.units) {
		was, had := e.before.units[name]
		is, has := e.after.units[name]
		what := presence(had, has)
		if what == "" && !reflect.DeepEqual(was, is) {
			if what = unitChange(was, is); what == "" {
				what = "written in another way"
			}
		}
		if what == "" {
			continue
		}
		c := Change{Kind: kindUnit, Name: name, What: what}
		if r, found := e.Policies.unit(name); found {
			c.apply(r, "policy for this unit")
		} else {
			c.reboot("no policy covers this unit")
		}
		e.changes = append(e.changes, c)
	}
}

func (e *effect) passwdOfMCO() {
	was, is := e.before.config.Passwd, e.after.config.Passwd
	if reflect.DeepEqual(was, is) {
		return
	}
	c := Change{Kind: kindSSHKey, Name: coreUser, What: "changed", Actions: []Action{}}
	if what, _ := users(e.before.config, e.after.config); what != "" {
		c.What = what
	}
	if e.Policies.SSHKey != nil {
		c.apply(*e.Policies.SSHKey, "policy for SSH keys")
	}
	e.changes = append(e.changes, c)
	if !reflect.DeepEqual(was.Groups, is.Groups) {
		e.cannot(kindOther, "groups")
	}
	if reflect.DeepEqual(was.Users, is.Users) {
		return
	}
	for _, u := range is.Users {
		rest := u
		rest.Name, rest.SSHAuthorizedKeys, rest.PasswordHash = "", nil, nil
		if u.Name != coreUser || len(u.SSHAuthorizedKeys) == 0 && u.PasswordHash == nil ||
			!reflect.DeepEqual(rest, ign35.PasswdUser{}) {
			e.cannot(kindOther, "user "+u.Name)
		}
	}
}

// storageOfMCO compares what MCO refuses to change on a node that is there.
func (e *effect) storageOfMCO() {
	was, is := e.before.config, e.after.config
	for _, o := range []struct {
		name    string
		was, is any
	}{
		{"directories", was.Storage.Directories, is.Storage.Directories},
		{"disks", was.Storage.Disks, is.Storage.Disks}, {"filesystems", was.Storage.Filesystems, is.Storage.Filesystems},
		{"raid", was.Storage.Raid, is.Storage.Raid}, {"ignition.kernelArguments", was.KernelArguments, is.KernelArguments},
	} {
		if !sameOrEmpty(o.was, o.is) && !e.Policies.FirstBootOnly.covers(o.name) {
			e.cannot(kindOther, o.name)
		}
	}
	if len(is.Storage.Links) > 0 && !reflect.DeepEqual(was.Storage.Links, is.Storage.Links) {
		e.cannot(kindLink, "links")
	}
	for _, f := range is.Storage.Files {
		if len(f.Append) > 0 {
			e.cannot(kindOther, "appending to "+f.Path)
		}
	}
}
