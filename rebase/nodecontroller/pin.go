package nodecontroller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/pinnedimages"
)

// workerPool is the pool whose PinnedImageSets also hold on nodes of other pools that it selects, as in MCO.
const (
	workerPool = "worker"
	// masterPool takes its nodes for itself alone.
	masterPool = "master"
)

// pin tells nodes which PinnedImageSets, in which generation, they must have. Nodes that never had one are not told
// that they have none.
func pin(ctx context.Context, w *writer, d *decision) (time.Duration, error) {
	own, err := pinned(ctx, w.client, d.Object)
	if err != nil {
		return 0, err
	}
	both, workers := own, labels.Nothing()
	if d.Object.Name != workerPool && d.Object.Name != masterPool {
		if both, workers, err = withWorkers(ctx, w.client, d.Object); err != nil {
			return 0, err
		}
	}
	var errs []error
	for name, n := range d.Objects {
		wanted := own
		if workers.Matches(labels.Set(n.Labels)) {
			wanted = both
		}
		have, told := n.Annotations[manifests.AnnotationPinnedImageSets]
		if have == wanted && (told || wanted == "") {
			continue
		}
		err := w.annotate(ctx, name, map[string]*string{manifests.AnnotationPinnedImageSets: &wanted})
		if client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("tell node %s its pinned images: %w", name, err))
		}
	}
	return 0, errors.Join(errs...)
}

// withWorkers lists the sets of a pool's nodes that the worker pool selects, too, and gives its selector.
func withWorkers(ctx context.Context, api client.Reader, pool *mcfgv1.MachineConfigPool) (string, labels.Selector,
	error) {
	worker := &mcfgv1.MachineConfigPool{}
	err := api.Get(ctx, client.ObjectKey{Name: workerPool}, worker)
	if apierrors.IsNotFound(err) {
		return "", labels.Nothing(), nil
	}
	if err != nil {
		return "", nil, fmt.Errorf("read pool %s: %w", workerPool, err)
	}
	selector, err := metav1.LabelSelectorAsSelector(worker.Spec.NodeSelector)
	if err != nil || selector.Empty() {
		return "", labels.Nothing(), nil //nolint:nilerr // the worker pool's own status says it
	}
	sets, err := pinned(ctx, api, pool, worker)
	return sets, selector, err
}

// pinned lists the sets of pools for nodes.
func pinned(ctx context.Context, api client.Reader, pools ...*mcfgv1.MachineConfigPool) (string, error) {
	var failure error
	refs := pinnedimages.Wanted(pools, func(name string) int64 {
		var set mcfgv1.PinnedImageSet
		err := api.Get(ctx, client.ObjectKey{Name: name}, &set)
		if client.IgnoreNotFound(err) != nil && !meta.IsNoMatchError(err) {
			failure = fmt.Errorf("read PinnedImageSet %s: %w", name, err)
		}
		return set.Generation
	})
	return pinnedimages.Encode(refs), failure
}

// pinsDegraded names the nodes that cannot pin their images; not ok: no node has, or had, any.
func pinsDegraded(d *decision) (c mcfgv1.MachineConfigPoolCondition, ok bool) {
	var words []string
	named := 0
	for i := range d.Nodes {
		name := d.Nodes[i].Name
		if d.Objects[name] == nil {
			continue
		}
		annotations := d.Objects[name].Annotations
		if _, told := annotations[manifests.AnnotationPinnedImageSets]; told {
			ok = true
		}
		why := annotations[manifests.AnnotationPinnedImageSetsError]
		if why == "" {
			continue
		}
		if named++; named <= maxNamed {
			words = append(words, fmt.Sprintf("node %s: %s", name, why))
		}
	}
	if named > maxNamed {
		words = append(words, fmt.Sprintf("and %d more", named-maxNamed))
	}
	reason := "AsExpected"
	if named > 0 {
		reason = "PrefetchFailed"
	}
	return condition(mcfgv1.MachineConfigPoolPinnedImageSetsDegraded, named > 0, reason, strings.Join(words, "; ")), ok
}
