package day1

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"dayone.dev/dayone/installconfig/report"
)

const (
	// hostFile names in a state directory the host that it belongs to.
	hostFile = "host"
	// machineIDFile identifies an installation of an operating system (machine-id(5)).
	machineIDFile = "/etc/machine-id"
	// machineIDLength is that of a machine ID in hexadecimal digits; before the first boot the file has other words.
	machineIDLength = 32
)

// networkFileSystems are those on which another host can see the state directory, by the magic numbers of statfs(2).
// Overlay mounts, which builds need, have no upper directory there.
func networkFileSystems() map[int64]string {
	return map[int64]string{unix.NFS_SUPER_MAGIC: "NFS", unix.SMB_SUPER_MAGIC: "SMB", unix.SMB2_SUPER_MAGIC: "SMB",
		unix.CIFS_SUPER_MAGIC: "SMB", unix.CEPH_SUPER_MAGIC: "Ceph", unix.AFS_SUPER_MAGIC: "AFS",
		unix.CODA_SUPER_MAGIC: "Coda", unix.OCFS2_SUPER_MAGIC: "OCFS2"}
}

// checkPlace refuses a state directory on a file system, by its magic number, that builds and one host's state cannot
// be on.
func checkPlace(stateDir string, magic int64) error {
	name, ok := networkFileSystems()[magic]
	if !ok {
		return nil
	}
	return report.Finding{Severity: report.Error, File: stateDir, Rule: "state-on-network",
		Message: "it is on a network file system (" + name + "): images cannot be built there, and another host could " +
			"change what the nodes run",
		Next: "give a --state-dir on a disk of this host"}
}

// belongToHost gives a new state directory to this host, and refuses a copy of another's: two hosts with one identity
// would both tell nodes what to run. A host without an ID, which no file names, accepts every one.
func belongToHost(stateDir, machineID string) error {
	id, err := hostID(machineID)
	if err != nil || id == "" {
		return err
	}
	file := filepath.Join(stateDir, hostFile)
	owner, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		if err := renameio.WriteFile(file, []byte(id+"\n"), 0o600); err != nil {
			return fmt.Errorf("write the name of this host: %w", err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("read which host the state directory is of: %w", err)
	}
	if string(bytes.TrimSpace(owner)) == id {
		return nil
	}
	return report.Finding{Severity: report.Error, File: file, Rule: "state-of-another-host",
		Message: "this state directory was copied from another host, which has the same keys and images and may still serve",
		Next: "if that host is gone for good, remove this file and start again: this host goes on where it stopped; " +
			"otherwise give another --state-dir"}
}

// hostID is derived from the machine ID, which machine-id(5) asks not to show to others; "" without one.
func hostID(file string) (string, error) {
	raw, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read the machine's ID: %w", err)
	}
	raw = bytes.TrimSpace(raw)
	if len(raw) != machineIDLength {
		return "", nil
	}
	h := hmac.New(sha256.New, raw)
	h.Write([]byte("dayone state directory"))
	return hex.EncodeToString(h.Sum(nil)), nil
}
