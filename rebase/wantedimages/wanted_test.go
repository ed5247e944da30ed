package wantedimages_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/wantedimages"
	"dayone.dev/dayone/registry/wanted"
)

const host = "api-int.lab.example.com:22626"

func ref(n int) string { return host + "/ns/os@" + string(digest.FromString(fmt.Sprint(n))) }

func node(name string, annotations map[string]string) corev1.Node {
	return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}}
}

func build(name, image string) mcfgv1.MachineOSBuild {
	return mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: mcfgv1.MachineOSBuildStatus{DigestedImagePushSpec: mcfgv1.ImageDigestFormat(image)}}
}

func TestOf(t *testing.T) {
	now := metav1.Now()
	deleted := build("b", ref(1))
	deleted.DeletionTimestamp = &now
	pushed := build("b", "")
	pushed.Annotations = map[string]string{manifests.AnnotationPushedImage: ref(1)}
	pool := mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	pool.Spec.Configuration.Name = "rendered-worker-1"
	rendered := mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "rendered-worker-1"},
		Spec: mcfgv1.MachineConfigSpec{OSImageURL: ref(1)}}
	for _, tc := range []struct {
		name    string
		view    wantedimages.View
		by      []string
		keep    bool
		unknown int
	}{
		{name: "a build", view: wantedimages.View{MachineOSBuilds: []mcfgv1.MachineOSBuild{build("b", ref(1))}},
			by: []string{"MachineOSBuild b"}},
		{name: "a build whose image the registries do not have yet", view: wantedimages.View{
			MachineOSBuilds: []mcfgv1.MachineOSBuild{pushed}}, by: []string{"MachineOSBuild b"}},
		{name: "a deleted build", view: wantedimages.View{MachineOSBuilds: []mcfgv1.MachineOSBuild{deleted}}},
		{name: "a deleted build that a node runs", view: wantedimages.View{MachineOSBuilds: []mcfgv1.MachineOSBuild{deleted},
			Nodes: []corev1.Node{node("n", map[string]string{manifests.AnnotationCurrentImage: ref(1)})}},
			by: []string{"node n (current)"}},
		{name: "a pool's rendered config", view: wantedimages.View{Pools: []mcfgv1.MachineConfigPool{pool},
			MachineConfigs: []mcfgv1.MachineConfig{rendered}}, by: []string{"MachineConfigPool worker (rendered-worker-1)"}},
		{name: "a config that nobody has", view: wantedimages.View{MachineConfigs: []mcfgv1.MachineConfig{rendered}}},
		{name: "a node's config", view: wantedimages.View{MachineConfigs: []mcfgv1.MachineConfig{rendered},
			Nodes: []corev1.Node{node("n", map[string]string{manifests.AnnotationCurrentConfig: "rendered-worker-1"})}},
			by: []string{"node n (current config)"}},
		{name: "a node names what nobody made", view: wantedimages.View{
			Nodes: []corev1.Node{node("n", map[string]string{manifests.AnnotationDesiredImage: ref(1)})}},
			by: []string{"node n (desired, unknown)"}, keep: true, unknown: 1},
		{name: "a node that was off until its build was deleted", view: wantedimages.View{
			MachineOSBuilds: []mcfgv1.MachineOSBuild{}, Nodes: []corev1.Node{node("n", map[string]string{
				manifests.AnnotationCurrentImage: ref(1), manifests.AnnotationDesiredImage: ref(1)})}},
			by: []string{"node n (current, unknown)", "node n (desired, unknown)"}, keep: true, unknown: 2},
		{name: "an administrator's list", view: wantedimages.View{Listed: map[string]string{"os": ref(1) + "\n"}},
			by: []string{"ConfigMap dayone-registry-images (os)"}},
		{name: "a node runs what an administrator has listed", view: wantedimages.View{
			Listed: map[string]string{"os": ref(1)},
			Nodes:  []corev1.Node{node("n", map[string]string{manifests.AnnotationCurrentImage: ref(1)})}},
			by: []string{"ConfigMap dayone-registry-images (os)", "node n (current)"}},
		{name: "a list with names of another registry and by tag", view: wantedimages.View{
			Listed: map[string]string{"os": "quay.example.com/ns/os@" + string(digest.FromString("1")) + " " + host +
				"/ns/os:1"}},
			unknown: 2},
		{name: "of another registry", view: wantedimages.View{MachineOSBuilds: []mcfgv1.MachineOSBuild{
			build("b", "quay.example.com/ns/os@"+string(digest.FromString("1")))}}},
		{name: "by tag", view: wantedimages.View{MachineOSBuilds: []mcfgv1.MachineOSBuild{build("b", host+"/ns/os:1")}}},
		{name: "leaves the root", view: wantedimages.View{Nodes: []corev1.Node{node("n", map[string]string{
			manifests.AnnotationCurrentImage: host + "/../etc@" + string(digest.FromString("1"))})}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			images, unknown := wantedimages.Of(host, tc.view)
			assert.Len(t, unknown, tc.unknown)
			l := wanted.New(time.Now(), images)
			if tc.by == nil {
				assert.Empty(t, l.Images)
				return
			}
			require.Len(t, l.Images, 1)
			assert.Equal(t, tc.by, l.Images[0].By)
			assert.Equal(t, tc.keep, l.Images[0].OnlyKeep)
		})
	}
}

