package machineconfig

import (
	"encoding/json"
	"path"
	"strings"

	"github.com/coreos/ignition/v2/config/shared/parse"
	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
)

// parsePlain reads what nearly every MachineConfig holds: files with inline contents and systemd units, which mean the
// same in all versions from 3.0 to 3.5. It says false for anything else and for anything that may be wrong, so the full
// parser decides there.
func parsePlain(raw []byte) (ign35.Config, bool) {
	var config ign35.Config
	if json.Unmarshal(raw, &config) != nil {
		return ign35.Config{}, false
	}
	switch config.Ignition.Version {
	case "3.0.0", "3.1.0", "3.2.0", "3.3.0", "3.4.0", Version:
	default:
		return ign35.Config{}, false
	}
	config.Ignition.Version = Version
	if !plainSections(&config) || !plainFiles(config.Storage.Files) || !plainUnits(config.Systemd.Units) {
		return ign35.Config{}, false
	}
	return config, true
}

// plainSections says whether the config has nothing but files and units, and no file where a unit's text will lie.
func plainSections(c *ign35.Config) bool {
	s, i := &c.Storage, &c.Ignition
	if s.Directories != nil || s.Disks != nil || s.Filesystems != nil || s.Links != nil || s.Luks != nil ||
		s.Raid != nil ||
		c.Passwd.Users != nil || c.Passwd.Groups != nil || c.KernelArguments.ShouldExist != nil ||
		c.KernelArguments.ShouldNotExist != nil {
		return false
	}
	if i.Config.Merge != nil || !zeroResource(&i.Config.Replace) || i.Proxy.HTTPProxy != nil ||
		i.Proxy.HTTPSProxy != nil ||
		i.Proxy.NoProxy != nil || i.Security.TLS.CertificateAuthorities != nil || i.Timeouts != (ign35.Timeouts{}) {
		return false
	}
	if len(c.Systemd.Units) > 0 {
		for n := range s.Files {
			if strings.HasPrefix(s.Files[n].Path, "/etc/systemd/system/") {
				return false
			}
		}
	}
	return true
}

func zeroResource(r *ign35.Resource) bool {
	return r.Compression == nil && r.HTTPHeaders == nil && r.Source == nil && r.Verification.Hash == nil
}

func plainFiles(files []ign35.File) bool {
	var seen map[string]struct{}
	if len(files) > 1 {
		seen = make(map[string]struct{}, len(files))
	}
	for i := range files {
		f := &files[i]
		if f.Append != nil || f.User != (ign35.NodeUser{}) || f.Group != (ign35.NodeGroup{}) ||
			f.Mode != nil && (*f.Mode < 0 || *f.Mode > maxFileMode) || !plainPath(f.Path) || !plainContents(f) {
			return false
		}
		if seen != nil {
			if _, twice := seen[f.Path]; twice {
				return false
			}
			seen[f.Path] = struct{}{}
		}
	}
	return true
}

// plainPath says whether p is absolute and clean.
func plainPath(p string) bool {
	return strings.HasPrefix(p, "/") && p != "/" && path.Clean(p) == p
}

// plainContents says whether the contents are inline, in base64 or without characters that a data URL must escape.
func plainContents(f *ign35.File) bool {
	c := &f.Contents
	if c.Source == nil || c.HTTPHeaders != nil || c.Verification.Hash != nil ||
		c.Compression != nil && *c.Compression != "" && *c.Compression != "gzip" {
		return false
	}
	head, body, ok := strings.Cut(*c.Source, ",")
	switch head {
	case "data:", "data:;base64", "data:text/plain;charset=utf-8;base64", "data:text/plain;base64":
	default:
		return false
	}
	if !ok {
		return false
	}
	if strings.HasSuffix(head, ";base64") {
		return plainBase64(body)
	}
	return plainEscaped(body)
}

func plainBase64(s string) bool {
	if len(s)%4 != 0 {
		return false
	}
	s = strings.TrimSuffix(strings.TrimSuffix(s, "="), "=")
	for i := 0; i < len(s); i++ {
		if c := s[i]; !alphanumeric(c) && c != '+' && c != '/' {
			return false
		}
	}
	return true
}

func alphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

func plainEscaped(s string) bool {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case alphanumeric(c), c == '-', c == '.', c == '_', c == '~':
		case c == '%' && i+2 < len(s) && hexDigit(s[i+1]) && hexDigit(s[i+2]):
			i += 2
		default:
			return false
		}
	}
	return true
}

func hexDigit(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func plainUnits(units []ign35.Unit) bool {
	seen := make(map[string]struct{}, len(units))
	for i := range units {
		u := &units[i]
		switch path.Ext(u.Name) {
		case ".service", ".socket", ".mount", ".target", ".path", ".timer":
		default:
			return false
		}
		if _, twice := seen[u.Name]; twice || !plainUnitText(u.Contents) || !plainDropins(u.Dropins) {
			return false
		}
		seen[u.Name] = struct{}{}
	}
	return true
}

func plainDropins(dropins []ign35.Dropin) bool {
	for i, d := range dropins {
		if path.Ext(d.Name) != ".conf" || !plainUnitText(d.Contents) {
			return false
		}
		for _, other := range dropins[:i] {
			if other.Name == d.Name {
				return false
			}
		}
	}
	return len(dropins) <= 16 // beyond that the full parser's check for duplicates is faster
}

func plainUnitText(text *string) bool {
	_, err := parse.ParseUnitContents(text)
	return err == nil
}
