package pages

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/hack/codeblocks"
)

// day1Chapter is a whole Day 1 on this host, with a status page, and what is asked of it while it serves.
func day1Chapter() chapter {
	return chapter{name: "Day 1", before: all(image("base"), image("/srv/base"), credentials), acts: slices.Concat([]act{
		{command: "version", hows: []how{{says: `"kind": "Version"`}}},
		{command: "schema"},
		{command: "sample"},
		{command: "prepare", before: settled},
		{command: "manifests"},
		{command: "plan", before: has("cp -r cluster installed")},
		{command: "build lint"},
		{command: "build"},
		{command: "bootstrap", begins: "dayone bootstrap --dir cluster --base", before: emptied, hows: []how{
			{serves: bootstraps}}},
		{command: "bootstrap", begins: "dayone bootstrap --dir cluster --print-unit"},
		{page: "docs/users/day1-standalone.md", begins: "systemctl", hows: []how{
			{begins: "systemctl", elsewhere: "hack/e2e TestPrintedUnitRuns"}}},
		{page: "docs/users/day1-standalone.md", begins: "dayone bootstrap --dir cluster --base oci:/srv/base$", hows: []how{
			{serves: bootstraps}}},
		{command: "status", before: goesOn, hows: []how{{begins: "dayone status --watch", serves: prints("master")},
			{begins: "dayone status --url", says: `"kind": "BootstrapProgress"`}, {says: "done +serve"}}},
		{page: "docs/users/day1-standalone.md", begins: "dayone status --watch"},
		{page: "docs/users/kubeadm.md", begins: "dayone status --watch", hows: []how{{serves: prints("master")}}},
		{page: "docs/users/day1-openshift.md", begins: "dayone status --watch", hows: []how{
			{begins: "ssh", fill: host}, {begins: "dayone status", fill: host},
			{begins: "dayone gather", fill: host, serves: keeps("spool")}}},
		{command: "gather", begins: "dayone gather --dir", hows: []how{{says: "next: dayone analyze"}}},
		{command: "gather", begins: "dayone gather --host"},
		{command: "analyze", before: bundle},
		{page: "docs/operators/log-bundles.md", begins: "dayone analyze log"},
		{page: "docs/users/troubleshooting.md", begins: "dayone status"},
		{page: "docs/operators/log-bundles.md", begins: "dayone gather --receive", hows: []how{
			{serves: func(w *world, s *server) { s.says("logSpool:") }}}},
	}, pagesOfMachines())}
}

// host fills in the bootstrap host.
func host(*world) []string { return []string{"HOST", bootstrapHost} }

// settled is what the user writes into the sample's install-config.yaml: his host, a status page, one master.
func settled(w *world) {
	w.change("cluster/install-config.yaml", "    host: 192.168.77.1\n", "    host: "+bootstrapHost+"\n")
	w.change("cluster/install-config.yaml", "  flow: standalone\n", "  flow: standalone\n  statusPage: {port: 9501}\n")
	w.change("cluster/install-config.yaml", "  replicas: 3\n", "  replicas: 1\n")
}

// emptied removes what a bootstrap or a registry left.
func emptied(w *world) { w.must("find /var/lib/dayone -mindepth 1 -delete") }

// bootstraps waits until nodes may come.
func bootstraps(w *world, s *server) {
	w.Helper()
	s.until(func() bool {
		j, err := journal.Open("/var/lib/dayone")
		return err == nil && j.Process.PID == s.cmd.Process.Pid && j.Endpoints != nil
	}, "serves")
	s.says(regexp.QuoteMeta(pointerTable(w)))
}

// pointerTable is what the page on machines says that a bootstrap prints.
func pointerTable(w *world) string {
	w.Helper()
	blocks, err := codeblocks.Of(filepath.Join(root, machinesPage))
	require.NoError(w, err)
	i := slices.IndexFunc(blocks, func(b codeblocks.Block) bool { return strings.HasPrefix(b.Text, "POOL ") })
	require.GreaterOrEqual(w, i, 0)
	return blocks[i].Text
}

// goesOn starts the bootstrap once more, which goes on until the chapter's end.
func goesOn(w *world) {
	w.bootstrap = w.start("dayone bootstrap --dir cluster --base oci:base")
	bootstraps(w, w.bootstrap)
	w.must("cp /var/lib/dayone/identity/ca.crt /var/lib/dayone/identity/status.token .")
}

// prints waits until a server has printed something.
func prints(pattern string) func(w *world, s *server) {
	return func(_ *world, s *server) { s.says(pattern) }
}

// keeps waits for a bundle of the server's in the directory that always has the last one.
func keeps(dir string) func(w *world, s *server) {
	return func(w *world, s *server) {
		s.until(func() bool {
			info, err := os.Stat(filepath.Join(w.dir, dir, "log-bundle-spool.tar.gz"))
			return err == nil && info.ModTime().After(s.began)
		}, "a bundle in "+dir)
	}
}

// bundle gives the newest log bundle the name that the pages have.
func bundle(w *world) {
	w.Helper()
	found, err := filepath.Glob(w.file("log-bundle-*.tar.gz"))
	require.NoError(w, err)
	require.NotEmpty(w, found)
	require.NoError(w, os.Rename(found[len(found)-1], w.file("log-bundle-20260102100000.tar.gz")))
}
