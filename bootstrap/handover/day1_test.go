package handover_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/day1"
	"dayone.dev/dayone/bootstrap/gather"
	"dayone.dev/dayone/bootstrap/gather/analyze"
	"dayone.dev/dayone/bootstrap/gather/bundle"
	"dayone.dev/dayone/bootstrap/handover"
	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/bootstrap/phasetest"
	"dayone.dev/dayone/bootstrap/standalone"
	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/build/sign"
	"dayone.dev/dayone/hack/baseimage"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets"
	"dayone.dev/dayone/registry/registrytest"
	"dayone.dev/dayone/registry/transfer"
)

const platform = "linux/amd64"

// installDirectory is the sample with MachineOSConfigs of masters, workers and a pool of the user's own, for a final
// registry and a bootstrap registry that are there.
func installDirectory(t *testing.T, final *registrytest.Registry, bootstrapPort int) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "cluster")
	require.NoError(t, assets.WriteSample(dir))
	phasetest.AddInfra(t, dir)
	phasetest.UseRegistry(t, dir, final.Addr, final.Push, final.Pull)
	file := filepath.Join(dir, installconfig.FileName)
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	text := strings.Replace(string(raw), "host: 192.168.77.1\n    port: 5000",
		"host: "+phasetest.HostAddress(t)+"\n    port: "+strconv.Itoa(bootstrapPort), 1)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	_, err = installconfig.Prepare(dir)
	require.NoError(t, err)
	return dir
}

// bootstrapHost is one in this process.
type bootstrapHost struct {
	t       *testing.T
	options standalone.Options
	// serving is closed when nodes may come; ended has what Run returned.
	serving chan struct{}
	ended   chan error
	port    int
}

func newDay1(t *testing.T, final *registrytest.Registry, h day1.HandOver) *bootstrapHost {
	t.Helper()
	phasetest.NeedsBuilds(t)
	base, err := baseimage.Ensure(t.Context(), baseimage.Shell, "")
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	log := logrus.New()
	log.SetOutput(t.Output())
	d := &bootstrapHost{t: t, port: phasetest.FreePort(t), serving: make(chan struct{}), ended: make(chan error, 1)}
	d.options = standalone.Options{
		Options: day1.Options{Dir: installDirectory(t, final, d.port), StateDir: filepath.Join(t.TempDir(), "state"),
			Platform: platform, NewEngine: phasetest.Engine, Log: logrus.NewEntry(log)},
		BaseSource: "oci:" + base, DaemonBinary: self,
		RegistryListen: d.registry(), ConfigListen: fmt.Sprintf("127.0.0.1:%d", phasetest.FreePort(t)),
		Versions: versions(), HandOver: h,
	}
	return d
}

// registry is the address of its embedded registry.
func (d *bootstrapHost) registry() string {
	return fmt.Sprintf("%s:%d", phasetest.HostAddress(d.t), d.port)
}

// judgesBases takes the base from the final registry and lets a policy demand a signature of it, which signs makes.
func (d *bootstrapHost) judgesBases(final *registrytest.Registry) (policy string, signs func()) {
	t, dir := d.t, d.options.Dir
	t.Helper()
	side, err := installconfig.ReadSidecar(dir)
	require.NoError(t, err)
	repository := side.Config.BaseRepository()
	at := transfer.Endpoint{Reference: "docker://" + repository + ":1", CAFile: final.CAFile, AuthFile: final.PushAuthFile}
	copied, err := transfer.Copy(t.Context(), transfer.Endpoint{Reference: d.options.BaseSource}, at, transfer.Options{})
	require.NoError(t, err)
	at.Reference = repository + "@" + copied.Digest.String()
	vendor, err := sign.LoadOrCreate(t.TempDir())
	require.NoError(t, err)
	policy = fmt.Sprintf(`{"default":[{"type":"reject"}],"transports":{"docker":{%q:[{"type":"sigstoreSigned",`+
		`"keyData":%q,"signedIdentity":{"type":"matchRepository"}}]}}}`, repository,
		base64.StdEncoding.EncodeToString(vendor.Public))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "base-policy.json"), []byte(policy), 0o600))
	side.Config.Signing.BaseImagePolicy = "base-policy.json"
	require.NoError(t, side.Write(dir))
	d.options.BaseSource, d.options.BaseCAFile, d.options.BaseAuthFile = at.Reference, final.CAFile, final.PullAuthFile
	return policy, func() {
		t.Helper()
		_, err := vendor.Sign(t.Context(), sign.Image{Repository: repository, Endpoint: at})
		require.NoError(t, err)
	}
}

func (d *bootstrapHost) start() {
	ctx, cancel := context.WithCancel(context.Background())
	d.t.Cleanup(cancel)
	d.startWith(ctx)
}

// startWith runs until ctx ends and returns when nodes may come.
func (d *bootstrapHost) startWith(ctx context.Context) {
	serving := d.serving
	d.options.Observe = func(e journal.Event) {
		if e.Record.Name == "serve" && e.Kind == journal.EventRecorded {
			close(serving)
		}
	}
	ended := d.ended
	go func() { ended <- standalone.Run(ctx, d.options) }()
	select {
	case <-d.serving:
	case err := <-d.ended:
		require.NoError(d.t, err)
		require.Fail(d.t, "bootstrap ended before it served")
	case <-time.After(waitLimit):
		require.Fail(d.t, "bootstrap does not serve")
	}
}