// In any cluster: the order of objects does not matter, what is fetched is what objects other than nodes have made, no
// image that a node names is dropped, and one node more never takes an image from the list.
func TestProperties(t *testing.T) {
	for seed := range uint64(300) {
		dice := rand.New(rand.NewPCG(seed, 1))
		v, made := randomView(dice)
		images, unknown := wantedimages.Of(host, v)
		l := wanted.New(time.Unix(1, 0), images)
		raw, err := l.Encode()
		require.NoError(t, err)

		shuffled := v
		dice.Shuffle(len(v.Nodes), func(i, j int) { v.Nodes[i], v.Nodes[j] = v.Nodes[j], v.Nodes[i] })
		dice.Shuffle(len(v.MachineOSBuilds), func(i, j int) {
			v.MachineOSBuilds[i], v.MachineOSBuilds[j] = v.MachineOSBuilds[j], v.MachineOSBuilds[i]
		})
		again, unknownAgain := wantedimages.Of(host, shuffled)
		rawAgain, err := wanted.New(time.Unix(1, 0), again).Encode()
		require.NoError(t, err)
		require.Equal(t, string(raw), string(rawAgain), "seed %d", seed)
		require.ElementsMatch(t, unknown, unknownAgain)

		listed := map[string]wanted.Image{}
		for _, i := range l.Images {
			listed[host+"/"+i.Name()] = i
			require.Equal(t, made[host+"/"+i.Name()], !i.OnlyKeep, "seed %d: fetched is what somebody made", seed)
		}
		for _, n := range v.Nodes {
			require.Contains(t, listed, n.Annotations[manifests.AnnotationCurrentImage], "seed %d: a node runs it", seed)
		}
		v.Nodes = append(v.Nodes, node("more", map[string]string{manifests.AnnotationDesiredImage: ref(dice.IntN(20))}))
		images, _ = wantedimages.Of(host, v)
		for _, i := range l.Images {
			more := wanted.New(time.Now(), images)
			require.True(t, i.OnlyKeep || more.Has(i.Repository, i.Digest), "seed %d", seed)
		}
	}
}

func randomView(dice *rand.Rand) (v wantedimages.View, made map[string]bool) {
	made = map[string]bool{}
	for i := range dice.IntN(6) {
		image := ref(dice.IntN(20))
		made[image] = true
		v.MachineOSBuilds = append(v.MachineOSBuilds, build(fmt.Sprintf("b%d", i), image))
	}
	for i := range dice.IntN(3) {
		image := ref(dice.IntN(20))
		made[image] = true
		v.MachineOSConfigs = append(v.MachineOSConfigs, mcfgv1.MachineOSConfig{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c%d", i)},
			Status:     mcfgv1.MachineOSConfigStatus{CurrentImagePullSpec: mcfgv1.ImageDigestFormat(image)}})
	}
	for i := range dice.IntN(9) {
		v.Nodes = append(v.Nodes, node(fmt.Sprintf("n%d", i),
			map[string]string{manifests.AnnotationCurrentImage: ref(dice.IntN(20))}))
	}
	return v, made
}
