package gather

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"dayone.dev/dayone/manifests/assets/cluster"
)

// Cluster gathers a cluster's view: objects in resources/, logs of dayone's pods and of builds in pods/. Secrets are never asked for.
type Cluster struct {
	// Config reaches the cluster.
	Config *rest.Config
	// Namespace of the controllers. Default: openshift-machine-config-operator.
	Namespace string
}

// Bounds of one list and one log.
const (
	maxObjects  = 2000
	maxLogBytes = 2 << 20
)

// clusterKinds are what is listed, by file name in resources/.
func clusterKinds() map[string]schema.GroupVersionResource {
	mc := func(resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: "machineconfiguration.openshift.io", Version: "v1", Resource: resource}
	}
	return map[string]schema.GroupVersionResource{
		"nodes":                 {Version: "v1", Resource: "nodes"},
		"machineconfigpools":    mc("machineconfigpools"),
		"machineconfigs":        mc("machineconfigs"),
		"machineosconfigs":      mc("machineosconfigs"),
		"machineosbuilds":       mc("machineosbuilds"),
		"machineconfignodes":    mc("machineconfignodes"),
		"controllerconfigs":     mc("controllerconfigs"),
		"machineconfigurations": {Group: "operator.openshift.io", Version: "v1", Resource: "machineconfigurations"},
		"clusteroperators":      {Group: "config.openshift.io", Version: "v1", Resource: "clusteroperators"},
		"clusterversions":       {Group: "config.openshift.io", Version: "v1", Resource: "clusterversions"},
		"certificatesigningreq": {Group: "certificates.k8s.io", Version: "v1", Resource: "certificatesigningrequests"},
		"events":                {Version: "v1", Resource: "events"},
		"pods":                  {Version: "v1", Resource: "pods"},
		"jobs":                  {Group: "batch", Version: "v1", Resource: "jobs"},
		"poddisruptionbudgets":  {Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"},
		"deployments":           {Group: "apps", Version: "v1", Resource: "deployments"},
		"imagedigestmirrorsets": {Group: "config.openshift.io", Version: "v1", Resource: "imagedigestmirrorsets"},
	}
}

// namespaced are the kinds of which only the controllers' namespace is of interest.
func namespaced(name string) bool {
	return name == "pods" || name == "jobs" || name == "deployments" || name == "events"
}

// Gather writes the bundle; it is given to Write in the place of Host.
func (c Cluster) Gather(ctx context.Context, o Options, w io.Writer) error {
	o = o.withDefaults()
	if err := o.Validate(); err != nil {
		return err
	}
	if c.Namespace == "" {
		c.Namespace = cluster.DefaultNamespace
	}
	objects, err := dynamic.NewForConfig(c.Config)
	if err != nil {
		return fmt.Errorf("reach the cluster: %w", err)
	}
	typed, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		return fmt.Errorf("reach the cluster: %w", err)
	}
	version, err := typed.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("reach the cluster at %s (is the kubeconfig the right one?): %w", c.Config.Host, err)
	}
	a := newArchive(w, o, newScrubber(append(knownSecrets(o), c.Config.BearerToken, c.Config.Password, string(c.Config.KeyData))))
	a.note("cluster %s, version %s", c.Config.Host, version.GitVersion)
	for name, resource := range clusterKinds() {
		if err := c.list(ctx, a, objects, name, resource); err != nil {
			return err
		}
	}
	if err := c.logs(ctx, a, typed); err != nil {
		return err
	}
	return a.close()
}

// list writes the objects of one kind; a kind that the cluster does not have, or that this user may not see, is noted.
func (c Cluster) list(ctx context.Context, a *archive, objects dynamic.Interface, name string, resource schema.GroupVersionResource) error {
	var from dynamic.ResourceInterface = objects.Resource(resource)
	if namespaced(name) {
		from = objects.Resource(resource).Namespace(c.Namespace)
	}
	list, err := from.List(ctx, metav1.ListOptions{Limit: maxObjects})
	if err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("gather: %w", ctx.Err())
		}
		if !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
			a.note("%s: %v", name, err)
		}
		return nil
	}
	if list.GetContinue() != "" {
		a.note("%s: only the first %d are gathered", name, maxObjects)
	}
	for i := range list.Items {
		list.Items[i].SetManagedFields(nil)
	}
	raw, err := json.Marshal(list)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	file := path.Join("resources", name+".json")
	// Everything of the cluster is looked through: any object may quote a MachineConfig.
	return a.add(file, redact(file, raw, a.mask))
}

// logs writes what dayone's pods and builds have printed, also before their last restart.
func (c Cluster) logs(ctx context.Context, a *archive, typed kubernetes.Interface) error {
	pods, err := typed.CoreV1().Pods(c.Namespace).List(ctx, metav1.ListOptions{Limit: maxObjects})
	if err != nil {
		a.note("pods of %s: %v", c.Namespace, err)
		return nil
	}
	var errs []error
	for i := range pods.Items {
		pod := &pods.Items[i]
		if !interesting(pod.Name) {
			continue
		}
		for _, container := range append(append([]corev1.Container{}, pod.Spec.InitContainers...), pod.Spec.Containers...) {
			for _, previous := range []bool{false, true} {
				errs = append(errs, c.log(ctx, a, typed, pod.Name, container.Name, previous))
			}
		}
	}
	return errors.Join(errs...)
}

// interesting says whether a pod is dayone's, a build's or MCO's.
func interesting(name string) bool {
	for _, part := range []string{"dayone", "machine-os-builder", "build-", "machine-config-"} {
		if strings.HasPrefix(name, part) {
			return true
		}
	}
	return false
}

func (c Cluster) log(ctx context.Context, a *archive, typed kubernetes.Interface, pod, container string, previous bool) error {
	limit := int64(maxLogBytes)
	raw, err := typed.CoreV1().Pods(c.Namespace).GetLogs(pod, &corev1.PodLogOptions{Container: container, Previous: previous, LimitBytes: &limit, Timestamps: true}).DoRaw(ctx)
	if err != nil || len(raw) == 0 {
		return nil // most containers have no earlier run, and one that waits has no log
	}
	name := container + ".log"
	if previous {
		name = container + "-previous.log"
	}
	return a.add(path.Join("pods", pod, name), raw)
}
