package deployers

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/hack/program"
	"dayone.dev/dayone/hack/testnode"
	"dayone.dev/dayone/hack/testnode/standin"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/deploytest"
	"dayone.dev/dayone/rebase/firstboot"
)

const (
	// repository is the image's final name; nothing answers there.
	repository = "registry.invalid/ocp/master-os"
	// encapsulatedPath and contentPath are where the config server puts a node's config (MCO's names).
	encapsulatedPath = "/etc/ignition-machine-config-encapsulated.json"
	contentPath      = "/etc/mcs-machine-config-content.json"
	caPath           = "/etc/containers/certs.d/192.168.77.1:5000/ca.crt"
	kernelArgument   = "dayone.test=1"
	// nodesAtOnce is more than there are processors: nodes mostly wait, for pauses and for one another.
	nodesAtOnce = 4
)

// kinds are the deployers and what a base OS has of them beside ostree.
var kinds = []struct { //nolint:gochecknoglobals // the table of all tests
	kind     deploy.Kind
	programs []string
}{
	{deploy.KindOSTree, nil},
	{deploy.KindRPMOSTree, []string{"rpm-ostree"}},
	{deploy.KindBootc, []string{"bootc"}},
}

// daemon is the agent's binary, built once for all tests.
var daemon string //nolint:gochecknoglobals // set by TestMain only

