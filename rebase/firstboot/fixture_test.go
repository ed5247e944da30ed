package firstboot

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/hack/testnode"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/rebase/deploy/deploytest"
)

// repository is the image's final name; nothing answers there.
const repository = "registry.invalid/ocp/master-os"

// daemon is the agent's binary, built once for all tests; empty when that failed.
var daemon string

func TestMain(m *testing.M) {
	testnode.Init()
	flag.Parse()
	if testing.Short() { // no node, no agent
		os.Exit(m.Run())
	}
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "dayone-firstboot-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	daemon = filepath.Join(dir, "dayone-daemon")
	build := exec.Command("go", "build", "-tags=containers_image_openpgp", "-o", daemon, "dayone.dev/dayone/cmd/dayone-daemon")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the agent: %v: %s\n", err, out)
		return 1
	}
	return m.Run()
}

// fixture is a registry on the bootstrap host and a node, still off, whose disk is as Ignition leaves it.
type fixture struct {
	t        *testing.T
	lab      *testnode.Lab
	registry *deploytest.Registry
	node     *testnode.Node
	base     v1.Image
	config   Config
	served   *mcfgv1.MachineConfig
	image    string // final name with digest
}

// change spoils a fixture before the node's disk is written.
type change func(f *fixture)

func newFixture(t *testing.T, changes ...change) *fixture {
	t.Helper()
	t.Parallel() // mostly waiting for nodes
	return newFixtureOn(t, baseimage.Tiny, changes...)
}

func newFixtureOn(t *testing.T, kind baseimage.Kind, changes ...change) *fixture {
	t.Helper()
	if testing.Short() {
		t.Skip("boots nodes: left out with -short")
	}
	if err := testnode.Missing(); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	lab, err := testnode.New(t.Context(), testnode.Options{})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		if err := lab.Close(ctx); err != nil {
			t.Errorf("clean up: %v", err)
		}
	})
	f := &fixture{t: t, lab: lab, config: Config{RetryMin: installconfig.Duration(50 * time.Millisecond), RetryMax: installconfig.Duration(200 * time.Millisecond)}}
	var listener net.Listener
	require.NoError(t, lab.Network.Do(func() (err error) {
		listener, err = net.Listen("tcp", lab.Network.Bootstrap().String()+":5000")
		return err
	}))
	f.registry = deploytest.Serve(t, listener)
	dir, err := baseimage.EnsureWith(t.Context(), kind, baseimage.Options{})
	require.NoError(t, err)
	f.base = readLayout(t, dir)
	f.served = &mcfgv1.MachineConfig{}
	f.served.Name = "rendered-master-final"
	f.served.Spec.Config.Raw = []byte(`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/both"}]}}`)
	f.served.Spec.KernelArguments = []string{"dayone.test=1"}
	f.served.Spec.OSImageURL = f.push(f.layered(f.hash()))
	f.served.Annotations = map[string]string{manifests.AnnotationPreBuiltImage: f.served.Spec.OSImageURL}
	for _, c := range changes {
		c(f)
	}
	f.image = f.served.Spec.OSImageURL
	f.node, err = lab.NewNode(t.Context(), "m0", testnode.NodeOptions{Sysroot: testnode.SysrootOptions{Base: dir}})
	require.NoError(t, err)
	f.install()
	return f
}

func readLayout(t *testing.T, dir string) v1.Image {
	path, err := layout.FromPath(dir)
	require.NoError(t, err)
	index, err := path.ImageIndex()
	require.NoError(t, err)
	manifest, err := index.IndexManifest()
	require.NoError(t, err)
	img, err := index.Image(manifest.Manifests[0].Digest)
	require.NoError(t, err)
	return img
}

func (f *fixture) hash() string {
	hash, err := machineconfig.ContentHash(f.served.Spec)
	require.NoError(f.t, err)
	return hash
}

// layered is the base with a config's files and the label of that config.
func (f *fixture) layered(hash string, more ...deploytest.Entry) v1.Image {
	entries := append([]deploytest.Entry{{Name: "etc/both", Body: "both\n"}, {Name: "etc/from-image", Body: "image\n"},
		{Name: "usr/bin/hello", Body: "#!/bin/sh\necho hello\n", Mode: 0o755}}, more...)
	img, err := mutate.AppendLayers(f.base, deploytest.Layer(f.t, entries...))
	require.NoError(f.t, err)
	config, err := img.ConfigFile()
	require.NoError(f.t, err)
	config = config.DeepCopy()
	if config.Config.Labels == nil {
		config.Config.Labels = map[string]string{}
	}
	if hash != "" {
		config.Config.Labels[LabelConfigHash], config.Config.Labels[LabelRenderedConfig] = hash, "rendered-master-first"
	}
	img, err = mutate.ConfigFile(img, config)
	require.NoError(f.t, err)
	return img
}

