package connect

import (
	"context"
	"errors"
	"net/http"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fails is a way to an API server that has one error.
type fails struct{ error }

// RoundTrip is http.RoundTripper's.
func (f fails) RoundTrip(*http.Request) (*http.Response, error) { return nil, f.error }

// TestUnreached: an API server that is silent is not reached; a user who stops asking, or whose credentials cannot be
// made, has another trouble.
func TestUnreached(t *testing.T) {
	stopped, stop := context.WithCancel(t.Context())
	stop()
	for _, c := range []struct {
		name string
		ctx  context.Context
		err  error
		want bool
	}{
		{"silent", t.Context(), os.ErrDeadlineExceeded, true},
		{"no credentials", t.Context(), errors.New("getting credentials: exec: not found"), false},
		{"stopped", stopped, os.ErrDeadlineExceeded, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := http.NewRequestWithContext(c.ctx, http.MethodGet, "https://api.test", http.NoBody)
			require.NoError(t, err)
			_, err = dialer{fails{c.err}}.RoundTrip(r)
			require.ErrorIs(t, err, c.err)
			assert.Equal(t, c.want, errors.As(err, new(dialError)))
		})
	}
}
