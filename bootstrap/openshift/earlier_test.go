package openshift_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/bootstrap/day1"
	"dayone.dev/dayone/bootstrap/handover"
	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/bootstrap/openshift"
	"dayone.dev/dayone/bootstrap/phasetest"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests"
)

// accepting is a stand-in for a cluster that takes every object and counts how often it gets some.
type accepting struct{ gave int }

func (a *accepting) Up(context.Context) error { return nil }

func (a *accepting) Give(context.Context, *manifests.Set, []byte) error {
	a.gave++
	return nil
}

func (a *accepting) Withdraw(context.Context, *manifests.Set, string) error {
	return errors.New("not expected")
}

// TestResumeStateOfEarlierVersion goes on from a journal and a node that commit d13be95 wrote
// (testdata/d13be95/README.md). The registry of its base image is gone. Its images had no signature: they get one. What
// nodes get beside the image has changed since, so that MCO renders it again and the cluster gets it.
func TestResumeStateOfEarlierVersion(t *testing.T) {
	built := []string{"render-first", "base", "build-master", "build-worker"}
	for _, c := range []struct {
		name   string
		change func(t *testing.T, state string)
	}{
		{"same inputs", func(*testing.T, string) {}},
		{"another pull credential", func(t *testing.T, state string) {
			require.NoError(t, os.Remove(filepath.Join(state, "identity/dayone-node.password")))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.CopyFS(dir, os.DirFS("testdata/d13be95")))
			c.change(t, filepath.Join(dir, "state"))
			cluster := &accepting{}
			reused, err := resume(t, dir, cluster)
			require.ErrorIs(t, err, context.Canceled)
			assert.ElementsMatch(t, built, reused)
			assert.Equal(t, 1, cluster.gave)
			assert.FileExists(t, marker{filepath.Join(dir, "root")}.file(), "the gate is open")
		})
	}
}

// resume runs the flow until the gate is open and returns the phases whose results it took from the journal.
func resume(t *testing.T, dir string, cluster openshift.Cluster) (reused []string, err error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	log := logrus.New()
	log.SetOutput(t.Output())
	err = openshift.Run(ctx, openshift.Options{
		Options: day1.Options{Dir: filepath.Join(dir, "install"), StateDir: filepath.Join(dir, "state"),
			Platform: "linux/amd64", NewEngine: phasetest.Engine, Log: logrus.NewEntry(log),
			Observe: func(e journal.Event) {
				if e.Kind == journal.EventReused {
					reused = append(reused, e.Record.Name)
				}
				if e.Record.Name == "gate" && e.Kind == journal.EventRecorded {
					cancel()
				}
			}},
		Root: filepath.Join(dir, "root"), Interval: 50 * time.Millisecond,
		Limits:   openshift.InstallerLimits(installconfig.Cluster{}),
		Renderer: standIn{}, Gate: marker{filepath.Join(dir, "root")}, Cluster: cluster,
		HandOver: handover.Options{Connect: func(context.Context) (client.Client, error) {
			return nil, errors.New("not expected")
		}},
	})
	return reused, err
}
