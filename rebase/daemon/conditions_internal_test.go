package daemon

import (
	"errors"
	"net/http"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"dayone.dev/dayone/rebase/daemon/kubeapi"
	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/nodestate"
)

// What the MachineConfigNode says in each state of a plan that reboots into an image: done, under way, or not yet.
func TestConditionsOfEachState(t *testing.T) {
	kinds := []mcfgv1.StateProgress{mcfgv1.MachineConfigNodeUpdated, mcfgv1.MachineConfigNodeUpdatePrepared,
		mcfgv1.MachineConfigNodeUpdateExecuted, mcfgv1.MachineConfigNodeUpdateOS, mcfgv1.MachineConfigNodeUpdateFiles,
		mcfgv1.MachineConfigNodeUpdateRebooted, mcfgv1.MachineConfigNodeUpdatePostActionComplete,
		mcfgv1.MachineConfigNodeUpdateComplete, mcfgv1.MachineConfigNodeResumed}
	reboot := journal{Boots: "r.example.com/os@sha256:1", Plan: disruption.Plan{Level: disruption.LevelReboot}}
	for _, c := range []struct {
		state   State
		plan    journal
		is, why []string
	}{
		{Idle, reboot, []string{"True", "False", "False", "False", "False", "False", "False", "False", "False"},
			[]string{"AsExpected", "AsExpected", "AsExpected", "AsExpected", "AsExpected", "AsExpected", "AsExpected",
				"AsExpected", "AsExpected"}},
		{Planning, reboot, []string{"False", "Unknown", "False", "False", "False", "False", "False", "False", "False"},
			[]string{"Planning", "Planning", "NotYet", "NotYet", "NotYet", "NotYet", "NotYet", "NotYet", "NotYet"}},
		{Applying, reboot, []string{"False", "True", "Unknown", "Unknown", "Unknown", "False", "False", "False", "False"},
			[]string{"Applying", "Done", "Applying", "Applying", "Applying", "NotYet", "NotYet", "NotYet", "NotYet"}},
		{Applying, journal{}, []string{"False", "True", "Unknown", "False", "Unknown", "False", "False", "False", "False"},
			[]string{"Applying", "Done", "Applying", "NotNeeded", "Applying", "NotNeeded", "NotYet", "NotYet", "NotYet"}},
		{Rebooting, reboot, []string{"False", "True", "True", "True", "True", "Unknown", "Unknown", "False", "False"},
			[]string{"Rebooting", "Done", "Done", "Done", "Done", "Rebooting", "Rebooting", "NotYet", "NotYet"}},
		{Uncordoning, reboot, []string{"False", "True", "True", "True", "True", "True", "True", "True", "Unknown"},
			[]string{"Uncordoning", "Done", "Done", "Done", "Done", "Done", "Done", "Done", "Uncordoning"}},
	} {
		t.Run(string(c.state), func(t *testing.T) {
			j := c.plan
			j.State = c.state
			n := node{record: nodestate.Record{CurrentConfig: "a", DesiredConfig: "b"}}
			status := statusOf(j, n, nil)
			var is, why []string
			for _, kind := range kinds {
				found := meta.FindStatusCondition(status.Conditions, string(kind))
				if assert.NotNil(t, found, kind) {
					is, why = append(is, string(found.Status)), append(why, found.Reason)
				}
			}
			assert.Equal(t, c.is, is)
			assert.Equal(t, c.why, why)
			degraded := string(mcfgv1.MachineConfigNodeNodeDegraded)
			assert.True(t, meta.IsStatusConditionFalse(status.Conditions, degraded))
			status = statusOf(j, n, errors.New("no room"))
			assert.Equal(t, "no room", meta.FindStatusCondition(status.Conditions, degraded).Message)
			assert.True(t, meta.IsStatusConditionTrue(status.Conditions, degraded))
		})
	}
}

// A set that was made anew begins again: any of its generations may tell.
func TestRenewedSets(t *testing.T) {
	set := func(name string, desired, current, failed int32) []mcfgv1.MachineConfigNodeStatusPinnedImageSet {
		return []mcfgv1.MachineConfigNodeStatusPinnedImageSet{{Name: "other", DesiredGeneration: 9},
			{Name: name, DesiredGeneration: desired, CurrentGeneration: current, LastFailedGeneration: failed}}
	}
	was := set("a", 3, 2, 2)
	for _, c := range []struct {
		name string
		now  []mcfgv1.MachineConfigNodeStatusPinnedImageSet
		want bool
	}{
		{"the same", set("a", 3, 2, 2), false},
		{"newer", set("a", 4, 3, 3), false},
		{"asked for anew", set("a", 2, 2, 2), true},
		{"there anew", set("a", 3, 1, 2), true},
		{"failed anew", set("a", 3, 2, 1), true},
		{"of another name", set("b", 1, 1, 1), false},
		{"gone", nil, false},
	} {
		assert.Equal(t, c.want, renewed(was, c.now), c.name)
	}
}

// Only an answer of the API that is no is a refusal: what did not reach it is asked again.
func TestRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		want bool
	}{
		{"none", nil, false},
		{"of the program", errors.New("bad"), false},
		{"forbidden", apierrors.NewForbidden(schema.GroupResource{}, "x", nil), true},
		{"internal", apierrors.NewInternalError(errors.New("x")), true},
		{"no answer", errors.Join(kubeapi.ErrNoAnswer,
			&apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusServiceUnavailable}}), false},
	} {
		assert.Equal(t, c.want, refuses(c.err), c.name)
	}
}