func (d *bootstrapHost) end() error {
	select {
	case err := <-d.ended:
		return err
	case <-time.After(waitLimit):
		require.Fail(d.t, "the hand-over does not end")
		return nil
	}
}

// outcome is what the nodes of a pool were told to be: read from what the bootstrap host serves.
func (d *bootstrapHost) outcome(pool string) (rendered *mcfgv1.MachineConfig, p handover.Pool) {
	d.t.Helper()
	plan, err := handover.Read(filepath.Join(d.options.StateDir, "handover"))
	require.NoError(d.t, err)
	for _, p = range plan.Pools {
		if p.Name != pool {
			continue
		}
		raw, err := os.ReadFile(filepath.Join(d.options.StateDir, "rendered/machine-configs", p.Config+".yaml"))
		require.NoError(d.t, err)
		set, err := manifests.Read(raw, p.Config, manifests.ReadOptions{})
		require.NoError(d.t, err)
		return set.MachineConfigs[0].Object, p
	}
	require.Fail(d.t, "no pool "+pool)
	return nil, p
}

// Day 1 as it is: the pipeline builds an image into its own registry, from a base that a policy demands a signature of,
// three masters join with their agents while the controllers are at work, and the bootstrap host hands over and ends.
func TestHandOverWithoutReboot(t *testing.T) {
	final := registrytest.Start(t)
	w := newWorld(t, final.CAFile)
	kubeconfig := w.env.Kubeconfig(t)
	late := filepath.Join(t.TempDir(), "kubeconfig") // comes when the masters are there
	d := newDay1(t, final, day1.HandOver{Kubeconfig: late, FinalCAFile: final.CAFile, Policy: handover.PolicyDeadline,
		Deadline: waitLimit})
	policy, signs := d.judgesBases(final)
	err := standalone.Run(t.Context(), d.options)
	require.ErrorContains(t, err, "of baseImagePolicy: ")
	require.ErrorContains(t, err, "no signature exists")
	signs()
	d.start() // the base was copied before it was signed
	rendered, pool := d.outcome("master")
	bootstrapRegistry := d.registry()
	require.True(t, strings.HasPrefix(pool.Image, final.Addr+"/ocp/master-os@sha256:"), pool.Image)
	require.Equal(t, 3, pool.Nodes, "as many as install-config.yaml has")
	w.watches(pool.Config, pool.Image)
	defer w.controllers()()
	w.joins(3, rendered, pool.Image, bootstrapRegistry)
	defer w.agents()()

	raw, err := os.ReadFile(kubeconfig)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(late, raw, 0o600))
	require.NoError(t, d.end())
	w.settled("master", pool.Config, pool.Image)
	w.nothingChanged()
	w.clusterBuilds()
	w.judgesBases(policy, pool.Image, final)

	// One build, which nobody built, and no Job.
	builds := w.builds("master")
	require.Len(t, builds, 1)
	assert.Equal(t, machineosbuild.Succeeded, machineosbuild.StateOf(&builds[0]))
	assert.Equal(t, "true", builds[0].Labels[manifests.AnnotationPreBuiltImage])
	assert.Equal(t, pool.Image, string(builds[0].Status.DigestedImagePushSpec))
	assert.Empty(t, w.jobs("master"))

	// The final registry has what is referred to, under its names.
	for _, image := range []string{pool.Image, rendered.Spec.OSImageURL, string(builds[0].Spec.RenderedImagePushSpec),
		final.Addr + "/ocp/master-os:" + build.Tag(pool.Address)} {
		_, err := transfer.Inspect(t.Context(), transfer.Endpoint{Reference: image, CAFile: final.CAFile,
			AuthFile: final.PullAuthFile}, platform)
		require.NoError(t, err)
	}
	// Nobody trusts the bootstrap registry any more, and nobody has an account there.
	for _, m := range w.masters {
		for _, path := range m.trusted(bootstrapRegistry) {
			assert.NoFileExists(t, path)
		}
	}
	left, err := filepath.Glob(filepath.Join(d.options.StateDir, "identity/*auth*"))
	require.NoError(t, err)
	assert.Empty(t, left)
	done, err := handover.ReadMark(d.options.StateDir)
	require.NoError(t, err)
	assert.Equal(t, bootstrapRegistry, done.Registry)
	var logs bytes.Buffer
	require.NoError(t, gather.Host(t.Context(), gather.Options{StateDir: d.options.StateDir, InstallDir: d.options.Dir,
		NoCommands: true}, &logs))
	b, err := bundle.Read(&logs)
	require.NoError(t, err)
	assert.Equal(t, analyze.StatusHandedOver, analyze.Bundle(b).Verdict.Status)
	require.NoError(t, standalone.Run(t.Context(), d.options), "a later run has nothing to do")
}
