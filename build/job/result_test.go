package job_test

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build/job"
)

// TestThePageHasEachFieldOfTheMessage holds the table of docs/operators/builds.md against the message.
func TestThePageHasEachFieldOfTheMessage(t *testing.T) {
	raw, err := os.ReadFile("../../docs/operators/builds.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(raw), "The termination message is JSON")
	require.True(t, found)
	table, _, found := strings.Cut(rest, "\n### ")
	require.True(t, found)
	for i := range reflect.TypeFor[job.Result]().NumField() {
		name, _, _ := strings.Cut(reflect.TypeFor[job.Result]().Field(i).Tag.Get("json"), ",")
		assert.Contains(t, table, "`"+name+"`")
	}
}
