package wholesystem

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/bombsimon/logrusr/v4"
	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"dayone.dev/dayone/build/optin"
	"dayone.dev/dayone/hack/kube/kubetest"
	"dayone.dev/dayone/hack/program"
	"dayone.dev/dayone/hack/testnode"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/manifests/rendercontroller"
	"dayone.dev/dayone/rebase/disruptioncontroller"
	"dayone.dev/dayone/rebase/draincontroller"
	"dayone.dev/dayone/rebase/nodecontroller"
)

// controllersEnv names a kubeconfig: with it this program is not the test but the controllers, a process that a test
// can kill.
const controllersEnv = "DAYONE_WHOLESYSTEM_KUBECONFIG"

// settle is how long the render controller collects changes; a test does not make several in a row.
const settle = 100 * time.Millisecond

// worldsAtOnce is how many tests run beside each other: more than there are processors, because hosts that boot, drain
// and import let their test wait. Each world has its own API server, network and hosts.
const worldsAtOnce = "4"

// shared gives each world an API server that is as new.
var shared kubetest.Shared

// agentProgram is the agent's binary, built once.
var agentProgram string //nolint:gochecknoglobals // set by TestMain only

func TestMain(m *testing.M) {
	testnode.Init()
	if kubeconfig := os.Getenv(controllersEnv); kubeconfig != "" {
		if err := controllers(kubeconfig); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if err := flag.Set("test.parallel", worldsAtOnce); err != nil { // -parallel comes later, and counts
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(buildAndRun(m))
}

// controllers are those of dayone-controller with --node-agent, without a lease to wait for after each kill.
func controllers(kubeconfig string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := logrus.NewEntry(logrus.New())
	ctrllog.SetLogger(logrusr.New(log))
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	scheme, err := kubetest.NewScheme()
	if err != nil {
		return err
	}
	cfg.QPS = -1
	// The rights name the objects: what is watched does, too.
	watched := cache.Options{ByObject: optin.CacheOptions(cluster.DefaultNamespace)}
	m, err := ctrl.NewManager(cfg, ctrl.Options{Scheme: scheme, Cache: watched,
		Client:     client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}},
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: kubetest.Controllers()})
	if err != nil {
		return err
	}
	err = errors.Join(
		rendercontroller.SetupWithManager(m, rendercontroller.Options{Log: log, Versions: render.VersionsOf("v0.0.0-test"),
			Settle: settle}),
		nodecontroller.SetupWithManager(m, nodecontroller.Options{Log: log,
			Preflight: nodecontroller.ImageCheck{Client: m.GetClient()}, Foreseen: true}),
		draincontroller.SetupWithManager(m, draincontroller.Options{Log: log}),
		disruptioncontroller.SetupWithManager(m, disruptioncontroller.Options{Log: log}))
	if err != nil {
		return err
	}
	return m.Start(ctx)
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "dayone-wholesystem-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	agentProgram = filepath.Join(dir, "dayone-daemon")
	o := program.Options{Package: "dayone.dev/dayone/cmd/dayone-daemon"}
	if err := program.Build(context.Background(), "", o, agentProgram); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return shared.Main(m, kubetest.Options{})
}
