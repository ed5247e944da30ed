package daemon_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/rebase/nodedisk"
)

func (f *fixture) write(path, text string) {
	f.Helper()
	require.NoError(f, os.MkdirAll(filepath.Dir(filepath.Join(f.m.root, path)), 0o755))
	require.NoError(f, os.WriteFile(filepath.Join(f.m.root, path), []byte(text), 0o644))
}

// enables makes a config enable units whose text the OS has.
func enables(mc *mcfgv1.MachineConfig, units ...string) *mcfgv1.MachineConfig {
	return change(mc, func(c *ign35.Config) {
		for _, name := range units {
			c.Systemd.Units = append(c.Systemd.Units, ign35.Unit{Name: name, Enabled: new(true)})
		}
	})
}

// trouble is one place at which applying fails, and the way out of it.
type trouble struct {
	make, end func(*fixture)
}

// troubles are in the order of what applying does: accounts, files one by one, units, the image.
func troubles() map[string]trouble {
	const enable = "--no-reload enable new.service"
	block := func(path string) trouble {
		return trouble{func(f *fixture) {
			require.NoError(f, os.RemoveAll(filepath.Join(f.m.root, path)))
			f.write(path, "a file where a directory has to be")
		},
			func(f *fixture) { require.NoError(f, os.Remove(filepath.Join(f.m.root, path))) }}
	}
	return map[string]trouble{
		"accounts":      {func(*fixture) {}, func(f *fixture) { f.core() }},
		"a-file-before": block("/etc/early"),
		"a-file-after":  block("/etc/late"),
		"a-unit": {func(f *fixture) { f.m.fails = map[string]error{enable: errors.New("no")} },
			func(f *fixture) { f.m.fails = nil }},
		"the-image": {func(f *fixture) { f.m.refuse = errors.New("no") }, func(f *fixture) { f.m.refuse = nil }},
		"killed":    {func(*fixture) {}, func(*fixture) {}},
	}
}

// TestApplyingThatFailsAnywhere fails and kills the agent inside of applying, and lets it go on to the same target, to
// another, or back: what the node had itself comes back.
func TestApplyingThatFailsAnywhere(t *testing.T) {
	for name, c := range troubles() {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.write("/etc/own", "the node's")
			f.write("/etc/once", "given back once")
			first := rendered("rendered-tried-1", "/etc/a=1", "/etc/once=1")
			first.Spec.OSImageURL = image(1)
			f.join(rendered("rendered-tried-0", "/etc/a=1"), "")
			f.aim(first, "")
			f.settle()
			if name != "accounts" {
				f.core()
			}
			second := enables(withKeys(rendered("rendered-tried-2", "/etc/a=2", "/etc/early/a=2", "/etc/late/a=2", "/etc/new=2",
				"/etc/own=2"), "ssh-ed25519 AAA one"), "new.service")
			second.Spec.OSImageURL = image(2)
			try := func() {
				f.aim(second, "")
				if c.make(f); name == "killed" {
					f.reaches("Applying")
					require.NoError(t, nodedisk.AddPending(f.m.root, nodedisk.Current{Config: second}))
				} else {
					require.Error(t, f.fails())
				}
				f.restart()
			}
			theNodes := func(now string) {
				t.Helper()
				assert.Equal(t, "the node's", f.read("/etc/own"), now)
				assert.Equal(t, "(none)", f.read("/etc/new"), now)
			}
			try()
			if f.aim(first, ""); f.m.refuse != nil {
				c.end(f) // the way back needs a deployment, too
			}
			f.settle()
			theNodes("taken back")
			assert.Equal(t, "1", f.read("/etc/once"))
			assert.Equal(t, "1", f.read("/etc/a"))

			c.end(f)
			f.aim(second, "")
			f.settle()
			assert.Equal(t, "2", f.read("/etc/own"))
			assert.Equal(t, "given back once", f.read("/etc/once"))
			f.aim(first, "")
			f.settle()
			theNodes("there and back")

			if name != "accounts" {
				try()
				c.end(f)
				f.settle()
				assert.Equal(t, "2", f.read("/etc/own"))
				none := rendered("rendered-tried-3")
				none.Spec.OSImageURL = image(1)
				f.aim(none, "")
				f.settle()
				theNodes("it was tried twice")
				assert.Equal(t, "given back once", f.read("/etc/once"))
			}
			assert.NoFileExists(t, filepath.Join(f.m.root, nodedisk.PendingPath))
		})
	}
}

