package openshift

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/day1"
	"dayone.dev/dayone/bootstrap/phasetest"
	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/bootstrap/standalone"
	"dayone.dev/dayone/bootstrap/trialbuild"
	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/buildtest"
	"dayone.dev/dayone/build/poolrequest"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/registry/registrytest"
	"dayone.dev/dayone/registry/transfer"
)

// askedEngine records the address that it is asked to build, and builds nothing.
type askedEngine struct{ address string }

func (e *askedEngine) BuildContainer(_ context.Context, job build.ContainerJob) (build.ContainerImage, error) {
	e.address = job.Address
	return build.ContainerImage{}, &build.Failure{Class: build.ClassUser, Step: "containerfile", Message: "only asked"}
}

func (e *askedEngine) open(string) (build.ContainerEngine, error) { return e, nil }

// callersWorld is one install directory with a trust bundle and extensions, for every caller of build.NewRequest.
type callersWorld struct {
	dir, base string
	// listen is the embedded registry's address, which the install directory names.
	listen   string
	reg      *registrytest.Registry
	versions render.Versions
	in       *preflight.Input
	pool     preflight.Pool
	rendered *render.Result
	set      *manifests.Set
	cluster  *mcfgv1.ControllerConfig
}

// controllerConfig has every field that the API requires. Preflight renders as version "preflight" on a base image with
// this digest.
const controllerConfig = `apiVersion: machineconfiguration.openshift.io/v1
kind: ControllerConfig
metadata:
  name: machine-config-controller
  annotations: {machineconfiguration.openshift.io/generated-by-version: %s}
spec:
  additionalTrustBundle: YSBidW5kbGUK
  baseOSExtensionsContainerImage: %s
  baseOSContainerImage: %s/os/base@sha256:0000000000000000000000000000000000000000000000000000000000000000
  cloudProviderCAData: YQ==
  cloudProviderConfig: ""
  clusterDNSIP: 10.96.0.10
  dns: {apiVersion: config.openshift.io/v1, kind: DNS, metadata: {name: cluster}, spec: {baseDomain: example.com}}
  images: {}
  infra: {apiVersion: config.openshift.io/v1, kind: Infrastructure, metadata: {name: cluster},
    spec: {platformSpec: {type: None}}}
  ipFamilies: IPv4
  kubeAPIServerServingCAData: YQ==
  network: {mtuMigration: {}}
  proxy: {}
  releaseImage: registry.example.com/ocp/release:1
  rootCAData: YQ==
`

const platform = "linux/" + runtime.GOARCH

func newCallersWorld(t *testing.T) *callersWorld {
	w := &callersWorld{dir: filepath.Join(t.TempDir(), "cluster"), reg: registrytest.Start(t),
		versions: render.Versions{Raw: "preflight", Hash: "test", Payload: "test"}}
	port := phasetest.FreePort(t)
	host := phasetest.HostAddress(t)
	w.listen = fmt.Sprintf("%s:%d", host, port)
	w.base = buildtest.Push(t, w.reg, buildtest.Base{Fixed: true}).Reference
	extensions := buildtest.Push(t, w.reg, buildtest.Base{Fixed: true, NotBootable: true, Repository: "os/extensions"})
	require.NoError(t, assets.WriteSample(w.dir))
	file := filepath.Join(w.dir, installconfig.FileName)
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, []byte(strings.NewReplacer(
		"registry.example.com/ocp/base-os:1", w.base, "host: 192.168.77.1", "host: "+host,
		"port: 5000", fmt.Sprint("port: ", port)).Replace(string(raw))), 0o600))
	for name, text := range map[string]string{
		"90-controllerconfig.yaml": fmt.Sprintf(controllerConfig, "preflight", extensions.Reference, w.reg.Addr),
		"90-extensions.yaml": "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata:\n" +
			"  name: 90-extensions\n  labels: {machineconfiguration.openshift.io/role: master}\nspec:\n" +
			"  config: {ignition: {version: 3.2.0}}\n  extensions: [usbguard]\n  kernelType: realtime\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(w.dir, "openshift", name), []byte(text), 0o600))
	}
	w.in, err = preflight.Load(w.dir, platform)
	require.NoError(t, err)
	w.pool = w.in.Pools[0]
	require.Equal(t, "master", w.pool.Name)
	w.set = w.in.Inputs(w.base, w.versions)
	require.Len(t, w.set.ControllerConfigs, 1)
	w.cluster = w.set.ControllerConfigs[0].Object.DeepCopy()
	w.cluster.Spec.BaseOSContainerImage = w.base
	w.set.ControllerConfigs[0].Object = w.cluster
	w.rendered, err = render.Render(w.set, render.Options{Versions: w.versions, Unbuilt: render.IgnoreUnbuilt})
	require.NoError(t, err)
	return w
}

