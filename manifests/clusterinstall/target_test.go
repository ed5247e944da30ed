package clusterinstall

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestDeploymentState(t *testing.T) {
	for _, c := range []struct {
		name   string
		copies int32
		status appsv1.DeploymentStatus
		want   string
		done   bool
	}{
		{"all run", 2, appsv1.DeploymentStatus{Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 2},
			"has 2 of 2 copies available", true},
		{"scaled to nothing", 0, appsv1.DeploymentStatus{}, "has 0 of 0 copies available: scale it up", false},
		{"the new version does not start", 1, appsv1.DeploymentStatus{Replicas: 2, UpdatedReplicas: 1, AvailableReplicas: 1},
			"has 1 of 1 copies available; 1 of the former version until a new one is available: kubectl -n ns get pods says " +
				"what it waits for", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			state, done := deploymentState(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"},
				Spec: appsv1.DeploymentSpec{Replicas: &c.copies}, Status: c.status})
			assert.Equal(t, c.want, state)
			assert.Equal(t, c.done, done)
		})
	}
}

// TestWorkThatEndsEarly says what was waited for, why it ended and what to do then.
func TestWorkThatEndsEarly(t *testing.T) {
	for _, c := range []struct {
		name, want string
		limit      time.Duration
		interrupt  bool
	}{
		{"interrupted", "ns/dayone-builder has not ended yet (interrupted; the same command goes on where it ended)",
			time.Hour, true},
		{"too late", "ns/dayone-builder has not ended yet (gave up after 1s; the same command goes on where it ended)", 0,
			false},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			target := Target{Limit: c.limit, Out: t.Output()}
			err := target.within(ctx, func(ctx context.Context) error {
				return target.await(ctx, "ns/dayone-builder", func(context.Context) (bool, string, error) {
					if c.interrupt {
						interrupt()
					}
					return false, "has not ended yet", nil
				})
			})
			assert.EqualError(t, err, c.want)
		})
	}
}
