package openshift_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/openshift"
)

// A gate that could not be looked at may be shut.
func TestNftablesReportsFailure(t *testing.T) {
	program := func(script string) openshift.Nftables {
		file := filepath.Join(t.TempDir(), "nft")
		require.NoError(t, os.WriteFile(file, []byte("#!/bin/sh\n"+script+"\n"), 0o700))
		return openshift.Nftables{Program: file}
	}
	assert.ErrorContains(t, program("echo out of memory >&2; exit 1").Open(t.Context()), "out of memory")
	assert.Error(t, openshift.Nftables{Program: "/nowhere/nft"}.Open(t.Context()))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	assert.ErrorIs(t, program("exit 0").Open(ended), context.Canceled)
}
