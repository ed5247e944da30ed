package buildcontroller

import (
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build/decide"
	"dayone.dev/dayone/registry/registrytest"
	replicas "dayone.dev/dayone/registry/wanted"
)

func reportWithRoom(t *testing.T, list replicas.List, room int64) string {
	t.Helper()
	r := replicas.NewReport(list, nil, 0, 0)
	r.SetRoom(room)
	text, err := r.Encode()
	require.NoError(t, err)
	return text
}

func TestLeastRoom(t *testing.T) {
	room := func(n int64) replicas.Report { return replicas.Report{RoomBytes: &n} }
	for _, tc := range []struct {
		name    string
		reports map[string]replicas.Report
		room    int64
		nodes   string
	}{
		{"no node", nil, 0, ""},
		{"older registries", map[string]replicas.Report{"a": {}, "b": {}}, 0, ""},
		{"an older one does not count", map[string]replicas.Report{"a": {}, "b": room(7)}, 7, "b"},
		{"the fullest", map[string]replicas.Report{"a": room(9), "b": room(0), "c": room(8)}, 0, "b"},
		{"two of them", map[string]replicas.Report{"a": room(9), "b": room(8), "c": room(8)}, 8, "b c"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, nodes := leastRoom(tc.reports)
			assert.Equal(t, tc.room, got)
			assert.Equal(t, tc.nodes, strings.Join(nodes, " "))
		})
	}
}

// roomFirst: a node whose registry is too full holds a build back before it has a Job, and the pool says why. With room
// for one image only, two pools are built one after the other.
func roomFirst(t *testing.T, w *world) {
	const size = 1 << 30
	w.inCluster = true
	w.restart()
	w.images.size(base, size)
	w.member("m0", true, reportWithRoom(t, replicas.List{}, 4*size))
	w.member("m1", true, reportWithRoom(t, replicas.List{}, size/2))
	w.member("m2", false, reportWithRoom(t, replicas.List{}, 0)) // it is down: what it has is seen when it is back
	w.addPool("worker", "one", plainText)
	w.until("the pool says that there is no room", func() bool {
		return w.degraded("worker") && condition(w.config("worker"), ConditionDegraded).Reason == reasonRegistryFull
	})
	message := condition(w.config("worker"), ConditionDegraded).Message
	assert.Contains(t, message, "takes 1.00 GiB, and the registry of m1 has room for 0.50 GiB; free space")
	w.rest()
	assert.Empty(t, w.runner.runs, "no pod was started")

	w.member("m1", true, reportWithRoom(t, replicas.List{}, size+size/2))
	w.runner.hold = true
	w.until("it begins", func() bool { return len(w.runner.runs) == 1 })
	w.addPool("infra", "two", plainText)
	w.until("the other pool waits", func() bool {
		return condition(w.config("infra"), conditionProgressing).Reason == decide.ReasonQueued
	})
	w.rest()
	assert.Len(t, w.runner.runs, 1)
	assert.False(t, w.degraded("infra"))
	assert.False(t, w.degraded("worker"))
	w.member("m1", true, reportWithRoom(t, replicas.List{}, 2*size))
	w.until("both run", func() bool { return len(w.runner.runs) == 2 })
}

func TestRegistriesSize(t *testing.T) {
	r := registrytest.Start(t)
	image, err := random.Image(2000, 3)
	require.NoError(t, err)
	var want int64
	m, err := image.Manifest()
	require.NoError(t, err)
	for _, blob := range append(m.Layers, m.Config) {
		want += blob.Size
	}
	raw, err := image.RawManifest()
	require.NoError(t, err)
	want += int64(len(raw))
	other, err := random.Image(9000, 1)
	require.NoError(t, err)
	linux := func(arch string) v1.Descriptor {
		return v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}
	}
	index := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: other, Descriptor: linux("arm64")},
		mutate.IndexAddendum{Add: image, Descriptor: linux("amd64")})
	tag := mustTag(t, r.Addr+"/os/base:1")
	require.NoError(t, remote.WriteIndex(tag, index, r.Pusher(t)...))
	single, err := image.Digest()
	require.NoError(t, err)
	access := accessTo(t, r, r.PullAuthFile)
	for _, tc := range []struct {
		name, reference string
		want            int64
	}{
		{"an index", tag.Name(), want},
		{"an image", tag.Repository.Name() + "@" + single.String(), want},
		{"none", tag.Repository.Name() + "@sha256:" + strings.Repeat("1", 64), 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Registries{}.Size(t.Context(), tc.reference, "linux/amd64", access)
			require.NoError(t, err)
			assert.Equal(t, tc.want, got)
		})
	}
	_, err = Registries{}.Size(t.Context(), tag.Name(), "linux/amd64", Access{CA: access.CA})
	assert.Error(t, err, "a registry that refuses has said nothing")
}
