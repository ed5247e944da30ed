package kubetest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	operatorv1alpha1 "github.com/openshift/api/operator/v1alpha1"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubescheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"dayone.dev/dayone/hack/cache"
	"dayone.dev/dayone/hack/kube"
	"dayone.dev/dayone/hack/kube/controlplane"
	"dayone.dev/dayone/hack/kube/process"
	"dayone.dev/dayone/manifests/assets/cluster"
)

const (
	// startTimeout bounds the start of the servers, some three seconds on an idle machine.
	startTimeout = 3 * time.Minute
	// buildTimeout bounds the wait for the programs when this machine has not built them yet.
	buildTimeout = 40 * time.Minute
	// runName begins the name of each environment's directory.
	runName = "run"
	// etcdMemory and serverMemory are what the servers take before they collect garbage. With GOGC=400 instead, a start
	// and its first requests took two fifths more processor time, and most servers end soon after.
	etcdMemory, serverMemory = "256MiB", "1GiB"
	// crdTimeout bounds the wait until the API server serves the CRDs.
	crdTimeout = time.Minute
)

// Options of an environment. The zero value has dayone's CRDs, no controllers and no scheduler.
type Options struct {
	// CRDs to install; nil is those that dayone ships. An empty list is none.
	CRDs []*apiextensionsv1.CustomResourceDefinition
	// CRDPaths are further files or directories of CRDs.
	CRDPaths []string
	// Scheme of Client; default NewScheme.
	Scheme *runtime.Scheme
	// ControllerManager runs Kubernetes' own controllers: Jobs make pods, namespaces go when deleted, owners' objects with
	// them.
	ControllerManager bool
	// Scheduler assigns pods to nodes.
	Scheduler bool
	// APIServerArgs are further arguments of kube-apiserver.
	APIServerArgs []string
	// LogDir keeps the servers' logs, one file per program; default: gone with the environment.
	LogDir string
	// Log gets a line when the programs have to be built; default: nothing.
	Log *logrus.Entry
}

// Env is a running API server.
type Env struct {
	// Config is the administrator's; it is not throttled.
	Config *rest.Config
	// Client is the administrator's, without a cache.
	Client client.Client
	Scheme *runtime.Scheme

	plane   *controlplane.Plane
	dir     *process.Directory
	group   *process.Group
	release func() error
	etcd    *process.Process
	server  *process.Process
	options Options

	installing sync.Mutex
	// installed is whether InstallRights is done.
	installed bool

	// fence ends the clients of a test.
	fence *fence
}

// NewScheme has Kubernetes' own kinds, CRDs, and the OpenShift groups that dayone speaks.
func NewScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{kubescheme.AddToScheme, apiextensionsv1.AddToScheme,
		configv1.Install, mcfgv1.Install, operatorv1.Install, operatorv1alpha1.Install} {
		if err := add(s); err != nil {
			return nil, fmt.Errorf("make scheme: %w", err)
		}
	}
	return s, nil
}

// Start runs an environment until the test ends. It skips the test with -short.
func Start(t testing.TB, o Options) *Env {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a real kube-apiserver, which is left out with -short")
	}
	e, err := start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

// New runs an environment until Close.
func start(ctx context.Context, o Options) (*Env, error) {
	ctrllog.SetLogger(logr.Discard()) // the first call counts: a test that wants this log has asked for it before
	building, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	assets, err := kube.Assets(building, o.Log)
	if err != nil {
		return nil, err
	}
	e := &Env{options: o, Scheme: o.Scheme, group: process.NewGroup(), release: func() error { return nil }}
	if err := e.start(ctx, assets); err != nil {
		return nil, errors.Join(fmt.Errorf("start kubernetes: %w", err), e.Close())
	}
	return e, nil
}

func (e *Env) start(ctx context.Context, assets string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var err error
	if e.Scheme == nil {
		if e.Scheme, err = NewScheme(); err != nil {
			return err
		}
	}
	home, err := cache.Dir()
	if err != nil {
		return err
	}
	runs := filepath.Join(home, "kubetest")
	if err := process.Sweep(runs, runName, nil); err != nil {
		return err
	}
	if e.dir, err = process.Open(runs, runName); err != nil {
		return err
	}
	var ports controlplane.Ports
	if ports, e.release, err = holdPorts(); err != nil {
		return err
	}
	// A test's requests need no queues, which cost 4 % of the server's processor time.
	args := append([]string{"--enable-priority-and-fairness=false"}, e.options.APIServerArgs...)
	if !e.options.ControllerManager {
		// Nobody makes each namespace's default service account, without which no pod would be admitted.
		args = append([]string{"--disable-admission-plugins=ServiceAccount"}, args...)
	}
	e.plane, err = controlplane.New(controlplane.Options{Dir: e.dir.Path, LogDir: e.options.LogDir, Assets: assets,
		Ports: ports, SharePorts: true, APIServerArgs: args})
	if err != nil {
		return err
	}
	e.Config = e.plane.AdminConfig(e.plane.URL())
	if err := e.run(ctx); err != nil {
		return err
	}
	if err := e.open(); err != nil {
		return err
	}
	return e.installCRDs()
}

// open makes the administrator's credentials and client.
func (e *Env) open() (err error) {
	e.fence = &fence{}
	e.Config = e.plane.AdminConfig(e.plane.URL())
	e.Config.Wrap(e.fence.wrap)
	if e.Client, err = client.New(e.Config, client.Options{Scheme: e.Scheme}); err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	return nil
}

// run starts the programs and waits until the API server is ready.
func (e *Env) run(ctx context.Context) (err error) {
	if err := e.startEtcd(); err != nil {
		return err
	}
	if err := e.startServer(ctx); err != nil {
		return err
	}
	if e.options.ControllerManager {
		if _, err := e.group.Start(e.plane.ControllerManager()); err != nil {
			return err
		}
	}
	if e.options.Scheduler {
		if _, err := e.group.Start(e.plane.Scheduler()); err != nil {
			return err
		}
	}
	return nil
}

func (e *Env) startEtcd() (err error) {
	e.etcd, err = e.group.Start(collectLate(e.plane.Etcd(), etcdMemory))
	return err
}

// collectLate lets a program collect garbage when it has this much memory, not before.
func collectLate(s process.Spec, memory string) process.Spec {
	s.Env = append(s.Env, "GOGC=off", "GOMEMLIMIT="+memory)
	return s
}

func (e *Env) startServer(ctx context.Context) (err error) {
	if e.server, err = e.group.Start(collectLate(e.plane.APIServer(), serverMemory)); err != nil {
		return err
	}
	return controlplane.WaitReady(ctx, e.Config, e.server)
}

func (e *Env) installCRDs() (err error) {
	crds := e.options.CRDs
	if crds == nil {
		if crds, err = cluster.CRDs(); err != nil {
			return err
		}
	}
	if len(crds)+len(e.options.CRDPaths) == 0 {
		return nil
	}
	_, err = envtest.InstallCRDs(e.Config, envtest.CRDInstallOptions{
		Scheme: e.Scheme, CRDs: crds, Paths: e.options.CRDPaths, ErrorIfPathMissing: true, MaxTime: crdTimeout,
	})
	return err
}

// Close ends all programs and removes all files.
func (e *Env) Close() error {
	errs := []error{e.group.Close(), e.release()}
	if e.dir != nil {
		errs = append(errs, e.dir.Close())
	}
	return errors.Join(errs...)
}
