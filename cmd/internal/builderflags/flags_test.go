package builderflags_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/cmd/internal/builderflags"
	"dayone.dev/dayone/installconfig/report"
)

func TestArgumentsOfABuilderReachItsOptions(t *testing.T) {
	f, err := builderflags.Parse("example.com/builder@sha256:1", []string{"--parallel=2", "--build-disk=20Gi",
		"--build-memory=3Gi"})
	require.NoError(t, err)
	o, err := f.Options("somewhere", "program/v1", report.NoLog())
	require.NoError(t, err)
	assert.Equal(t, 2, o.Parallel)
	assert.Equal(t, "20Gi", o.Job.WorkLimit.String())
	assert.Equal(t, "3Gi", o.Job.MemoryLimit.String())
	assert.Equal(t, "example.com/builder@sha256:1", o.Job.BuilderImage)
	assert.NotNil(t, o.Finder)
}

func TestWrongArgumentsOfABuilderAreRefused(t *testing.T) {
	for _, args := range [][]string{{"--paralel=2"}, {"--build-disk=much"}, {"--build-memory=much"},
		{"--build-memory=1Mi"}, {"--registry-ca=/does/not/exist"}} {
		f, err := builderflags.Parse("example.com/builder:1", args)
		if err == nil {
			_, err = f.Options("somewhere", "program/v1", report.NoLog())
		}
		assert.Error(t, err, args)
	}
	f, err := builderflags.Parse("", nil)
	require.NoError(t, err)
	_, err = f.Options("somewhere", "program/v1", report.NoLog())
	assert.ErrorContains(t, err, "builderImage")
}
