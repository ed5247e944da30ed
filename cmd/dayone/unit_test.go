package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/cmd/internal/cli"
)

// TestPrintedUnit asks the real systemd whether it would take the unit.
func TestPrintedUnit(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		require.Empty(t, os.Getenv("CI"), "systemd-analyze is missing")
		t.Skip("needs systemd-analyze")
	}
	code, unit, stderr := dayone(t, "bootstrap", "--print-unit", "--dir", "my cluster", "--base", "oci:/var/b%1",
		"--kubeconfig", "admin.kubeconfig")
	require.Equal(t, cli.ExitOK, code, stderr)
	wd, err := os.Getwd()
	require.NoError(t, err)
	assert.Contains(t, unit, "\nWorkingDirectory="+wd+"\n")
	assert.Contains(t, unit, ` bootstrap --base=oci:/var/b%%1 "--dir=my cluster" --kubeconfig=admin.kubeconfig`+"\n")
	name := filepath.Join(t.TempDir(), "dayone-bootstrap.service")
	require.NoError(t, os.WriteFile(name, []byte(unit), 0o600))
	out, err := exec.Command("systemd-analyze", "verify", "--man=no", name).CombinedOutput()
	require.NoError(t, err, string(out))
	assert.NotContains(t, string(out), filepath.Base(name)+":")
}
