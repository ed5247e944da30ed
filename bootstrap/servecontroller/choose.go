package servecontroller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"dayone.dev/dayone/bootstrap/serve"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/firstboot"
	"dayone.dev/dayone/rebase/nodestate"
	"dayone.dev/dayone/rebase/rollout"
	"dayone.dev/dayone/rebase/target"
	"dayone.dev/dayone/registry/credentials"
)

// options let every copy work: a server must answer whether it holds the lease or not.
func options() controller.Options {
	no := false
	return controller.Options{NeedLeaderElection: &no}
}

// pool is what a pool's new nodes get now. What they would have to boot a third time for is not served: they wait for
// it.
func (r *Reconciler) pool(ctx context.Context, c *rollout.Cluster, look *rollout.PoolView,
	registry clusterRegistry) (serve.RenderedPool, error) {
	target, err := choose(c, look)
	if err != nil {
		return serve.RenderedPool{Err: err}, nil
	}
	var mc mcfgv1.MachineConfig
	if err := r.client.Get(ctx, client.ObjectKey{Name: target.Config}, &mc); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return serve.RenderedPool{Err: fmt.Errorf("rendered config %s of pool %s does not exist", target.Config,
				look.Object.Name)}, nil
		}
		return serve.RenderedPool{}, fmt.Errorf("read rendered config %s: %w", target.Config, err)
	}
	served := serve.RenderedPool{Config: dress(&mc, target.Image)}
	if r.o.FirstBoot != nil && target.Image != "" {
		addition, choices, err := r.dressed(target.Image, registry)
		if err != nil {
			return serve.RenderedPool{Err: err}, nil
		}
		served.Additions, served.Choices = []ign35.Config{addition}, choices
	}
	return served, nil
}

// firstBoot is what a layered node needs beside its config to boot its image with its second boot: the agent,
// credentials and, when the registry is inside the cluster, a way to it.
func (r *Reconciler) firstBoot(image string, o firstboot.IgnitionOptions) (ign35.Config, error) {
	if r.o.Proxy != nil && inCluster(image) {
		path, err := r.o.Proxy.Allow(image)
		if err != nil {
			return ign35.Config{}, err
		}
		repository, _, _ := strings.Cut(image, "@")
		o.Mirrors = append(slices.Clone(o.Mirrors), firstboot.Mirror{Repository: repository, Location: r.o.ProxyAddress +
			"/" + path})
		o.RegistryCA, o.Config.Registry = r.o.ProxyCA, r.o.ProxyAddress
		account, err := credentials.Encode(credentials.Account{Username: NodeUser, Password: r.o.Proxy.Password},
			r.o.ProxyAddress)
		if err != nil {
			return ign35.Config{}, err
		}
		if o.PullAuth, err = credentials.Merge(o.PullAuth, account); err != nil {
			return ign35.Config{}, err
		}
	}
	return firstboot.Ignition(o)
}

// choose picks the config and image of a pool's new nodes: the pool's target once one of its nodes runs it, or when it
// surely has no nodes at all or is all there is; until then what all nodes had before, so that no new node boots
// an image that no node has proved.
func choose(c *rollout.Cluster, look *rollout.PoolView) (target.Target, error) {
	pool := look.Object
	target := look.Pool.Target
	settled := pool.Status.Configuration.Name
	waits := look.Building || target.Config == ""
	proven := len(look.Nodes) == 0 && look.Doubt == "" || slices.ContainsFunc(look.Nodes, func(n rollout.Node) bool {
		return n.Record.State == nodestate.StateDone && n.Record.CurrentConfig == target.Config &&
			n.Record.CurrentImage == target.Image
	})
	if !waits && look.RefusedImage() == "" && (proven || settled == "" || settled == target.Config && !look.Layered) {
		return target, nil
	}
	if before, found := earlier(c, look, settled); found {
		return before, nil
	}
	switch {
	case target.Config == "":
		return target, fmt.Errorf("pool %s has no rendered config yet", pool.Name)
	case look.Pool.Hold != "":
		return target, errors.New(look.Pool.Hold)
	case look.RefusedImage() != "":
		return target, errors.New(look.RefusedImage())
	}
	return target, nil
}

// earlier is what the pool's nodes had before its target: its settled config with the image that some node runs with
// it. In a layered pool a config without an image does not count: the node would boot once more for it.
func earlier(c *rollout.Cluster, look *rollout.PoolView, config string) (target.Target, bool) {
	if config == "" {
		return target.Target{}, false
	}
	for _, n := range look.Nodes {
		if n.Record.State == nodestate.StateDone && n.Record.CurrentConfig == config &&
			(n.Record.CurrentImage != "" || !look.Layered) {
			return target.Target{Config: config, Image: n.Record.CurrentImage}, true
		}
	}
	for i := range c.Builds {
		b := &c.Builds[i]
		if b.Labels[manifests.LabelRenderedMachineConfig] == manifests.LabelValue(config) &&
			b.Labels[manifests.LabelTargetPool] == manifests.LabelValue(look.Object.Name) &&
			meta.IsStatusConditionTrue(b.Status.Conditions, string(mcfgv1.MachineOSBuildSucceeded)) {
			return target.Target{Config: config, Image: string(b.Status.DigestedImagePushSpec)}, true
		}
	}
	return target.Target{Config: config}, !look.Layered
}

// dress gives the config as bootstrap serves it: without what the API server has added, and with the image that the
// node boots.
func dress(mc *mcfgv1.MachineConfig, image string) *mcfgv1.MachineConfig {
	out := &mcfgv1.MachineConfig{
		TypeMeta: metav1.TypeMeta{APIVersion: mcfgv1.GroupVersion.String(), Kind: "MachineConfig"},
		ObjectMeta: metav1.ObjectMeta{Name: mc.Name, Labels: maps.Clone(mc.Labels), Annotations: maps.Clone(mc.Annotations),
			OwnerReferences: slices.Clone(mc.OwnerReferences)},
	}
	mc.Spec.DeepCopyInto(&out.Spec)
	for i := range out.OwnerReferences {
		out.OwnerReferences[i].UID = "" // at bootstrap it is empty
	}
	// The annotation is how the server tells the node that it is layered, and with which image.
	delete(out.Annotations, manifests.AnnotationPreBuiltImage)
	if image != "" {
		if out.Annotations == nil {
			out.Annotations = map[string]string{}
		}
		out.Annotations[manifests.AnnotationPreBuiltImage], out.Spec.OSImageURL = image, image
	}
	return out
}

// same compares what is served by meaning; errors by their text.
func same(a, b *serve.Rendered) bool {
	if a.Err != b.Err || len(a.Pools) != len(b.Pools) || !reflect.DeepEqual(a.TLS, b.TLS) ||
		string(a.KubeletCA) != string(b.KubeletCA) || string(a.CloudCA) != string(b.CloudCA) {
		return false
	}
	for name, p := range a.Pools {
		q, found := b.Pools[name]
		if !found || fmt.Sprint(p.Err) != fmt.Sprint(q.Err) || !reflect.DeepEqual(p.Config, q.Config) ||
			!reflect.DeepEqual(p.Additions, q.Additions) || !reflect.DeepEqual(p.Choices, q.Choices) {
			return false
		}
	}
	return true
}
