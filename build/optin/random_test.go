package optin

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
)

// steps of the random walk; OPTIN_SEED repeats one.
const randomSteps = 60

// TestRandomSequences edits, deletes and restarts at random, never waiting in between,
// and then compares.
func TestRandomSequences(t *testing.T) {
	w := newWorld(t)
	seed := rand.Uint64()
	if s := os.Getenv("OPTIN_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("OPTIN_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	w.create(secret(cluster.PullSecretNamespace, cluster.PullSecretName, "global"))
	pools := []string{"worker", "infra", "edge"}
	there := map[string]bool{}
	toggle := func(key string, o client.Object) {
		if there[key] = !there[key]; there[key] {
			w.create(o)
		} else {
			w.delete(o)
		}
	}
	for range randomSteps {
		p := pools[random.IntN(len(pools))]
		config := machineOSConfig(p, p)
		config.Spec.RenderedImagePushSecret.Name = "push-" + p
		switch random.IntN(8) {
		case 0, 1, 2:
			toggle("config "+p, config)
		case 3:
			toggle("pool "+p, pool(p))
		case 4:
			toggle("secret "+p, secret(ns, "push-"+p, "p"))
		case 5:
			toggle("job "+p, buildJob("build-"+p, p))
		case 6:
			toggle("build "+p, machineOSBuild(p+"-1", p))
		case 7:
			if random.IntN(3) == 0 {
				w.stop()
				w.start()
			}
		}
	}
	w.settled(pools, there)
	for _, p := range pools { // everybody leaves
		for key, o := range map[string]client.Object{"config " + p: machineOSConfig(p, p), "job " +
			p: buildJob("build-"+p, p), "build " + p: machineOSBuild(p+"-1", p)} {
			if there[key] {
				w.delete(o)
			}
		}
	}
	w.podsGo()
	w.absent(&appsv1.Deployment{}, ns, cluster.Builder)
	w.absent(&corev1.Secret{}, ns, cluster.PullSecretCopy)
}

// settled compares what the controllers made with what is there.
func (w *world) settled(pools []string, there map[string]bool) {
	w.t.Helper()
	configs, in, left := 0, 0, 0
	for _, p := range pools {
		if there["config "+p] {
			configs++
			good := there["pool "+p] && there["secret "+p]
			if good {
				in++
			}
			w.eventually(func(c *assert.CollectT) {
				var config mcfgv1.MachineOSConfig
				w.get(c, &config, "", p)
				assert.Equal(c, good, meta.IsStatusConditionTrue(config.Status.Conditions, manifests.ConditionOptedIn), p)
			})
		}
		for _, kind := range []string{"job ", "build "} {
			if there[kind+p] {
				left++
			}
		}
	}
	w.eventually(func(c *assert.CollectT) {
		err := w.Client.Get(context.Background(), types.NamespacedName{Namespace: ns, Name: cluster.Builder},
			&appsv1.Deployment{})
		running := err == nil
		assert.True(c, running || apierrors.IsNotFound(err))
		switch {
		case in > 0 || (configs == 0 && left > 0):
			assert.True(c, running, "%d in, %d left", in, left)
		case configs == 0:
			w.endPods(c)
			assert.False(c, running, "nobody wants it")
		}
	})
}

// endPods stands in for the kubelet: pods that are told to end are gone.
func (w *world) endPods(c *assert.CollectT) {
	var pods corev1.PodList
	assert.NoError(c, w.Client.List(context.Background(), &pods, client.InNamespace(ns)))
	for i := range pods.Items {
		if pods.Items[i].DeletionTimestamp != nil {
			assert.NoError(c, client.IgnoreNotFound(w.Client.Delete(context.Background(), &pods.Items[i],
				client.GracePeriodSeconds(0))))
		}
	}
}

// podsGo ends pods until the builder's Deployment is gone.
func (w *world) podsGo() {
	w.t.Helper()
	w.eventually(func(c *assert.CollectT) {
		w.endPods(c)
		err := w.Client.Get(context.Background(), types.NamespacedName{Namespace: ns, Name: cluster.Builder},
			&appsv1.Deployment{})
		assert.True(c, apierrors.IsNotFound(err))
	})
}
