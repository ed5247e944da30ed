package deploy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Rollback makes the deployment before the booted one the next boot's, with its own /etc as it was left. A staged one
// is discarded. Where it is the next boot's already nothing is done.
func (d *OSTree) Rollback(ctx context.Context) error {
	entries, err := d.entries(ctx)
	if err != nil {
		return err
	}
	booted := slices.IndexFunc(entries, func(e statusEntry) bool { return e.booted })
	there := booted >= 0 && booted+1 < len(entries)
	for i, e := range entries {
		if e.staged || e.pending && there { // without another one, what is pending is what to go back to
			if _, err := d.admin(ctx, "undeploy", strconv.Itoa(i)); err != nil {
				return err
			}
			return d.Rollback(ctx) // the others have new numbers
		}
	}
	if booted > 0 && !there {
		return nil
	}
	if !there {
		return &Fault{Class: ClassInternal, Op: "roll back", Err: errors.New("there is no deployment to go back to"),
			Next: "stage another image"}
	}
	// set-default came with ostree 2023.6; before, the order of the boot entries is changed as a boot menu's user would.
	help, err := runOSTree(ctx, "admin", "--help")
	if err != nil {
		return err
	}
	if strings.Contains(help, "set-default") {
		_, err = d.admin(ctx, "set-default", strconv.Itoa(booted+1))
		return err
	}
	return d.preferEntry(d.deploymentDir(entries[booted+1]))
}

// preferEntry gives the boot entry of a deployment the highest version. The new file is complete before the old one
// goes, so that a power cut leaves one of them.
func (d *OSTree) preferEntry(deployment string) error {
	all, err := d.bootEntries()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(b bootEntry) bool { return b.deployment == deployment })
	if i < 0 {
		return &Fault{Class: ClassInternal, Op: "roll back", Err: fmt.Errorf("no boot entry leads to %s", deployment),
			Next: "look at /boot/loader/entries"}
	}
	if i == 0 {
		return nil
	}
	old, version := all[i], all[0].version+1
	lines := slices.Clone(old.lines)
	for n, line := range lines {
		if strings.HasPrefix(line, "version ") {
			lines[n] = "version " + strconv.Itoa(version)
		}
	}
	name := strings.Replace(filepath.Base(old.file), fmt.Sprintf("ostree-%d", old.version),
		fmt.Sprintf("ostree-%d", version), 1)
	if name == filepath.Base(old.file) {
		return &Fault{Class: ClassInternal, Op: "roll back",
			Err:  fmt.Errorf("boot entry %s is not named as ostree names them", old.file),
			Next: "choose the older entry in the boot menu"}
	}
	if err := writeSynced(filepath.Join(filepath.Dir(old.file), name), strings.Join(lines, "\n")+"\n"); err != nil {
		return fmt.Errorf("roll back: %w", err)
	}
	if err := os.Remove(old.file); err != nil {
		return fmt.Errorf("roll back: %w", err)
	}
	return nil
}

func writeSynced(path, content string) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".dayone-") // no .conf: boot loaders do not see it
	if err != nil {
		return err
	}
	_, err = tmp.WriteString(content)
	err = errors.Join(err, tmp.Chmod(0o644), tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return nil
}
