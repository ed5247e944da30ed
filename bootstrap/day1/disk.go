package day1

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
)

// buildDir keeps the builds' storage below the state directory.
const buildDir = "build"

// CheckDisk compares what builds may take with what is free, before anything large is copied to this host. Less than
// the user's own limit is refused; less than the default one, which few images need, is logged. A run that goes on with
// builds of an earlier process has taken its room already.
func CheckDisk(o Options, limits installconfig.Build) error {
	if _, err := os.Stat(o.Path(buildDir)); err == nil {
		return nil
	}
	var fileSystem unix.Statfs_t
	if err := unix.Statfs(o.StateDir, &fileSystem); err != nil {
		return fmt.Errorf("look at the state directory's file system: %w", err)
	}
	const mebibyte = 1 << 20
	free := installconfig.Size(fileSystem.Bavail * uint64(fileSystem.Bsize) / mebibyte * mebibyte)
	if free >= limits.Disk {
		return nil
	}
	low := report.Finding{Severity: report.Error, File: installconfig.FileName,
		Path: installconfig.Field + ".build.disk", Rule: "low-disk",
		Message: fmt.Sprintf("%s are free at %s, and builds may take %s", free, o.StateDir, limits.Disk),
		Next:    "free or add disk space, give another --state-dir, or lower build.disk"}
	if limits.DiskChosen() {
		return low
	}
	o.Log.WithField("path", o.StateDir).Warn(low.Error())
	return nil
}