func TestMain(m *testing.M) {
	testnode.Init()
	if f := flag.Lookup("test.parallel"); f != nil && f.DefValue == f.Value.String() {
		if err := f.Value.Set(strconv.Itoa(nodesAtOnce)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "dayone-deployers-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	daemon = filepath.Join(dir, "dayone-daemon")
	o := program.Options{Package: "dayone.dev/dayone/cmd/dayone-daemon"}
	if err := program.Build(context.Background(), "", o, daemon); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// need skips, or fails in CI, where no nodes can run.
func need(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("boots nodes: left out with -short")
	}
	if err := testnode.Missing(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

// forEach runs a test for every deployer, several nodes at once: they mostly wait.
func forEach(t *testing.T, f func(t *testing.T, kind deploy.Kind, programs []string)) {
	t.Helper()
	need(t)
	t.Parallel()
	for _, k := range kinds {
		t.Run(string(k.kind), func(t *testing.T) {
			t.Parallel()
			f(t, k.kind, k.programs)
		})
	}
}

// fixture is a registry on the bootstrap host and a node, still off, whose disk is as Ignition leaves it.
type fixture struct {
	t        testing.TB
	kind     deploy.Kind
	lab      *testnode.Lab
	outlet   *outlet
	registry *deploytest.Registry
	node     *testnode.Node
	base     v1.Image
	config   firstboot.Config
	served   *mcfgv1.MachineConfig
	image    string // final name with digest
	stock    string // the first deployment, as this machine sees it

	disk, boot int64 // sizes in bytes; 0: this machine's disk
}

// change spoils a fixture before the node's disk is written.
type change func(f *fixture)

func newFixture(t testing.TB, kind deploy.Kind, programs []string, changes ...change) *fixture {
	t.Helper()
	return newFixtureOn(t, baseimage.Tiny, kind, programs, changes...)
}

func newFixtureOn(t testing.TB, stock baseimage.Kind, kind deploy.Kind, programs []string, changes ...change) *fixture {
	t.Helper()
	lab, err := testnode.New(t.Context(), testnode.Options{})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Minute)
		defer cancel()
		if err := lab.Close(ctx); err != nil {
			t.Errorf("clean up: %v", err)
		}
	})
	f := &fixture{t: t, kind: kind, lab: lab, outlet: newOutlet(t, lab.Network)}
	f.config = firstboot.Config{RetryMin: installconfig.Duration(50 * time.Millisecond),
		RetryMax: installconfig.Duration(200 * time.Millisecond)}
	f.registry = deploytest.Serve(t, f.outlet)
	dir, err := baseimage.Ensure(t.Context(), stock, "")
	require.NoError(t, err)
	if len(programs) > 0 {
		dir, err = standin.Image(t.Context(), standin.ImageOptions{Base: dir, Programs: programs})
		require.NoError(t, err)
	}
	f.base = readLayout(t, dir)
	f.served = &mcfgv1.MachineConfig{}
	f.served.Name = "rendered-master-final"
	f.served.Spec.Config.Raw = []byte(`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/both"}]}}`)
	f.served.Spec.KernelArguments = []string{kernelArgument}
	f.served.Spec.OSImageURL = f.push(f.layered())
	f.served.Annotations = map[string]string{manifests.AnnotationPreBuiltImage: f.served.Spec.OSImageURL}
	for _, c := range changes {
		c(f)
	}
	f.image = f.served.Spec.OSImageURL
	f.node, err = lab.NewNode(t.Context(), "m0",
		testnode.NodeOptions{Sysroot: testnode.SysrootOptions{Base: dir, DiskSize: f.disk, BootSize: f.boot}})
	require.NoError(t, err)
	f.install()
	return f
}

func readLayout(t testing.TB, dir string) v1.Image {
	t.Helper()
	index, err := layout.ImageIndexFromPath(dir)
	require.NoError(t, err)
	list, err := index.IndexManifest()
	require.NoError(t, err)
	img, err := index.Image(list.Manifests[0].Digest)
	require.NoError(t, err)
	return img
}

// layered is the base with the config's files, its kernel arguments in the form that bootc reads, and its label.
func (f *fixture) layered(more ...deploytest.Entry) v1.Image {
	entries := append([]deploytest.Entry{{Name: "etc/both", Body: "both\n"}, {Name: "etc/from-image", Body: "image\n"},
		{Name: "usr/lib/bootc/kargs.d/10-test.toml", Body: "kargs = [\"" + kernelArgument + "\"]\n"},
		{Name: "usr/bin/hello", Body: "#!/bin/sh\necho hello\n", Mode: 0o755}}, more...)
	img, err := mutate.AppendLayers(f.base, deploytest.Layer(f.t, entries...))
	require.NoError(f.t, err)
	hash, err := machineconfig.ContentHash(f.served.Spec)
	require.NoError(f.t, err)
	return f.edit(img, func(c *v1.ConfigFile) {
		c.Config.Labels[firstboot.LabelConfigHash], c.Config.Labels[firstboot.LabelRenderedConfig] = hash, f.served.Name
	})
}

func (f *fixture) edit(img v1.Image, change func(c *v1.ConfigFile)) v1.Image {
	config, err := img.ConfigFile()
	require.NoError(f.t, err)
	config = config.DeepCopy()
	change(config)
	img, err = mutate.ConfigFile(img, config)
	require.NoError(f.t, err)
	return img
}

// push puts an image into the registry and gives its final name.
func (f *fixture) push(img v1.Image) string {
	_, digest, _ := strings.Cut(f.registry.Push(f.t, img, "ocp/master-os"), "@")
	return repository + "@" + digest
}

// path is a file of the first deployment, from outside; /var and what is kept there is the stateroot's.
func (f *fixture) path(name string) string {
	stateroot := filepath.Join(f.node.Sysroot, "ostree/deploy", testnode.Stateroot)
	if rest, ok := strings.CutPrefix(name, "/var/"); ok {
		return filepath.Join(stateroot, "var", rest)
	}
	if rest, ok := strings.CutPrefix(name, "/usr/local/"); ok {
		return filepath.Join(stateroot, "var/usrlocal", rest)
	}
	if f.stock == "" { // before the first start there is one
		dirs, err := filepath.Glob(filepath.Join(stateroot, "deploy/*.0"))
		require.NoError(f.t, err)
		require.Len(f.t, dirs, 1)
		f.stock = dirs[0]
	}
	return filepath.Join(f.stock, name)
}

// put replaces a file at once: the agent may read it at any time.
func (f *fixture) put(name string, mode os.FileMode, content []byte) {
	f.t.Helper()
	path := f.path(name)
	require.NoError(f.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(f.t, os.WriteFile(path+".new", content, mode))
	require.NoError(f.t, os.Chmod(path+".new", mode))
	require.NoError(f.t, os.Rename(path+".new", path))
}

// install writes to the first deployment what the config server and Ignition would have.
func (f *fixture) install() {
	f.serve()
	ign := f.fromServer()
	for _, file := range ign.Storage.Files {
		content, err := machineconfig.Contents(file.Contents)
		require.NoError(f.t, err)
		f.put(file.Path, os.FileMode(*file.Mode), content)
	}
	f.put("/etc/both", 0o644, []byte("both\n"))
	program, err := os.ReadFile(daemon)
	require.NoError(f.t, err)
	f.put(firstboot.DaemonPath, 0o755, program)
	f.put("/etc/systemd/system/"+firstboot.UnitName, 0o644, []byte(*ign.Systemd.Units[0].Contents))
	f.enable(firstboot.UnitName)
}

// fromServer is what the config server adds to a node's config.
func (f *fixture) fromServer() ign35.Config {
	f.t.Helper()
	ign, err := firstboot.Ignition(firstboot.IgnitionOptions{Config: f.config, RegistryCA: f.registry.Authority.PEM,
		PullAuth: f.pullAuth(),
		Mirrors:  []firstboot.Mirror{{Repository: repository, Location: f.registry.Addr + "/ocp/master-os"}}})
	require.NoError(f.t, err)
	return ign
}

func (f *fixture) pullAuth() []byte {
	raw, err := os.ReadFile(f.registry.AuthFile)
	require.NoError(f.t, err)
	return raw
}

// ignition is one file of what the config server adds, as it is with the fixture's config now.
func (f *fixture) ignition(path string) []byte {
	f.t.Helper()
	for _, file := range f.fromServer().Storage.Files {
		if file.Path == path {
			content, err := machineconfig.Contents(file.Contents)
			require.NoError(f.t, err)
			return content
		}
	}
	require.FailNow(f.t, "the config server adds no "+path)
	return nil
}

// serve writes the config to the node's disk as the config server gives it to Ignition.
func (f *fixture) serve() {
	f.t.Helper()
	if f.served.Annotations != nil {
		f.served.Annotations[manifests.AnnotationPreBuiltImage] = f.served.Spec.OSImageURL
	}
	whole, err := json.Marshal(f.served)
	require.NoError(f.t, err)
	outer := f.served.DeepCopy()
	outer.Spec.Config.Raw = []byte(`{"ignition":{"version":"3.5.0"}}`)
	encapsulated, err := json.Marshal(outer)
	require.NoError(f.t, err)
	f.put(contentPath, 0o644, whole)
	f.put(encapsulatedPath, 0o644, encapsulated)
}

func (f *fixture) enable(unit string) {
	link := f.path("/etc/systemd/system/multi-user.target.wants/" + unit)
	require.NoError(f.t, os.MkdirAll(filepath.Dir(link), 0o755))
	require.NoError(f.t, os.Symlink("/etc/systemd/system/"+unit, link))
}

// disable leaves staging to the test.
func (f *fixture) disable(unit string) {
	require.NoError(f.t, os.Remove(f.path("/etc/systemd/system/multi-user.target.wants/"+unit)))
}

func (f *fixture) start() {
	f.t.Helper()
	require.NoError(f.t, f.node.Start(f.t.Context()))
}

func (f *fixture) output(argv ...string) string {
	f.t.Helper()
	out, err := f.node.Output(f.t.Context(), argv...)
	require.NoError(f.t, err)
	return out
}

// says waits until the console shows a text: what writes it there may lag behind what a node has done.
func (f *fixture) says(text string) {
	f.t.Helper()
	f.until("the console shows "+text, func() bool { return strings.Contains(f.log(), text) })
}

func (f *fixture) log() string {
	text, err := f.node.Log()
	require.NoError(f.t, err)
	return text
}

func (f *fixture) record() firstboot.Record {
	raw, err := os.ReadFile(f.path(firstboot.StateDir + "/status.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return firstboot.Record{}
	}
	require.NoError(f.t, err)
	var r firstboot.Record
	require.NoError(f.t, json.Unmarshal(raw, &r))
	return r
}

// until waits for a fact; it fails the test with the console when it never comes.
func (f *fixture) until(what string, ok func() bool) {
	f.t.Helper()
	limit, tick := time.NewTimer(5*time.Minute), time.NewTicker(20*time.Millisecond)
	defer limit.Stop()
	defer tick.Stop()
	for !ok() {
		select {
		case <-limit.C:
			text := f.log()
			f.t.Fatalf("never: %s\nrecord: %+v\nconsole:\n%s", what, f.record(), text[max(0, len(text)-4000):])
		case <-tick.C:
		}
	}
}

func (f *fixture) waitDone() firstboot.Record {
	f.t.Helper()
	f.until("done", func() bool { return f.record().State == firstboot.StateDone })
	return f.record()
}

func (f *fixture) boots() int {
	n, err := f.node.Boots()
	require.NoError(f.t, err)
	return n
}

// status is what the agent says of the node's deployments.
func (f *fixture) status() deploy.Status {
	f.t.Helper()
	var s deploy.Status
	require.NoError(f.t, json.Unmarshal([]byte(f.output(firstboot.DaemonPath, "status")), &s))
	return s
}
