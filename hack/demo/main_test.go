package main

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	notFull = "leave out INSTALL_DIR and BASE_IMAGE, or leave out FULL=1"
	notSoft = "leave out TINY, FULL and BASE_IMAGE, or leave out SOFT=1"
)

// TestRefusedAtOnce: make says it before it sets up and builds for minutes. It only prints what it would do here.
func TestRefusedAtOnce(t *testing.T) {
	for _, c := range []struct {
		name    string
		args    []string
		refused string
	}{
		{"own directory", []string{"INSTALL_DIR=cluster", "FULL=1"}, notFull},
		{"own base", []string{"BASE_IMAGE=oci:base", "FULL=1"}, notFull},
		{"soft reboots of busybox", []string{"SOFT=1", "TINY=1"}, notSoft},
		{"soft reboots of another base", []string{"SOFT=1", "BASE_IMAGE=oci:base"}, notSoft},
		{"soft reboots in the whole life", []string{"SOFT=1", "FULL=1"}, notSoft},
		{"soft reboots with an own directory", []string{"SOFT=1", "INSTALL_DIR=cluster"}, ""},
		{"tiny, Day 1 alone", []string{"TINY=1"}, ""},
		{"the whole life", []string{"FULL=1", "KEEP=1"}, ""},
		{"tiny, the whole life", []string{"TINY=1", "FULL=1"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := exec.Command("make", append([]string{"-C", "../..", "-n", "demo"}, c.args...)...).CombinedOutput()
			if c.refused == "" {
				require.NoError(t, err, string(out))
				return
			}
			require.Error(t, err, string(out))
			assert.Contains(t, string(out), c.refused)
			assert.NotContains(t, string(out), "setup.sh")
		})
	}
}
