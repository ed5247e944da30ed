package cluster

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/cmd/internal/connect"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/rebase/rollout"
)

// sourceFlags say where the objects of a question come from: a live cluster or a dump of one.
type sourceFlags struct {
	*connect.Flags
	// from is a dump's directory, a kubeconfig, or nothing.
	from string
	// at is the moment that is asked about, RFC 3339; empty: now.
	at string
}

func (f *sourceFlags) add(cmd *cobra.Command) {
	s := cmd.Flags()
	s.StringVar(&f.from, "from", "",
		"directory of objects as kubectl get -o yaml or must-gather write them, or a kubeconfig file; default: the "+
			"live cluster")
	s.StringVar(&f.at, "at", "", "the moment to answer for, such as 2026-01-31T22:00:00Z; default: now")
}

// source is where objects are read, and the moment that is asked about.
type source struct {
	lister
	// name is for people: the directory, or the cluster's address.
	name string
	at   time.Time
	// deferred are nodes that go last, with the reason; known of live clusters only.
	deferred map[string]string
	recorded bool
	version  string
}

// moment is the one that is asked about.
func (f *sourceFlags) moment() (time.Time, error) {
	if f.at == "" {
		return time.Now(), nil
	}
	at, err := time.Parse(time.RFC3339, f.at)
	if err != nil {
		return at, cli.Usagef("--at %q: write it like 2026-01-31T22:00:00Z", f.at)
	}
	return at, nil
}

// open reaches the cluster or reads the dump.
func (f *sourceFlags) open(ctx context.Context) (*source, error) {
	at, err := f.moment()
	if err != nil {
		return nil, err
	}
	s := &source{at: at, version: f.Version}
	flags := *f.Flags
	if f.from != "" {
		if _, err := os.Stat(f.from); err != nil {
			return nil, fmt.Errorf("read --from (a directory of objects, or a kubeconfig): %w", err)
		}
		if isDirectory(f.from) {
			d, err := readDump(f.from)
			if err != nil {
				return nil, err
			}
			s.lister, s.name, s.recorded = d, f.from, true
			return s, nil
		}
		flags.Kubeconfig = f.from
	}
	api, cfg, err := flags.Client()
	if err != nil {
		return nil, err
	}
	s.lister, s.name = api, cfg.Host
	s.deferred = controllerNode(ctx, api, f.Namespace)
	return s, nil
}

// controllerNode is the node that the controller at work runs on, which goes last in its pool. Who may not see it plans
// without.
func controllerNode(ctx context.Context, api client.Client, namespace string) map[string]string {
	var lease coordinationv1.Lease
	if api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: cluster.Controller}, &lease) != nil ||
		lease.Spec.HolderIdentity == nil {
		return nil
	}
	// The holder is the pod's name, an underscore and a random part (controller-runtime, pkg/leaderelection).
	name, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
	var pod corev1.Pod
	if api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &pod) != nil || pod.Spec.NodeName == "" {
		return nil
	}
	return map[string]string{pod.Spec.NodeName: "the controller itself runs on it"}
}

// rolloutObjects reads what decides about a rollout.
func (s *source) rolloutObjects(ctx context.Context) (*rollout.Cluster, error) {
	var pools mcfgv1.MachineConfigPoolList
	var nodes corev1.NodeList
	var configs mcfgv1.MachineOSConfigList
	var builds mcfgv1.MachineOSBuildList
	var records mcfgv1.MachineConfigNodeList
	for _, kind := range []struct {
		name     string
		list     client.ObjectList
		required bool
	}{{"MachineConfigPools", &pools, true}, {"Nodes", &nodes, true}, {"MachineOSConfigs", &configs, false},
		{"MachineOSBuilds", &builds, false}, {"MachineConfigNodes", &records, false}} {
		// A cluster may lack the kinds of layering altogether; pools and nodes it must have.
		if err := s.List(ctx, kind.list); err != nil && !meta.IsNoMatchError(err) {
			return nil, fmt.Errorf("read %s of %s: %w", kind.name, s.name, err)
		}
		if kind.required && meta.LenList(kind.list) == 0 {
			return nil, fmt.Errorf("read %s: there are no %s in it: %s", s.name, kind.name, s.advice())
		}
	}
	return &rollout.Cluster{Pools: pools.Items, Nodes: rollout.Pointers(nodes.Items), Configs: configs.Items,
		Builds: builds.Items, Records: rollout.Pointers(records.Items), Deferred: s.deferred}, nil
}

func (s *source) advice() string {
	if !s.recorded {
		return "is it the right cluster?"
	}
	return "write them with kubectl get nodes,machineconfigpools,machineosconfigs,machineosbuilds,machineconfignodes " +
		"-o yaml > DIR/cluster.yaml"
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
