package buildcontroller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	replicas "dayone.dev/dayone/registry/wanted"
)

const (
	// replicaPoll is the pause before the control plane's registries are looked at again: nodes are not watched.
	replicaPoll = 5 * time.Second
	// replicaPatience is how long an image may take to reach them before the pool says what holds it up: at the 100 MiB a
	// second that a registry fetches, 30 GiB take this long.
	replicaPatience = 5 * time.Minute
)

// replicated lets a build whose image is in the control plane's own registries succeed when no single loss can lose
// the image. It gives the build, noted with its image so that the registries fetch it, and what holds it up; "" is
// nothing.
func replicated(ctx context.Context, x scope, b *mcfgv1.MachineOSBuild, imageDigest string) (*mcfgv1.MachineOSBuild,
	string, error) {
	repository := installconfig.Repository(string(b.Spec.RenderedImagePushSpec))
	host, path, _ := strings.Cut(repository, "/")
	if x.o.Registry == "" || host != x.o.Registry {
		return b, "", nil
	}
	b, err := patched(ctx, x.api, b, func(b *mcfgv1.MachineOSBuild) {
		annotate(b, manifests.AnnotationPushedImage, repository+"@"+imageDigest)
	})
	if err != nil {
		return b, "", err
	}
	var published corev1.ConfigMap
	err = x.api.live.Get(ctx, client.ObjectKey{Namespace: x.o.Namespace, Name: cluster.RegistryName}, &published)
	if client.IgnoreNotFound(err) != nil {
		return b, "", wrap(err, "read ConfigMap "+cluster.RegistryName)
	}
	list, err := replicas.Decode([]byte(published.Data[replicas.ListFile]))
	if err != nil || !list.Has(path, digest.Digest(imageDigest)) {
		return b, "dayone-controller has not asked the registries for the image yet", nil
	}
	reports, all, err := registryReports(ctx, x.api.live)
	if err != nil {
		return b, "", err
	}
	held, lacks := replicas.Copies(list, path, digest.Digest(imageDigest), reports)
	return b, shortOfCopies(held, lacks, all), nil
}

// shortOfCopies says what is missing: every ready node of a control plane must have the image, and two nodes where
// there are two. all are its nodes, ready or not.
func shortOfCopies(held []string, lacks map[string]string, all int) string {
	if len(lacks) == 0 && len(held) >= min(2, all) && all > 0 {
		return ""
	}
	text := fmt.Sprintf("the image is in %d of the registries of %d ready control-plane nodes", len(held),
		len(held)+len(lacks))
	for _, node := range slices.Sorted(maps.Keys(lacks)) {
		text += "; " + node + ": " + lacks[node]
	}
	if len(lacks) == 0 {
		text += fmt.Sprintf("; of %d nodes too few are ready for a second copy", all)
	}
	return text
}

// registryReports are what the registries of ready control-plane nodes say, and how many such nodes there are, ready or
// not.
func registryReports(ctx context.Context, live client.Reader) (reports map[string]replicas.Report, all int, err error) {
	reports, seen := map[string]replicas.Report{}, map[string]bool{}
	for _, label := range manifests.ControlPlaneLabels() {
		var nodes corev1.NodeList
		if err := live.List(ctx, &nodes, client.HasLabels{label}); err != nil {
			return nil, 0, wrap(err, "list control-plane nodes")
		}
		for i := range nodes.Items {
			n := &nodes.Items[i]
			seen[n.Name] = true
			for _, condition := range n.Status.Conditions {
				if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
					reports[n.Name] = replicas.Reported(n.Annotations[manifests.AnnotationRegistry])
				}
			}
		}
	}
	return reports, len(seen), nil
}
