package buildcontroller

import (
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func TestSlotOfUncreatedBuild(t *testing.T) {
	w, s := newFakeWorld(t)
	s.instead = func() error { // the build is about to be announced
		w.editConfig("worker", func(c *mcfgv1.MachineOSConfig) { c.Spec.RenderedImagePushSpec = registry + "/a/b/c:tag" })
		return apierrors.NewConflict(mcfgv1.Resource("machineosconfigs"), "worker", nil)
	}
	w.addPool("worker", "one", plainText)
	w.untilDegraded("worker")
	require.Nil(t, s.instead)
	require.Empty(t, w.builds("worker"))
	w.addPool("infra", "one", plainText)
	w.untilAvailable("infra")
}

func TestImageLeftBehind(t *testing.T) {
	w, _ := newFakeWorld(t)
	w.addPool("worker", "one", plainText)
	w.untilAvailable("worker")
	old := w.build(w.config("worker").Status.MachineOSBuild.Name)
	w.render("worker", "b", "two")
	w.until("the other is there", func() bool {
		return w.available("worker") && w.config("worker").
			Status.MachineOSBuild.Name != old.Name
	})

	w.images.refuse(errRefused)
	w.clock.jump(time.Hour) // the API server's has not been set yet
	require.NoError(t, w.client.Delete(w.ctx(), &old))
	w.rest()
	assert.Contains(t, w.builds("worker"), old.Name, "the registry has failed for a moment only")
	w.clock.jump(DefaultLeaveAfter + time.Minute)
	w.rest()
	assert.NotContains(t, w.builds("worker"), old.Name)
	assert.True(t, w.images.has(string(old.Status.DigestedImagePushSpec)))
}
