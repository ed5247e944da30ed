package program_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/cache"
	"dayone.dev/dayone/hack/program"
)

func TestBuildLinksOnce(t *testing.T) {
	t.Setenv(cache.Env, t.TempDir())
	t.Setenv("DAYONE_TEST_RUN", "")
	src := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(src, "go.mod"), []byte("module x.test\n\ngo 1.24\n"), 0o600))
	source := filepath.Join(src, "main.go")
	say := func(text string) {
		require.NoError(t, os.WriteFile(source, []byte("package main\n\nfunc main() { print(\""+text+"\") }\n"), 0o600))
	}
	linked := func() os.FileInfo {
		found, err := filepath.Glob(filepath.Join(os.Getenv(cache.Env), "program", "x.test-????????????????"))
		require.NoError(t, err)
		require.Len(t, found, 1)
		info, err := os.Stat(found[0])
		require.NoError(t, err)
		return info
	}
	to := filepath.Join(t.TempDir(), "x")
	build := func() string {
		require.NoError(t, program.Build(t.Context(), src, program.Options{Package: "x.test"}, to))
		out, err := exec.Command(to).CombinedOutput()
		require.NoError(t, err)
		return string(out)
	}
	say("one")
	assert.Equal(t, "one", build())
	first := linked()
	assert.Equal(t, "one", build())
	assert.True(t, os.SameFile(first, linked()), "it was linked again")
	say("two")
	assert.Equal(t, "two", build(), "a changed source is linked")
	require.NoError(t, os.WriteFile(source, []byte("no Go"), 0o600))
	err := program.Build(t.Context(), src, program.Options{Package: "x.test"}, to)
	require.ErrorContains(t, err, "main.go", "the compiler's words are in the error")
}

func TestBuildAsksOnceInARun(t *testing.T) {
	t.Setenv(cache.Env, t.TempDir())
	t.Setenv("DAYONE_TEST_RUN", "first")
	module := func() (dir string, say func(string)) {
		dir = t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module x.test\n\ngo 1.24\n"), 0o600))
		require.NoError(t, os.Mkdir(filepath.Join(dir, "below"), 0o700))
		return dir, func(text string) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"),
				[]byte("package main\n\nfunc main() { print(\""+text+"\") }\n"), 0o600))
		}
	}
	build := func(dir string) string {
		to := filepath.Join(t.TempDir(), "x")
		require.NoError(t, program.Build(t.Context(), dir, program.Options{Package: "x.test"}, to))
		out, err := exec.Command(to).CombinedOutput()
		require.NoError(t, err)
		return string(out)
	}
	src, say := module()
	say("one")
	require.Equal(t, "one", build(src))
	say("two")
	assert.Equal(t, "one", build(filepath.Join(src, "below")), "the same run, in another directory of the module")
	t.Setenv("DAYONE_TEST_RUN", "second")
	assert.Equal(t, "two", build(src), "the next run")
	other, sayOther := module()
	sayOther("other")
	assert.Equal(t, "other", build(other), "another checkout in the same run")
	assert.Equal(t, "two", build(src), "and this one again")
	say("three")
	t.Setenv("DAYONE_TEST_RUN", "")
	assert.Equal(t, "three", build(src), "outside of a run each change is seen")
	say("four")
	t.Setenv("DAYONE_TEST_RUN", "second")
	assert.Equal(t, "four", build(src), "somebody else linked it since")
}
