package program

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/rebase/deploy"
)

func TestFaults(t *testing.T) {
	for _, c := range []struct {
		name  string
		class deploy.Class
	}{
		{"error: Target image does not have ostree.bootable label", deploy.ClassNotBootable},
		{"error: pinging container registry r: tls: x509: certificate signed by unknown authority", deploy.ClassUntrusted},
		{"x509: certificate has expired or is not yet valid", deploy.ClassExpired},
		{"reading manifest: unauthorized: authentication required", deploy.ClassUnauthorized},
		{"reading manifest sha256:aa in r: manifest unknown", deploy.ClassNotFound},
		{"dial tcp 192.168.77.1:5000: connect: connection refused", deploy.ClassUnreachable},
		{"error: Importing: failed to invoke method FinishPipe: corrupted blob, expecting sha256:aa", deploy.ClassCorrupted},
		{"Requesting bearer token: invalid status code from registry 403 (Forbidden)", deploy.ClassForbidden},
		{"requested access to the resource is denied", deploy.ClassForbidden},
		{"open /etc/containers/certs.d/r/ca.crt: permission denied", deploy.ClassConfig},
		{"reading manifest sha256:aa in r: received unexpected HTTP status: 500 Internal Server Error", deploy.ClassRegistry},
		{"error: Failed to find kernel in /usr/lib/modules, /usr/lib/ostree-boot or /boot", deploy.ClassNoKernel},
		{"(Mirrors also failed: [m/os@sha256:aa: reading manifest sha256:aa in m/os: manifest unknown]): r/os@sha256:aa: " +
			"dial tcp [::1]:53: connect: connection refused", deploy.ClassNotFound},
		{"write: No space left on device", deploy.ClassDiskFull},
		{"error: Updates and deployments are driven by Zincati (zincati.service)", deploy.ClassConfig},
		{"something else", deploy.ClassInternal},
	} {
		assert.Equal(t, c.class, deploy.ClassOf(programFault("rpm-ostree "+
			"rebase", c.name, errors.New("exit status 1"))), c.name)
	}
}

// The programs are scripts in a PATH of their own: nothing else may be found.
func TestRebootEndedByShutdown(t *testing.T) {
	for _, c := range []struct {
		name  string
		fails bool
	}{{"kill -TERM $$", false}, {"kill -KILL $$", true}, {"exit 1", true},
		{"exit 0", false}, {`[ "$SYSTEMCTL_SKIP_AUTO_SOFT_REBOOT" = 1 ]`, false}} {
		dir := t.TempDir()
		for _, name := range []string{"systemctl", "reboot"} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+c.name+"\n"), 0o755))
		}
		t.Setenv("PATH", dir)
		err := Reboot(t.Context())
		assert.Equal(t, c.fails, err != nil, "%s: %v", c.name, err)
	}
}
