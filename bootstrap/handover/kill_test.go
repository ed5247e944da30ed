package handover_test

import (
	"encoding/base64"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/bootstrap/handover"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/registry"
)

func encoded(u registry.User) string {
	return base64.StdEncoding.EncodeToString([]byte(u.Name + ":" + u.Password))
}

// Killed before and after every single write, with the controllers at work meanwhile: the next run brings the same end,
// and at no moment is a node told to have anything but what it runs.
func TestResumeAfterKillAtAnyWrite(t *testing.T) {
	s := newSmall(t)
	for n := 1; ; n++ {
		over := true
		for _, after := range []bool{false, true} {
			w := newWorld(t, s.final.CAFile)
			stopControllers := w.controllers()
			stopAgents := s.joined(w)
			if s.dies(w.client, n, after) {
				over = false
				require.NoError(t, handover.Run(t.Context(), s.options(w.client)), "killed at write %d", n)
			}
			w.settled("master", s.pool.Config, s.pool.Image)
			w.nothingChanged()
			builds := w.builds("master")
			require.Len(t, builds, 1, "killed at write %d", n)
			assert.Equal(t, s.pool.BuildName(), builds[0].Name)
			assert.Equal(t, machineosbuild.Succeeded, machineosbuild.StateOf(&builds[0]))
			assert.Empty(t, w.jobs("master"))
			stopAgents()
			stopControllers()
			w.clean()
			if over {
				break
			}
		}
		if over {
			assert.Greater(t, n, 10, "there are as many writes as objects")
			break
		}
	}
	assert.NotZero(t, s.revoked)
}

// Who hands over twice writes nothing the second time but what server-side apply sends anyway. The controllers have
// ended by then, so that what changes is the hand-over's doing; what does not change is none of their business.
func TestSecondRunChangesNothing(t *testing.T) {
	s := newSmall(t)
	w := newWorld(t, s.final.CAFile)
	stopControllers := w.controllers()
	defer s.joined(w)()
	require.NoError(t, handover.Run(t.Context(), s.options(w.client)))
	w.settled("master", s.pool.Config, s.pool.Image)
	stopControllers()
	before := w.versions()
	require.NoError(t, handover.Run(t.Context(), s.options(w.client)))
	assert.Equal(t, before, w.versions())
	w.nothingChanged()
}

// versions are those of the objects that a hand-over writes.
func (w *world) versions() map[string]string {
	w.t.Helper()
	out := map[string]string{}
	var configs mcfgv1.MachineConfigList
	var layering mcfgv1.MachineOSConfigList
	var builds mcfgv1.MachineOSBuildList
	var pools mcfgv1.MachineConfigPoolList
	for _, list := range []client.ObjectList{&configs, &layering, &builds, &pools} {
		require.NoError(w.t, w.client.List(w.t.Context(), list))
	}
	for i := range configs.Items {
		out["MachineConfig "+configs.Items[i].Name] = configs.Items[i].ResourceVersion
	}
	for i := range layering.Items {
		out["MachineOSConfig "+layering.Items[i].Name] = layering.Items[i].ResourceVersion
	}
	for i := range builds.Items {
		out["MachineOSBuild "+builds.Items[i].Name] = builds.Items[i].ResourceVersion
	}
	for i := range pools.Items {
		out["pool "+pools.Items[i].Name] = pools.Items[i].ResourceVersion
	}
	return out
}
