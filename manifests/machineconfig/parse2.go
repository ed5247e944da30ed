package machineconfig

import (
	"fmt"
	"slices"

	"github.com/coreos/ign-converter/translate/v23tov30"
	v22 "github.com/coreos/ignition/config/v2_2"
	ign22 "github.com/coreos/ignition/config/v2_2/types"
	v23 "github.com/coreos/ignition/config/v2_3"
	t31 "github.com/coreos/ignition/v2/config/v3_1/translate"
	t32 "github.com/coreos/ignition/v2/config/v3_2/translate"
	t33 "github.com/coreos/ignition/v2/config/v3_3/translate"
	t34 "github.com/coreos/ignition/v2/config/v3_4/translate"
	t35 "github.com/coreos/ignition/v2/config/v3_5/translate"
	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"

	"dayone.dev/dayone/installconfig/report"
)

// parse2 reads a config of 2.0, 2.1 or 2.2 and brings it to 3.5.
func parse2(raw []byte) (ign35.Config, error) {
	old, found, err := v22.Parse(raw)
	if err != nil {
		var r report.Report
		for _, e := range found.Entries {
			if e.Kind.String() == "error" {
				r.Errorf(report.Finding{Rule: ruleInvalid, Next: "see the Ignition 2.2 specification"}, "%s", e.Message)
			}
		}
		if err := r.Err(); err != nil {
			return ign35.Config{}, err
		}
		return ign35.Config{}, refuse("", ruleInvalid, "see the Ignition 2.2 specification", "%s", err)
	}
	if old, err = unify2(old); err != nil {
		return ign35.Config{}, err
	}
	three, err := v23tov30.Translate(v23.Translate(old), map[string]string{"root": "/"})
	if err != nil {
		return ign35.Config{}, refuse("", ruleIgnition2, "write the config for 3.4.0", "cannot be converted to version 3: %s",
			err)
	}
	return t35.Translate(t34.Translate(t33.Translate(t32.Translate(t31.Translate(three))))), nil
}

// unify2 makes entries unique, which 3.x demands and 2.x did not: the last one of a name counts, drop-ins and keys of
// the earlier ones are added, lists come out in reverse order. That is MCO's order, which the rendered name depends on.
func unify2(c ign22.Config) (ign22.Config, error) {
	var files []ign22.File
	paths := map[string]bool{}
	for _, f := range slices.Backward(c.Storage.Files) {
		if !paths[f.Path] {
			paths[f.Path] = true
			files = append(files, f)
		}
	}
	c.Storage.Files = files
	c.Systemd.Units = unifyUnits2(c.Systemd.Units)
	for i, u := range c.Passwd.Users {
		if u.Name != "core" {
			return c, refuse(fmt.Sprintf("passwd.users[%d].name", i), ruleIgnition2,
				"only the user core can be set in a 2.x config; write the config for 3.4.0",
				"user %q is not supported", u.Name)
		}
	}
	if n := len(c.Passwd.Users); n > 0 {
		last := c.Passwd.Users[n-1]
		last.SSHAuthorizedKeys = unifyKeys2(c.Passwd.Users)
		c.Passwd.Users = []ign22.PasswdUser{last}
	}
	return c, nil
}

func unifyUnits2(units []ign22.Unit) []ign22.Unit {
	var out []ign22.Unit
	index := map[string]int{}
	for _, u := range slices.Backward(units) {
		if u.Enable { // the 2.0 way to say enabled, gone in 3.x
			yes := true
			u.Enable, u.Enabled = false, &yes
		}
		at, twice := index[u.Name]
		if !twice {
			index[u.Name] = len(out)
			u.Dropins = append([]ign22.SystemdDropin(nil), u.Dropins...)
			out = append(out, u)
			continue
		}
		for _, d := range u.Dropins {
			if !hasDropin2(out[at].Dropins, d.Name) {
				out[at].Dropins = append(out[at].Dropins, d)
			}
		}
	}
	return out
}

func hasDropin2(dropins []ign22.SystemdDropin, name string) bool {
	for _, d := range dropins {
		if d.Name == name {
			return true
		}
	}
	return false
}

// unifyKeys2 lists the keys of the last entry first, each key once.
func unifyKeys2(users []ign22.PasswdUser) []ign22.SSHAuthorizedKey {
	var out []ign22.SSHAuthorizedKey
	seen := map[ign22.SSHAuthorizedKey]bool{}
	for _, user := range slices.Backward(users) {
		for _, k := range user.SSHAuthorizedKeys {
			if !seen[k] {
				seen[k] = true
				out = append(out, k)
			}
		}
	}
	return out
}
