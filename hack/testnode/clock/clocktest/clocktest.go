package clocktest

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// Set is a time of the time package by a wall clock that was set so far ahead, in whole seconds, or back; what is
// measured between two such times stays. The package has no function for it: a Time that carries both begins with the
// wall clock's seconds, 30 bits up (Go, time.Time). It is checked here that this is so still.
func Set(t testing.TB, right time.Time, by time.Duration) time.Time {
	t.Helper()
	set := right
	*(*uint64)(unsafe.Pointer(&set)) += uint64(int64(by/time.Second)) << 30
	require.Equal(t, by, set.Round(0).Sub(right.Round(0)), "the wall clock")
	require.Zero(t, set.Sub(right), "what has passed")
	return set
}