func TestWhatSeveralPlansBeganIsTakenBack(t *testing.T) {
	f := newFixture(t)
	keys := f.core()
	f.join(rendered("rendered-several-0", "/etc/a=0"), "")
	one := enables(withKeys(rendered("rendered-several-1", "/etc/a=1", "/etc/one=1"), "ssh-ed25519 AAA one"),
		"one.service")
	one.Spec.OSImageURL = image(1)
	link := filepath.Join(f.m.root, "/etc/systemd/system/multi-user.target.wants/one.service")
	require.NoError(t, os.MkdirAll(filepath.Dir(link), 0o755))
	f.m.refuse = errors.New("registry gone")
	f.aim(one, "")
	require.ErrorContains(t, f.fails(), "registry gone")
	require.NoError(t, os.Symlink("/usr/lib/systemd/system/one.service", link)) // systemctl is a stand-in
	require.Equal(t, "1", f.read("/etc/one"))

	two := rendered("rendered-several-2", "/etc/a=2", "/etc/early/two=2")
	two.Spec.OSImageURL = image(2)
	f.write("/etc/early", "a file where a directory has to be")
	f.aim(two, "")
	for range limit {
		if f.read("/etc/a") == "2" {
			break
		}
		_ = f.step()
	}
	require.Equal(t, "2", f.read("/etc/a"), "the second plan had begun")
	f.restart()
	require.NoError(t, os.Remove(filepath.Join(f.m.root, "/etc/early")))
	f.m.refuse = nil
	f.settle()
	assert.Equal(t, image(2), f.m.booted)
	assert.Equal(t, "2", f.read("/etc/a"))
	assert.Equal(t, "(none)", f.read("/etc/one"), "what the first plan brought is gone")
	assert.Empty(t, f.read(keys), "and the key with which somebody could log in")
	_, err := os.Lstat(link)
	assert.ErrorIs(t, err, os.ErrNotExist)
}

// TestPodsThatCameBackLeaveBeforeTheReboot has an admin who lets pods come again while the node cannot pull.
func TestPodsThatCameBackLeaveBeforeTheReboot(t *testing.T) {
	f := newFixture(t)
	f.join(rendered("rendered-undone-1", "/etc/a=1"), image(1))
	f.m.refuse = errors.New("registry gone")
	f.aim(rendered("rendered-undone-2", "/etc/a=2"), image(2))
	require.ErrorContains(t, f.fails(), "registry gone")
	n := f.object()
	require.True(t, n.Spec.Unschedulable)
	was := n.DeepCopy()
	n.Spec.Unschedulable = false
	require.NoError(t, f.env.Client.Patch(t.Context(), n, client.MergeFrom(was)))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: f.name},
		Spec: corev1.PodSpec{NodeName: f.name, Containers: []corev1.Container{{Name: "a", Image: "a"}}}}
	f.create(pod) // no kubelet says that it has ended
	require.ErrorContains(t, f.step(), "registry gone")
	f.m.refuse = nil
	for range 10 {
		require.NoError(t, f.step())
	}
	assert.Zero(t, f.m.boots, "the pod is there still")
	assert.False(t, f.m.rebooting)
	assert.True(t, f.object().Spec.Unschedulable)
	require.NoError(t, f.env.Client.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	f.settle()
	assert.Equal(t, 1, f.m.boots)
	assert.Equal(t, image(2), f.m.booted)
}
