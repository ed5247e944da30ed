package hostfiles

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
)

// vendorUnits is where an OS image has its own units, and links that enable them.
const vendorUnits = "/usr/lib/systemd/system"

// notEnabled names units that a config enables and that nothing starts: a person has disabled them, or their links
// never came. Units whose text is not the config's are left out, and such as nothing could enable.
func notEnabled(root string, c ign35.Config) ([]Mismatch, error) {
	var wanted []string
	for _, u := range c.Systemd.Units {
		masked := u.Mask != nil && *u.Mask
		if u.Enabled != nil && *u.Enabled && !masked && u.Contents != nil && installs(*u.Contents) {
			wanted = append(wanted, u.Name)
		}
	}
	if len(wanted) == 0 {
		return nil, nil
	}
	linked := map[string]bool{}
	for _, dir := range []string{unitDir, vendorUnits} {
		err := unitLinks(root, dir, func(link, text string) { // by their own name and by their target's
			linked[path.Base(link)], linked[path.Base(text)] = true, true
		})
		if err != nil {
			return nil, err
		}
	}
	var out []Mismatch
	for _, unit := range wanted {
		if !linked[unit] {
			out = append(out, Mismatch{Path: path.Join(unitDir, unit), Why: NotEnabled})
		}
	}
	return out, nil
}

// NotEnabled is why a unit is unlike its config although its file is not: systemctl enable mends it.
const NotEnabled = "is not enabled"

// installs tells whether systemctl enable would make a link for a unit. Source: systemd.unit(5), [Install].
func installs(text string) bool {
	section := false
	for s := bufio.NewScanner(strings.NewReader(text)); s.Scan(); {
		line := strings.TrimSpace(s.Text())
		if strings.HasPrefix(line, "[") {
			section = line == "[Install]"
		}
		for _, key := range []string{"WantedBy", "RequiredBy", "UpheldBy", "Alias"} {
			if rest, ok := strings.CutPrefix(line, key); section && ok && len(strings.Trim(rest, " =")) > 0 {
				return true
			}
		}
	}
	return false
}

// unitLinks calls see for every link below a directory, with its path on the node and its text.
func unitLinks(root, dir string, see func(link, text string)) error {
	top := filepath.Join(root, dir)
	err := filepath.WalkDir(top, func(p string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || d.Type()&fs.ModeSymlink == 0 {
			return err
		}
		text, err := os.Readlink(p)
		if err != nil {
			return ignoreMissing(err)
		}
		see(path.Join(dir, strings.TrimPrefix(p, top)), text)
		return nil
	})
	if err != nil {
		return fmt.Errorf("list links of units: %w", err)
	}
	return nil
}

// Disable takes away the links below the unit directory that lead to a unit, as systemctl disable does, which cannot
// when the unit's file has gone already.
func Disable(root, unit string) error {
	on := true
	links, err := enablement(root, ign35.Config{Systemd: ign35.Systemd{Units: []ign35.Unit{{Name: unit, Enabled: &on}}}})
	if err != nil {
		return err
	}
	for _, p := range links {
		at := filepath.Join(root, p)
		if p == path.Join(unitDir, unit) {
			continue // The unit itself, as a mask or as a link, is not its enablement.
		}
		if err := os.Remove(at); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("disable %s: %w", unit, err)
		}
	}
	return nil
}

// enablement lists the links below the unit directory that lead to units which a config enables, whatever they are for.
func enablement(root string, c ign35.Config) ([]string, error) {
	enabled := map[string]bool{}
	for _, u := range c.Systemd.Units {
		if u.Enabled != nil && *u.Enabled {
			enabled[u.Name] = true
		}
	}
	var out []string
	err := unitLinks(root, unitDir, func(link, text string) {
		if enabled[path.Base(link)] || enabled[path.Base(text)] {
			out = append(out, link)
		}
	})
	return out, err
}
