package machineconfig

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/coreos/go-systemd/v22/unit"
	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"

	"dayone.dev/dayone/installconfig/report"
)

// Rules of the findings about names.
const (
	rulePath        = "path"
	ruleUnitName    = "unit-name"
	ruleUnitInstall = "unit-install"
)

// Limits of Linux, in bytes (limits.h: NAME_MAX, and PATH_MAX without the NUL at its end).
const (
	maxName = 255
	maxPath = 4095
)

// Names finds paths and names in a config that no machine can hold or that lead out of their folder. Paths in findings
// count from the config, for example systemd.units[0].name. A finding is an error, but for what the machine's systemd
// only passes over: that is a warning.
func Names(config ign35.Config) []report.Finding {
	var out report.Report
	for i, f := range config.Storage.Files {
		checkPath(f.Path, fmt.Sprintf("storage.files[%d].path", i), &out)
	}
	for i, d := range config.Storage.Directories {
		checkPath(d.Path, fmt.Sprintf("storage.directories[%d].path", i), &out)
	}
	for i, l := range config.Storage.Links {
		checkPath(l.Path, fmt.Sprintf("storage.links[%d].path", i), &out)
		if l.Target != nil {
			checkPath(*l.Target, fmt.Sprintf("storage.links[%d].target", i), &out)
		}
	}
	for i, u := range config.Systemd.Units {
		at := fmt.Sprintf("systemd.units[%d]", i)
		checkUnitName(u.Name, at+".name", &out)
		checkInstall(u.Contents, u.Name, at+".contents", &out)
		for k, d := range u.Dropins {
			in := fmt.Sprintf("%s.dropins[%d]", at, k)
			checkFileName(d.Name, in+".name", &out)
			checkInstall(d.Contents, u.Name, in+".contents", &out)
		}
	}
	return out.Findings
}

// checkPath refuses what Ignition's own check of a path lets through.
func checkPath(p, in string, out *report.Report) {
	at := report.Finding{Path: in, Rule: rulePath, Next: "choose another path"}
	switch name, bad := breaks(p); {
	case bad:
		out.Errorf(at, "%s has %s in it", short(p), name)
	case len(p) > maxPath:
		out.Errorf(at, "%s has %d bytes; Linux takes %d", short(p), len(p), maxPath)
	default:
		for part := range strings.SplitSeq(p, "/") {
			if len(part) > maxName {
				out.Errorf(at, "the name %s has %d bytes; Linux takes %d between two slashes", short(part), len(part), maxName)
			}
		}
	}
}

// checkFileName refuses the name of a file that leads out of its folder or cannot be stored.
func checkFileName(name, in string, out *report.Report) bool {
	at := report.Finding{Path: in, Rule: ruleUnitName, Next: "write the name of a file in systemd's folder, without /"}
	switch kind, bad := breaks(name); {
	case strings.Contains(name, "/"):
		out.Errorf(at, "%s has a / in it and leads out of systemd's folder", short(name))
	case bad:
		out.Errorf(at, "%s has %s in it", short(name), kind)
	case len(name) > maxName:
		out.Errorf(at, "%s has %d bytes; Linux takes %d", short(name), len(name), maxName)
	default:
		return true
	}
	return false
}

// checkUnitName adds systemd's own rules: it passes over files of other names.
func checkUnitName(name, in string, out *report.Report) {
	if !checkFileName(name, in, out) {
		return
	}
	at := report.Finding{Path: in, Rule: ruleUnitName,
		Next: `use letters, digits and :-_.\@ (systemd-escape makes such names)`}
	if strings.HasPrefix(name, "@") || strings.ContainsFunc(name, func(r rune) bool { return !inUnitName(r) }) {
		out.Warnf(at, "systemd takes no unit of the name %s", short(name))
	}
}

// inUnitName says whether systemd allows a character in the name of a unit (systemd.unit(5)).
func inUnitName(r rune) bool {
	return r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune(`:-_.\@`, r))
}

// checkInstall reports names in an [Install] section that lead out of systemd's folder: systemctl refuses to enable
// such a unit. What is no unit file has a finding of its own.
func checkInstall(text *string, name, in string, out *report.Report) {
	if text == nil {
		return
	}
	options, err := unit.DeserializeOptions(strings.NewReader(*text))
	if err != nil {
		return
	}
	names := []string{"Alias", "Also", "WantedBy", "RequiredBy", "UpheldBy", "DefaultInstance"}
	for _, o := range options {
		if o.Section != "Install" || !slices.Contains(names, o.Name) {
			continue
		}
		for word := range strings.FieldsSeq(strings.ReplaceAll(o.Value, `"`, "")) {
			if StaysInside(word) {
				continue
			}
			at := report.Finding{Path: in, Rule: ruleUnitInstall, Next: "write names of units there, without /"}
			out.Warnf(at, "unit %s: %s=%s is no name of a unit: no machine enables it", short(name), o.Name, short(word))
		}
	}
}

// StaysInside says whether a name in an [Install] section, or a link that follows from it, is one in systemd's folder:
// without a slash, or in a folder of wanted or required units, which Alias= may name (systemd, install.c).
func StaysInside(name string) bool {
	if strings.ContainsFunc(name, unicode.IsControl) {
		return false
	}
	dir, file := path.Split(name)
	if len(file) > maxName || file == "" || file == "." || file == ".." {
		return false
	}
	dir = strings.TrimSuffix(dir, "/")
	return dir == "" && !strings.HasPrefix(name, "/") || !strings.Contains(dir, "/") && len(dir) <= maxName &&
		slices.Contains([]string{".wants", ".requires", ".upholds"}, path.Ext(dir)) && path.Ext(dir) != dir
}

// breaks names the first character that ends a name early: a NUL ends it for the kernel, a line break for the lists of
// files that programs keep. Every other control character, a tab too, is one that Linux stores and MCO accepts.
func breaks(text string) (string, bool) {
	i := strings.IndexAny(text, "\x00\n")
	switch {
	case i < 0:
		return "", false
	case text[i] == 0:
		return "a NUL character", true
	}
	return "a line break", true
}

// short quotes a text and cuts it where it is too long for a message.
func short(text string) string {
	const most = 60
	if len(text) <= most {
		return fmt.Sprintf("%q", text)
	}
	return fmt.Sprintf("%q...", text[:most])
}
