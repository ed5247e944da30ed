package daemon_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/daemon"
	"dayone.dev/dayone/rebase/disruption"
)

// heard is the API with a note of every state that the agent wrote; empty: a write of something else.
type heard struct {
	daemon.Cluster
	states []string
}

func (h *heard) PatchNode(ctx context.Context, patch []byte) (*metav1.PartialObjectMetadata, error) {
	var o metav1.PartialObjectMetadata
	if err := json.Unmarshal(patch, &o); err != nil {
		return nil, err
	}
	h.states = append(h.states, o.Annotations[manifests.AnnotationState])
	return h.Cluster.PatchNode(ctx, patch)
}

func (f *fixture) hears() *heard {
	h := &heard{}
	f.through(func(o *daemon.Options) {
		h.Cluster = o.Cluster.(*line).Cluster
		o.Cluster = h
	})
	return h
}

func TestANodeThatFailsInTheSameWayStaysAsItIs(t *testing.T) {
	for _, c := range []struct {
		name      string
		make, end func(*fixture)
		state     string
	}{
		{"planning",
			func(f *fixture) {
				f.promise(rendered("rendered-steady-1", "/etc/a=1"), rendered("rendered-steady-2", "/etc/b=2"), image(2),
					disruption.ImageContent)
			},
			func(f *fixture) {
				f.promise(rendered("rendered-steady-1", "/etc/a=1"), rendered("rendered-steady-2", "/etc/a=2"), image(2),
					disruption.ImageContent)
			}, "Degraded"},
		{"applying", func(f *fixture) { f.m.refuse = errors.New("registry says 401") }, func(f *fixture) { f.m.refuse = nil },
			"Degraded"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t)
			f.join(rendered("rendered-steady-1", "/etc/a=1"), image(1))
			c.make(f)
			h := f.hears()
			f.aim(rendered("rendered-steady-2", "/etc/a=2"), image(2))
			require.Error(t, f.fails())
			require.Equal(t, c.state, h.states[len(h.states)-1])
			reason := f.record().Reason
			h.states = nil
			for range 5 {
				require.Error(t, f.step())
				assert.EqualValues(t, c.state, f.record().State)
				assert.Equal(t, reason, f.record().Reason)
			}
			assert.Empty(t, h.states, "there was nothing new to say")
			c.end(f)
			f.settle()
			said := slices.DeleteFunc(h.states, func(s string) bool { return s == "" })
			require.NotEmpty(t, said)
			assert.Equal(t, "Working", said[0], "it gets further")
			assert.NotContains(t, said, c.state)
		})
	}
}

func TestAnotherTargetEndsAFailure(t *testing.T) {
	f := newFixture(t)
	f.join(rendered("rendered-ends-1"), image(1))
	f.m.refuse = errors.New("registry says 401")
	h := f.hears()
	f.aim(rendered("rendered-ends-2"), image(2))
	require.ErrorContains(t, f.fails(), "401")
	h.states = nil
	f.m.refuse = errors.New("registry says 500")
	f.aim(rendered("rendered-ends-3"), image(3))
	require.ErrorContains(t, f.fails(), "500")
	said := slices.DeleteFunc(h.states, func(s string) bool { return s == "" })
	assert.Equal(t, []string{"Working", "Degraded"}, said)
	assert.Contains(t, f.record().Reason, "500")
}