// push puts an image into the registry and gives its final name.
func (f *fixture) push(img v1.Image) string {
	_, digest, _ := strings.Cut(f.registry.Push(f.t, img, "ocp/master-os"), "@")
	return repository + "@" + digest
}

// path is a file of the stock deployment, from outside; /var and what is kept there is the stateroot's.
func (f *fixture) path(name string) string {
	stateroot := filepath.Join(f.node.Sysroot, "ostree/deploy", testnode.Stateroot)
	if rest, ok := strings.CutPrefix(name, "/var/"); ok {
		return filepath.Join(stateroot, "var", rest)
	}
	if rest, ok := strings.CutPrefix(name, "/usr/local/"); ok {
		return filepath.Join(stateroot, "var/usrlocal", rest)
	}
	dirs, err := filepath.Glob(filepath.Join(stateroot, "deploy/*.0"))
	require.NoError(f.t, err)
	require.NotEmpty(f.t, dirs)
	return filepath.Join(dirs[0], name)
}

func (f *fixture) put(name string, mode os.FileMode, content []byte) {
	require.NoError(f.t, os.MkdirAll(filepath.Dir(f.path(name)), 0o755))
	require.NoError(f.t, os.WriteFile(f.path(name), content, mode))
	require.NoError(f.t, os.Chmod(f.path(name), mode))
}

func (f *fixture) mirrors() []Mirror {
	return []Mirror{{Repository: repository, Location: f.registry.Addr + "/ocp/master-os"}}
}

// install writes to the stock deployment what the config server and Ignition would have.
func (f *fixture) install() {
	whole, err := json.Marshal(f.served)
	require.NoError(f.t, err)
	outer := f.served.DeepCopy()
	outer.Spec.Config.Raw = []byte(`{"ignition":{"version":"3.5.0"}}`)
	encapsulated, err := json.Marshal(outer)
	require.NoError(f.t, err)
	auth, err := os.ReadFile(f.registry.AuthFile)
	require.NoError(f.t, err)
	ign, err := Ignition(IgnitionOptions{Config: f.config, RegistryCA: f.registry.Authority.PEM, PullAuth: auth,
		Mirrors: f.mirrors()})
	require.NoError(f.t, err)
	for _, file := range ign.Storage.Files {
		content, err := machineconfig.Contents(file.Contents)
		require.NoError(f.t, err)
		f.put(file.Path, os.FileMode(*file.Mode), content)
	}
	f.put(encapsulatedPath, 0o644, encapsulated)
	f.put(contentPath, 0o644, whole)
	f.put("/etc/both", 0o644, []byte("both\n"))
	f.put("/etc/systemd/system/"+UnitName, 0o644, []byte(*ign.Systemd.Units[0].Contents))
	link := f.path("/etc/systemd/system/multi-user.target.wants/" + UnitName)
	require.NoError(f.t, os.MkdirAll(filepath.Dir(link), 0o755))
	require.NoError(f.t, os.Symlink("/etc/systemd/system/"+UnitName, link))
	program, err := os.ReadFile(daemon)
	require.NoError(f.t, err)
	f.put(DaemonPath, 0o755, program)
}

func (f *fixture) start() {
	require.NoError(f.t, f.node.Start(f.t.Context()))
}

func (f *fixture) output(argv ...string) string {
	f.t.Helper()
	out, err := f.node.Output(f.t.Context(), argv...)
	require.NoError(f.t, err)
	return out
}

// result is output of a command that may fail.
func (f *fixture) result(argv ...string) string {
	f.t.Helper()
	r, err := f.node.Exec(f.t.Context(), argv...)
	require.NoError(f.t, err)
	return r.Stdout
}

func (f *fixture) log() string {
	text, err := f.node.Log()
	require.NoError(f.t, err)
	return text
}

func (f *fixture) record() Record {
	raw, err := os.ReadFile(f.path(StateDir + "/status.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}
	}
	require.NoError(f.t, err)
	var r Record
	require.NoError(f.t, json.Unmarshal(raw, &r))
	return r
}

// wait waits for the node's record to say something.
func (f *fixture) wait(what string, ok func(Record) bool) Record {
	f.t.Helper()
	limit, tick := time.NewTimer(time.Minute), time.NewTicker(20*time.Millisecond)
	defer limit.Stop()
	defer tick.Stop()
	for {
		if r := f.record(); ok(r) {
			return r
		}
		select {
		case <-limit.C:
			f.t.Fatalf("never: %s\nrecord: %+v\nlog:\n%s", what, f.record(), tail(f.log(), 4000))
		case <-tick.C:
		}
	}
}

func (f *fixture) waitDone() Record {
	f.t.Helper()
	return f.wait("done", func(r Record) bool { return r.State == StateDone })
}

func (f *fixture) boots() int {
	n, err := f.node.Boots()
	require.NoError(f.t, err)
	return n
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }
