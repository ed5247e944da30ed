package day1

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/bootstrap/handover"
	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/registry/registrytest"
	"dayone.dev/dayone/registry/transfer"
)

// bootstrapped is a host that has an image in its registry and a plan that gives it to a final registry.
func bootstrapped(t *testing.T, final *registrytest.Registry) (h *host, image string) {
	t.Helper()
	h = newHost(t)
	require.NoError(t, os.MkdirAll(h.StateDir, 0o700))
	id, err := loadIdentity(h.StateDir, h.Registry)
	require.NoError(t, err)
	r, err := startRegistry(t.Context(), h.Host, id)
	require.NoError(t, err)
	repository := final.Addr + "/ocp/base-os"
	base, err := r.Import(t.Context(), transfer.Endpoint{Reference: h.base.Reference, CAFile: h.source.CAFile,
		AuthFile: h.source.PullAuthFile}, repository, "base-1")
	require.NoError(t, err)
	r.stop()
	push, err := os.ReadFile(final.PushAuthFile)
	require.NoError(t, err)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "push"},
		Data: map[string][]byte{corev1.DockerConfigJsonKey: push}}
	plan := handover.Plan{Registry: h.Registry, Platform: h.Platform, Set: &manifests.Set{
		Secrets: []manifests.Item[*corev1.Secret]{manifests.NewItem(secret)}},
		Images: []handover.Image{{Repository: repository, Digest: base.Digest, Tags: []string{"day1"}, Secret: "push"}},
		Pools:  []handover.Pool{{Name: "master", Config: "rendered-master-1"}}}
	require.NoError(t, plan.Write(h.PlanDir()))
	return h, repository + "@" + base.Digest
}

// handsOver runs dayone handover until it waits for the cluster, which has not come yet.
func (h *host) handsOver(final *registrytest.Registry, look func()) error {
	ctx, cancel := context.WithCancel(h.t.Context())
	defer cancel()
	o := HandOverOptions{StateDir: h.StateDir, Log: h.Log, Observe: func(e handover.Event) {
		if e.Stage == handover.StageObjects && e.Waiting != "" {
			look()
			cancel()
		}
	}}
	o.FinalCAFile, o.Kubeconfig, o.Deadline = final.CAFile, filepath.Join(h.t.TempDir(), "none"), time.Hour
	o.Policy = handover.PolicyDeadline
	return RunHandOver(ctx, o)
}

func (h *host) arrived(final *registrytest.Registry, image string) {
	h.t.Helper()
	_, err := transfer.Inspect(h.t.Context(), transfer.Endpoint{Reference: image, CAFile: final.CAFile,
		AuthFile: final.PullAuthFile}, h.Platform)
	require.NoError(h.t, err)
}

// Without a bootstrap that runs, the images are read from the state directory, which is locked meanwhile.
func TestHandOverFromStateDirectory(t *testing.T) {
	t.Setenv("NO_PROXY", "")
	t.Setenv("no_proxy", "")
	final := registrytest.Start(t)
	h, image := bootstrapped(t, final)
	auth := identityFiles(h.StateDir).PullAuth + loopbackEnd
	locked := false
	log, said := newLog()
	h.Log = log
	err := h.handsOver(final, func() {
		var err error
		locked, err = journal.Running(h.StateDir)
		require.NoError(t, err)
		info, err := os.Stat(auth)
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
		// The next process empties this directory, should this one be killed now.
		credentials, err := filepath.Glob(filepath.Join(h.StateDir, scratchDir, "handover-*", "*.json"))
		require.NoError(t, err)
		assert.NotEmpty(t, credentials)
	})
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "does not exist yet")
	assert.True(t, locked)
	h.arrived(final, image)
	assert.NoFileExists(t, auth)
	assert.NotContains(t, said(), "warning: credential of the hand-over was not removed")
	running, err := journal.Running(h.StateDir)
	require.NoError(t, err)
	assert.False(t, running)
	assert.Equal(t, "127.0.0.1", os.Getenv("NO_PROXY"))
}

// A bootstrap that runs goes on serving, and its registry is the one that is read.
func TestHandOverBesideABootstrap(t *testing.T) {
	final := registrytest.Start(t)
	h, image := bootstrapped(t, final)
	unlock, err := journal.Lock(h.StateDir)
	require.NoError(t, err)
	defer unlock()
	id, err := loadIdentity(h.StateDir, h.Registry)
	require.NoError(t, err)
	r, err := startRegistry(t.Context(), h.Host, id)
	require.NoError(t, err)
	defer r.stop()
	assert.Equal(t, handover.Source{Host: h.Registry, CAFile: id.CAFile, AuthFile: id.PullAuth}, r.Source())
	err = h.handsOver(final, func() { assert.NoFileExists(t, id.PullAuth+loopbackEnd) })
	require.ErrorIs(t, err, context.Canceled)
	h.arrived(final, image)
}

func TestExpectedNodes(t *testing.T) {
	pools := []handover.Pool{{Name: "master", Nodes: 3}, {Name: "worker", Nodes: 2}, {Name: "infra", Nodes: 1}}
	expect(pools, map[string]int{"worker": 5, "infra": 0, "none": 7})
	assert.Equal(t, []handover.Pool{{Name: "master", Nodes: 3}, {Name: "worker", Nodes: 5}, {Name: "infra"}}, pools)
}

func TestHandOverCannotBegin(t *testing.T) {
	final := registrytest.Start(t)
	none := filepath.Join(t.TempDir(), "none")
	err := RunHandOver(t.Context(), HandOverOptions{StateDir: none})
	require.ErrorIs(t, err, handover.ErrNoPlan)
	require.ErrorContains(t, err, "hand over from "+none)

	for _, c := range []struct {
		name, file, content, says string
	}{
		{"lock that cannot be read", "lock/x", "", "open state lock"},
		{"state of another host", hostFile, "another\n", "copied from another host"},
		{"broken mark", handover.MarkFile, "{", handover.MarkFile},
		{"cut password", filepath.Join(identityDir, pullUser+passwordEnd), "short", "has 5 characters"},
		{"broken registry", RegistryDir, "no directory", "registry"},
		{"no place for the credential", filepath.Join(identityDir, pullAuthFile+loopbackEnd, "x"), "", loopbackEnd},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, _ := bootstrapped(t, final)
			log, said := newLog()
			h.Log = log
			require.NoError(t, os.RemoveAll(h.Path(c.file)))
			require.NoError(t, os.MkdirAll(filepath.Dir(h.Path(c.file)), 0o700))
			require.NoError(t, os.WriteFile(h.Path(c.file), []byte(c.content), 0o600))
			err := h.handsOver(final, func() { t.Error("it has begun") })
			require.ErrorContains(t, err, c.says)
			running, err := journal.Running(h.StateDir)
			require.NoError(t, err)
			assert.False(t, running, "the lock is dropped")
			left := slices.Contains(said(), "warning: credential of the hand-over was not removed")
			assert.Equal(t, c.says == loopbackEnd, left)
		})
	}
}

// After a hand-over the accounts stay revoked when the hand-over runs again.
func TestEndOfHandOver(t *testing.T) {
	dir := t.TempDir()
	id, err := loadIdentity(dir, "192.0.2.1:5000")
	require.NoError(t, err)
	require.NoError(t, End(dir, "192.0.2.1:5000", "the cluster keeps it"))
	assert.NoFileExists(t, id.PushAuth)
	mark, err := handover.ReadMark(dir)
	require.NoError(t, err)
	assert.Equal(t, "192.0.2.1:5000", mark.Registry)
	assert.Equal(t, "the cluster keeps it", mark.Instead)
	require.WithinDuration(t, time.Now(), mark.Time, time.Hour)

	require.NoError(t, os.WriteFile(id.PushAuth, nil, 0o600)) // a process that was killed leaves it
	require.NoError(t, RunHandOver(t.Context(), HandOverOptions{StateDir: dir}))
	assert.NoFileExists(t, id.PushAuth)
	require.ErrorContains(t, End(filepath.Join(dir, "none"), "", ""), "write the mark")
}

// What a later process finds of the hand-over's phase.
func TestEndedLeavesWhatIsSettled(t *testing.T) {
	dir := t.TempDir()
	mark, err := Ended(dir, "hand-over")
	require.NoError(t, err)
	require.Nil(t, mark)
	require.NoError(t, handover.Mark{Time: time.Now().UTC()}.Write(dir))
	mark, err = Ended(dir, "hand-over")
	require.NoError(t, err, "an unknown phase is no error")
	require.NotNil(t, mark)

	j, err := journal.Open(dir)
	require.NoError(t, err)
	before := time.Unix(1_700_000_000, 0).UTC()
	j.Records = []journal.Record{{Name: "hand-over", Status: journal.StatusDone, Finished: before}}
	require.NoError(t, j.Save())
	_, err = Ended(dir, "hand-over")
	require.NoError(t, err)
	j, err = journal.Open(dir)
	require.NoError(t, err)
	assert.True(t, before.Equal(j.Find("hand-over").Finished))
	assert.Zero(t, j.Find("hand-over").Interruptions)

	require.NoError(t, os.WriteFile(filepath.Join(dir, journal.File), []byte("{"), 0o600))
	_, err = Ended(dir, "hand-over")
	require.Error(t, err, "a journal that cannot be read")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, identityDir, pushAuthFile, "x"), 0o700))
	_, err = Ended(dir, "hand-over")
	require.ErrorContains(t, err, "remove credential")
	require.NoError(t, os.WriteFile(filepath.Join(dir, handover.MarkFile), []byte("{"), 0o600))
	_, err = Ended(dir, "hand-over")
	require.ErrorContains(t, err, handover.MarkFile)
}

func TestHostOf(t *testing.T) {
	for _, c := range []struct{ name, address, want string }{
		{"address and port", "192.0.2.1:5000", "192.0.2.1"},
		{"name and port", "boot.example.com:5000", "boot.example.com"},
		{"IPv6", "[2001:db8::1]:5000", "2001:db8::1"},
		{"no port", "boot.example.com", "boot.example.com"},
	} {
		t.Run(c.name, func(t *testing.T) { assert.Equal(t, c.want, hostOf(c.address)) })
	}
}

// What the embedded registry does not hold, or not whole, is named.
func TestHolds(t *testing.T) {
	final := registrytest.Start(t)
	h, image := bootstrapped(t, final)
	id, err := loadIdentity(h.StateDir, h.Registry)
	require.NoError(t, err)
	r, err := startRegistry(t.Context(), h.Host, id)
	require.NoError(t, err)
	t.Cleanup(r.stop)
	repository, digest, _ := strings.Cut(image, "@")
	there, none := r.Name(repository)+"@"+digest, r.Name("x/none")+"@sha256:"+strings.Repeat("1", 64)
	assert.Equal(t, h.Registry+"/ocp/base-os@"+digest, there)
	require.NoError(t, r.HoldsAll(t.Context(), map[string]string{"a": there, "b": there}))
	require.ErrorContains(t, r.HoldsAll(t.Context(), map[string]string{"a": none}), "find "+none+" again")
	require.NoError(t, filepath.WalkDir(h.Path(RegistryDir), func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Name() == "data" {
			if info, err := d.Info(); err == nil && info.Size() > 4096 { // a layer
				return os.Remove(path)
			}
		}
		return err
	}))
	require.ErrorContains(t, r.Holds(t.Context(), there), "is missing")
	_, err = r.Import(t.Context(), transfer.Endpoint{Reference: "oci:/no/such/image"}, "quay.example.com/x", "base-1")
	require.Error(t, err)
	broken := *r
	broken.scratch = filepath.Join(id.CAFile, "x")
	_, err = broken.Import(t.Context(), transfer.Endpoint{}, "quay.example.com/x", "base-1")
	require.ErrorContains(t, err, "make scratch directory")
	broken.Identity = &Identity{CAFile: "none"}
	require.Error(t, broken.Holds(t.Context(), there))
}
