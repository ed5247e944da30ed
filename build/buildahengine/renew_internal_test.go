package buildahengine

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"dayone.dev/dayone/build"
)

func TestRepacked(t *testing.T) {
	base := []build.BaseLayer{{Digest: "blob 1", DiffID: "content 1"}, {Digest: "blob 2", DiffID: "content 2"}}
	cases := []struct {
		name              string
		contents, digests []string
		repacked          bool
	}{
		{"kept", []string{"content 1", "content 2", "new"}, []string{"blob 1", "blob 2", "other"}, false},
		{"first repacked", []string{"content 1", "content 2"}, []string{"other", "blob 2"}, true},
		{"last repacked", []string{"content 1", "content 2"}, []string{"blob 1", "other"}, true},
		{"another base", []string{"content 3", "content 2"}, []string{"other", "other"}, false},
		{"part of the base", []string{"content 1"}, []string{"blob 1"}, false},
		{"no layer", nil, nil, false},
		{"fewer blobs", []string{"content 1", "content 2"}, []string{"blob 1"}, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			err := repacked(base, c.contents, c.digests)
			if c.repacked {
				assert.ErrorIs(t, err, errRepacked)
			} else {
				assert.NoError(t, err)
			}
		})
	}
}
