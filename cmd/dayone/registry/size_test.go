package registry

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSize(t *testing.T) {
	for _, tc := range []struct {
		name string
		want int64 // -1 is refused
	}{
		{"0", 0}, {"1000", 1000}, {"200MiB", 200 << 20}, {"200Mi", 200 << 20}, {"2GB", 2e9}, {"1.5GiB", 3 << 29},
		{"", -1}, {"-1", -1}, {"5m", -1}, {"200 MiB", -1}, {"many", -1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var s size
			err := s.Set(tc.name)
			if tc.want < 0 {
				assert.ErrorContains(t, err, "is no size")
				return
			}
			assert.NoError(t, err)
			assert.Equal(t, tc.want, int64(s))
		})
	}
}
