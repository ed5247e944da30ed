package snapshot

import (
	"context"
	"fmt"
	"strings"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/fleet"
	"dayone.dev/dayone/rebase/forecast"
	"dayone.dev/dayone/rebase/rollout"
)

// Lister lists the objects of a kind: a live cluster's client, or a dump.
type Lister interface {
	List(ctx context.Context, list client.ObjectList, o ...client.ListOption) error
}

// Source is where objects are read.
type Source struct {
	objects Lister
	// name is for people: the directory, or the cluster's address.
	name string
	// deferred are nodes that go last, with the reason; known of live clusters only.
	deferred map[string]string
	recorded bool
	// actor is whose controllers act on the nodes.
	actor disruption.Actor
	// Image foresees the cluster's builder.
	Image forecast.ImageFunc
}

// Live is a cluster; name is its address, namespace that of dayone's controllers.
func Live(ctx context.Context, c client.Reader, name, namespace string) *Source {
	s := &Source{objects: c, name: name, actor: liveActor(ctx, c, time.Now())}
	if s.actor == disruption.ActorMCO {
		s.deferred = fleet.OperatorNode(ctx, c)
	} else {
		s.deferred = controllerNode(ctx, c, namespace)
	}
	return s
}

// Recorded is a dump of a cluster: a directory of objects as kubectl get -o yaml or must-gather write them.
func Recorded(dir string) (*Source, error) {
	d, err := ReadDump(dir)
	if err != nil {
		return nil, err
	}
	return &Source{objects: d, name: dir, recorded: true, actor: recordedActor(context.Background(), d)}, nil
}

// List lists the objects of a kind as they are. Options narrow what a live cluster gives; a dump gives all.
func (s *Source) List(ctx context.Context, list client.ObjectList, o ...client.ListOption) error {
	return s.objects.List(ctx, list, o...)
}

// controllerNode is the node on which the active controller runs, which goes last in its pool. A user without the right
// to see it gets a plan without.
func controllerNode(ctx context.Context, c client.Reader, namespace string) map[string]string {
	var lease coordinationv1.Lease
	if c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: cluster.Controller}, &lease) != nil ||
		lease.Spec.HolderIdentity == nil {
		return nil
	}
	// The holder is the pod's name, an underscore and a random part (controller-runtime, pkg/leaderelection).
	name, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
	var pod corev1.Pod
	if c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &pod) != nil || pod.Spec.NodeName == "" {
		return nil
	}
	return map[string]string{pod.Spec.NodeName: "the controller itself runs on it"}
}

// Read reads what a forecast for the moment is made from.
func (s *Source) Read(ctx context.Context, at time.Time) (forecast.Input, error) {
	in := forecast.Input{Source: s.name, At: at, Recorded: s.recorded, Configs: map[string]*mcfgv1.MachineConfig{},
		Image: s.Image}
	var err error
	if in.Cluster, err = s.rollout(ctx); err != nil {
		return in, err
	}
	if err := s.configs(ctx, &in); err != nil {
		return in, err
	}
	if err := s.bases(ctx, &in); err != nil {
		return in, err
	}
	object, err := machineConfiguration(ctx, s.objects)
	if err == nil {
		in.Unruled = object == nil
		in.Settings, err = disruption.ReadFor(s.actor, object)
		in.Settings.Undrained = disruption.Undrained(fleet.TopologyOf(in.Controller))
	}
	if err != nil {
		return in, fmt.Errorf("read %s: %w", s.name, err)
	}
	if !s.recorded {
		in.Blocking = func(nodes map[string]bool) []string {
			// A user without the right to see pods gets the rest of the answer.
			names, _ := fleet.Blocking(ctx, s.objects, nodes)
			return names
		}
	}
	return in, nil
}

// rollout reads what decides about a rollout.
func (s *Source) rollout(ctx context.Context) (*rollout.Cluster, error) {
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
		if err := listKnown(ctx, s.objects, kind.list); err != nil {
			return nil, fmt.Errorf("read %s of %s: %w", kind.name, s.name, err)
		}
		if kind.required && meta.LenList(kind.list) == 0 {
			return nil, Lacks{s.name, kind.name, s.advice()}
		}
	}
	return &rollout.Cluster{Pools: pools.Items, Nodes: rollout.Pointers(nodes.Items), Configs: configs.Items,
		Builds: builds.Items, Records: rollout.Pointers(records.Items), Deferred: s.deferred, Actor: s.actor}, nil
}

// Lacks is the error of a cluster or a dump that has no pools, or no nodes.
type Lacks struct {
	source string
	// Kind is what it lacks.
	Kind   string
	advice string
}

// Error says what is missing where, and what to do.
func (l Lacks) Error() string {
	return fmt.Sprintf("read %s: there are no %s in it: %s", l.source, l.Kind, l.advice)
}

// configs reads MachineConfigs.
func (s *Source) configs(ctx context.Context, in *forecast.Input) error {
	var configs mcfgv1.MachineConfigList
	if err := s.objects.List(ctx, &configs); err != nil {
		return fmt.Errorf("read MachineConfigs of %s: %w", s.name, err)
	}
	for i := range configs.Items {
		in.Configs[configs.Items[i].Name] = &configs.Items[i]
	}
	return nil
}

// bases reads what names the images that pools' images are built on.
func (s *Source) bases(ctx context.Context, in *forecast.Input) error {
	var controllers mcfgv1.ControllerConfigList
	if err := listKnown(ctx, s.objects, &controllers); err != nil {
		return fmt.Errorf("read ControllerConfig of %s: %w", s.name, err)
	}
	for i := range controllers.Items {
		if controllers.Items[i].Name == render.ControllerConfigName {
			in.Controller = &controllers.Items[i]
		}
	}
	var streams mcfgv1.OSImageStreamList
	if err := listKnown(ctx, s.objects, &streams); err != nil {
		return fmt.Errorf("read OSImageStream of %s: %w", s.name, err)
	}
	for i := range streams.Items {
		if streams.Items[i].Name == render.OSImageStreamName {
			in.Streams = &streams.Items[i]
		}
	}
	return nil
}

func (s *Source) advice() string {
	if !s.recorded {
		return "is it the right cluster?"
	}
	return "write them with kubectl get nodes,machineconfigpools,machineosconfigs,machineosbuilds,machineconfignodes " +
		"-o json > DIR/cluster.json"
}

// listKnown lists objects; of a kind that the cluster does not know there are none.
func listKnown(ctx context.Context, from Lister, list client.ObjectList) error {
	if err := from.List(ctx, list); err != nil && !meta.IsNoMatchError(err) {
		return err
	}
	return nil
}

// Settings reads the MachineConfiguration of a cluster, a dump or an install directory; there may be none.
func Settings(ctx context.Context, from Lister) (disruption.Settings, error) {
	object, err := machineConfiguration(ctx, from)
	if err != nil {
		return disruption.Settings{}, err
	}
	return disruption.Read(object)
}

// machineConfiguration is nil when there is none.
func machineConfiguration(ctx context.Context, from Lister) (*operatorv1.MachineConfiguration, error) {
	var list operatorv1.MachineConfigurationList
	if err := listKnown(ctx, from, &list); err != nil {
		return nil, fmt.Errorf("read MachineConfiguration: %w", err)
	}
	for i := range list.Items {
		if list.Items[i].Name == cluster.MachineConfiguration {
			return &list.Items[i], nil
		}
	}
	return nil, nil
}
