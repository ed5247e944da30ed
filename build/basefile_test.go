package build_test

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/buildtest"
	"dayone.dev/dayone/registry/registrytest"
)

func TestBaseFile(t *testing.T) {
	const file = "/usr/bin/dayone-registry"
	hash := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return hex.EncodeToString(sum[:])
	}
	for _, c := range []struct {
		name string
		base buildtest.Base
		want string
	}{
		{"no such file", buildtest.Base{Files: map[string]string{"/usr/bin/other": "x"}}, ""},
		{"a file", buildtest.Base{Files: map[string]string{file: "one"}}, hash("one")},
		{"of an ostree commit", buildtest.Base{Files: map[string]string{file: "two"}, Encapsulated: true}, hash("two")},
		{"a symbolic link", buildtest.Base{Links: map[string]string{file: "other"}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			reg := registrytest.Start(t)
			from := buildtest.Push(t, reg, c.base)
			r := buildtest.Request(t, reg, from, "")
			b := builder(t)
			job := build.BaseJob{Base: r.Base, Platform: r.Platform, Registry: r.Registry}
			for range 2 { // with the tree to be read, and with the kept one
				sum, err := b.BaseFile(t.Context(), job, file)
				require.NoError(t, err)
				assert.Equal(t, c.want, sum)
			}
		})
	}
}
