package pages

import (
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"dayone.dev/dayone/hack/cache"
)

// checkoutChapter is what developers type, and who compiles dayone. What takes the whole suite or many minutes, make
// only says there.
func checkoutChapter() chapter {
	const testing, nodes = "docs/developers/testing.md", "docs/developers/testing-nodes.md"
	run := func(w *world) []string {
		id, _, ok := strings.Cut(w.must("bin/testnode list"), "/")
		require.True(w, ok, "no run")
		return []string{"RUN", id}
	}
	list := how{begins: "sudo bin/testnode list", says: "/m0\t.*running=true"}
	enter := how{begins: "sudo bin/testnode exec", fill: run}
	begins := func(line, test string) how { return how{begins: line, dry: true, elsewhere: test} }
	named := how{begins: "DAYONE_TEST_", named: true}
	return chapter{name: "a checkout", before: checkout, acts: []act{
		{page: "CONTRIBUTING.md", begins: "hack/setup/setup.sh", hows: []how{{begins: "make test-fast", dry: true}},
			after: has("bin/dayone version && bin/kubectl-dayone --help && bin/testnode list")},
		{page: "CONTRIBUTING.md", begins: "export GOFLAGS", after: flagsOfMake},
		{page: testing, begins: "export GOFLAGS", after: flagsOfMake},
		{page: testing, begins: "go build -o bin/", hows: []how{list, enter,
			{begins: "sudo bin/testnode end", fill: run}}},
		{page: testing, begins: "sudo bin/testnode list", before: has("bin/testnode up"), hows: []how{list, enter,
			{begins: "sudo bin/testnode log", fill: run}},
			after: has("bin/testnode end $(bin/testnode list | sed s,/.*,,)")},
		{page: nodes, begins: "go build -o bin/", hows: []how{list, enter, {begins: "sudo bin/testnode log", fill: run},
			{begins: "sudo bin/testnode reboot", fill: run}, {begins: "sudo bin/testnode end", fill: run}},
			after: func(w *world) { assert.NotContains(w, w.must("bin/testnode list"), "running=true") }},
		{page: nodes, begins: "go run ./hack/baseimage", hows: []how{{says: "/"}}},
		{page: "docs/developers/testing-kubernetes.md", begins: "go run ./hack/kube/cmd/kube assets$",
			hows: []how{{says: "/kube-[0-9a-f]+"}}},
		{page: "docs/developers/upstream.md", begins: "DAYONE_TEST_MCO", hows: []how{named}},
		{page: "docs/developers/upstream.md", begins: "DAYONE_TEST_ASSISTED", hows: []how{named}},
		{page: "README.md", begins: "make demo$", hows: []how{begins("make", "hack/e2e TestDay1OfThreeMasters")}},
		{page: "README.md", begins: "make demo FULL=1", hows: []how{begins("make", "hack/e2e/life TestTheBeginningIsKept")}},
		{page: "README.md", begins: "make test", hows: []how{begins("make", "")}},
		{page: "docs/users/getting-started.md", begins: "make build", after: func(w *world) {
			assert.Equal(w, w.file("bin/dayone"), w.must("command -v dayone"))
		}},
	}}
}

// checkout lays this checkout over the directory, with what it has compiled; nothing comes into it. Go has the settings
// and caches of who runs the test: they have all modules, and the network that would have them is not there.
func checkout(w *world) {
	w.Helper()
	over := w.whole.TempDir()
	for _, dir := range []string{"changes", "work"} {
		w.must("mkdir " + filepath.Join(over, dir))
	}
	require.NoError(w, unix.Mount("overlay", w.dir, "overlay", 0, "lowerdir="+w.source(".")+",upperdir="+
		filepath.Join(over, "changes")+",workdir="+filepath.Join(over, "work")))
	dir := w.dir
	w.whole.Cleanup(func() { assert.NoError(w.whole, unix.Unmount(dir, unix.MNT_DETACH)) })
	kept, err := cache.Dir()
	require.NoError(w, err)
	w.environment = []string{cache.Env + "=" + kept}
	for _, name := range []string{"GOROOT", "GOCACHE", "GOMODCACHE", "GOPROXY", "GOSUMDB"} {
		out, err := exec.CommandContext(w.Context(), "go", "env", name).Output()
		require.NoError(w, err)
		value := strings.TrimSpace(string(out))
		if name == "GOROOT" {
			name, value = "PATH", w.path+":"+filepath.Join(value, "bin")
		}
		w.environment = append(w.environment, name+"="+value)
	}
}

// flagsOfMake says that go compiles with the flags that the reader has set what make has compiled.
func flagsOfMake(w *world) {
	w.Helper()
	const link = " -ldflags=-s"
	assert.Contains(w, w.read("Makefile"), "\nexport GOFLAGS := "+w.must("go env GOFLAGS")+link+"\n")
}
