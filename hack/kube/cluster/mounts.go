package cluster

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// inside is the cluster's directory as its own processes see it: short, as names of sockets must be.
const inside = "/run/dayone"

// mountProc shows the node's own processes. The mounts of a new namespace still pass on to this machine's until they
// are private.
func mountProc() error {
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	return nil
}

// mountNode gives the node directories of its own wherever its programs write outside theirs, so that nothing of it
// stays on this machine.
func mountNode(dir string) error {
	files, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open cluster's directory: %w", err)
	}
	defer unix.Close(files)
	// kubelet passes its mounts on to containerd.
	if err := unix.Mount("", "/", "", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("share mounts: %w", err)
	}
	for _, p := range []string{"/run", "/var/lib", "/var/log"} {
		if err := unix.Mount("tmpfs", p, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
			return fmt.Errorf("mount own %s: %w", p, err)
		}
	}
	if err := os.Mkdir(inside, 0o700); err != nil {
		return err
	}
	// By its descriptor: it may lie below one of the directories just hidden.
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", files), inside, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind cluster's directory: %w", err)
	}
	hosts := filepath.Join(inside, "hosts")
	text := "127.0.0.1 localhost\n" + NodeAddress + " " + NodeName + " " + RegistryHost + "\n"
	if err := os.WriteFile(hosts, []byte(text), 0o644); err != nil {
		return err
	}
	if err := unix.Mount(hosts, "/etc/hosts", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind /etc/hosts: %w", err)
	}
	return os.Mkdir(filepath.Join(inside, "tmp"), 0o700)
}