// inCluster is the address for which the build controller starts a build.
func (w *callersWorld) inCluster(t *testing.T) string {
	request, problem := poolrequest.Of(w.pool.MachineOSConfig.Object, w.rendered.Config("master"), w.cluster,
		w.base, platform)
	require.Nil(t, problem)
	require.NotNil(t, request.Extensions, "the case is about extensions")
	require.NotEmpty(t, request.TrustBundle, "and about a trust bundle")
	address, err := request.Address()
	require.NoError(t, err)
	return address
}

// standalone runs the flow until it asks for a build.
func (w *callersWorld) standalone(t *testing.T) string {
	var engine askedEngine
	self, err := os.Executable()
	require.NoError(t, err)
	err = standalone.Run(t.Context(), standalone.Options{
		Options: day1.Options{Dir: w.dir, StateDir: t.TempDir(), BaseCAFile: w.reg.CAFile, Platform: platform,
			NewEngine: engine.open},
		BaseAuthFile: w.reg.PullAuthFile, DaemonBinary: self, RegistryListen: w.listen,
		ConfigListen: fmt.Sprintf("127.0.0.1:%d", phasetest.FreePort(t)),
		Versions:     w.versions})
	require.ErrorContains(t, err, "only asked")
	return engine.address
}

// trial runs dayone build until it asks for a build.
func (w *callersWorld) trial(t *testing.T) string {
	var engine askedEngine
	_, err := trialbuild.Run(t.Context(), w.in, w.pool, trialbuild.Options{StateDir: t.TempDir(), Platform: platform,
		Base:     transfer.Endpoint{CAFile: w.reg.CAFile, AuthFile: w.reg.PullAuthFile},
		Versions: w.versions, NewEngine: engine.open})
	require.ErrorContains(t, err, "only asked")
	return engine.address
}

// openshift asks from what MCO's bootstrap has rendered.
func (w *callersWorld) openshift(t *testing.T) string {
	o := Options{Options: day1.Options{StateDir: t.TempDir(), Platform: platform}, Root: t.TempDir()}
	require.NoError(t, os.MkdirAll(filepath.Dir(o.at(podManifest)), 0o755))
	require.NoError(t, os.WriteFile(o.at(podManifest),
		[]byte("spec: {initContainers: [{image: mco, args: [--dest-dir=/x]}]}"), 0o600))
	require.NoError(t, render.Write(o.at(mcsDir), w.set, w.rendered))
	first, err := readFirst(o, w.in.Pools[:1])
	require.NoError(t, err)
	embedded := map[string]string{}
	for _, image := range first.Bases() {
		_, digest, _ := strings.Cut(image, "@")
		embedded[image] = "10.0.0.1:9500/release/art@" + digest
	}
	s, err := first.sources(o, embedded)
	require.NoError(t, err)
	request, err := day1.NewRequest(day1.Host{Options: o.Options, In: w.in},
		&day1.Registry{Address: "10.0.0.1:9500", Identity: &day1.Identity{}}, s, w.pool)
	require.NoError(t, err)
	address, err := request.Address()
	require.NoError(t, err)
	return address
}

// TestOneAddress: an image built anywhere serves everywhere. Every caller of build.NewRequest runs its own code on one
// install directory; only then is the digest of dayone build the one that the cluster gets.
func TestOneAddress(t *testing.T) {
	buildtest.Need(t, true)
	w := newCallersWorld(t)
	want := w.inCluster(t)
	for _, c := range []struct {
		name    string
		address func(*testing.T) string
	}{
		{"standalone", w.standalone},
		{"openshift", w.openshift},
		{"dayone build", w.trial},
	} {
		t.Run(c.name, func(t *testing.T) { assert.Equal(t, want, c.address(t)) })
	}
}
