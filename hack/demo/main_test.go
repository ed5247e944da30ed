package main

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestFullRefusesAtOnce: make says it before it sets up and builds for minutes. It only prints what it would do here.
func TestFullRefusesAtOnce(t *testing.T) {
	for _, c := range []struct {
		name    string
		args    []string
		refused bool
	}{
		{"own directory", []string{"INSTALL_DIR=cluster", "FULL=1"}, true},
		{"own base", []string{"BASE_IMAGE=oci:base", "FULL=1"}, true},
		{"tiny, Day 1 alone", []string{"TINY=1"}, false},
		{"the whole life", []string{"FULL=1", "KEEP=1"}, false},
		{"tiny, the whole life", []string{"TINY=1", "FULL=1"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := exec.Command("make", append([]string{"-C", "../..", "-n", "demo"}, c.args...)...).CombinedOutput()
			if !c.refused {
				require.NoError(t, err, string(out))
				return
			}
			require.Error(t, err, string(out))
			assert.Contains(t, string(out), "leave out INSTALL_DIR and BASE_IMAGE, or leave out FULL=1")
			assert.NotContains(t, string(out), "setup.sh")
		})
	}
}
