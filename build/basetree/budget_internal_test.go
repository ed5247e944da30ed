package basetree

import (
	"archive/tar"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestWhatAPathTakes: names, texts of links, contents and paths without any of them are all taken from the budget.
func TestWhatAPathTakes(t *testing.T) {
	long := strings.Repeat("a", 90)
	cases := []struct {
		name   string
		header tar.Header
	}{
		{"a long name", tar.Header{Name: "usr/" + long, Typeflag: tar.TypeReg}},
		{"a long link", tar.Header{Name: "usr/a", Typeflag: tar.TypeSymlink, Linkname: long}},
		{"a content", tar.Header{Name: "etc/a", Typeflag: tar.TypeReg, Size: 90}},
		{"a whiteout", tar.Header{Name: "usr/.wh." + long, Typeflag: tar.TypeReg}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var archive strings.Builder
			w := tar.NewWriter(&archive)
			require.NoError(t, w.WriteHeader(&c.header))
			_, err := w.Write([]byte(long)[:c.header.Size])
			require.NoError(t, err)
			require.NoError(t, w.Close())
			read := func(held int64) error {
				_, err := readLayer(t.Context(), func(context.Context) (io.ReadCloser, error) {
					return io.NopCloser(strings.NewReader(archive.String())), nil
				}, newBudget(held), 0, nil)
				return err
			}
			require.ErrorIs(t, read(entryCost+80), ErrUnsafe)
			assert.NoError(t, read(2*entryCost+200))
		})
	}
}
