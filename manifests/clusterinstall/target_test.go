package clusterinstall

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestWorkThatEndsEarly says what was waited for, why it ended and what to do then.
func TestWorkThatEndsEarly(t *testing.T) {
	for _, c := range []struct {
		name, want string
		limit      time.Duration
		interrupt  bool
	}{
		{"interrupted", "ns/dayone-builder has not ended yet (interrupted; the same command goes on where it ended)",
			time.Hour, true},
		{"too late", "ns/dayone-builder has not ended yet (gave up after 1s; the same command goes on where it ended)", 0,
			false},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			target := Target{Limit: c.limit, Out: t.Output()}
			err := target.within(ctx, func(ctx context.Context) error {
				return target.await(ctx, "ns/dayone-builder", func(context.Context) (bool, string, error) {
					if c.interrupt {
						interrupt()
					}
					return false, "has not ended yet", nil
				})
			})
			assert.EqualError(t, err, c.want)
		})
	}
}
