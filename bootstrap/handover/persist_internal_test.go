package handover

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/registry/transfer"
)

// The time between two attempts, by a clock that only the test moves: a wait keeps its pace, and failures get rarer.
func TestPersistPauses(t *testing.T) {
	waits, fails := waitsFor{"a node"}, errors.New("no route")
	for _, c := range []struct {
		name  string
		says  []error // then it is done
		after []time.Duration
	}{
		{"at once", nil, nil},
		{"what it waits for", []error{waits, waits, waits}, []time.Duration{2, 2, 2}},
		{"failures", []error{fails, fails, fails, fails, fails}, []time.Duration{1, 2, 4, 5, 5}},
		{"a failure after a wait", []error{fails, fails, waits, fails}, []time.Duration{1, 2, 2, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := Options{Plan: &Plan{}, Interval: 2 * time.Second, RetryMin: time.Second,
					RetryMax: 5 * time.Second}.withDefaults()
				var said []Event
				o.Observe = func(e Event) { said = append(said, e) }
				last, left := time.Now(), c.says
				var after []time.Duration
				require.NoError(t, persist(t.Context(), o, StageTrust, func(context.Context) error {
					if len(left) < len(c.says) {
						after = append(after, time.Since(last)/time.Second)
					}
					last = time.Now()
					if len(left) == 0 {
						return nil
					}
					err := left[0]
					left = left[1:]
					return err
				}))
				assert.Equal(t, c.after, after)
				assert.Equal(t, Event{Stage: StageTrust}, said[0])
				assert.Equal(t, Event{Stage: StageTrust, Done: true}, said[len(said)-1])
				for i, e := range said[1 : len(said)-1] {
					assert.NotEqual(t, said[i].Waiting, e.Waiting, "what is said once is not repeated")
				}
			})
		})
	}
}

// A deadline that passes during a pause ends it.
func TestPersistEndsInAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := Options{Plan: &Plan{}, Deadline: time.Minute, Interval: time.Hour}.withDefaults()
		ctx, cancel := context.WithTimeoutCause(t.Context(), o.Deadline, errDeadline)
		defer cancel()
		began := time.Now()
		err := persist(ctx, o, StageAgree, func(context.Context) error { return waitsFor{"a node"} })
		require.EqualError(t, err, "hand over (agree): not done within 1m0s: a node. The bootstrap host must stay until it "+
			"is: mend this and run dayone handover on it")
		assert.Equal(t, time.Minute, time.Since(began))
	})
}

// An API server may refuse good credentials while it starts, for as long as the grace and no longer.
func TestPersistGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := Options{Plan: &Plan{}, Grace: time.Minute}.withDefaults()
		began := time.Now()
		err := persist(t.Context(), o, StageObjects, func(context.Context) error {
			return ofCluster(apierrors.NewUnauthorized("who are you"))
		})
		require.ErrorIs(t, err, errRefused)
		assert.Greater(t, time.Since(began), time.Minute)
		assert.Less(t, time.Since(began), time.Minute+defaultRetryMax)
	})
}

func TestDefaults(t *testing.T) {
	o := Options{Plan: &Plan{}}.withDefaults()
	assert.Equal(t, PolicyWait, o.Policy)
	assert.Equal(t, installconfig.DefaultHandOverDeadline, o.Deadline)
	assert.Equal(t, []time.Duration{2 * time.Second, time.Second, 30 * time.Second, 3 * time.Minute},
		[]time.Duration{o.Interval, o.RetryMin, o.RetryMax, o.Grace})
	o.Observe(Event{})
	require.NotNil(t, o.Log)
	require.NoError(t, o.Revoke(t.Context()))
	assert.WithinDuration(t, time.Now(), o.Now(), time.Hour)

	plan := &Plan{Policy: PolicySkip, Deadline: installconfig.Duration(time.Hour)}
	o = Options{Plan: plan}.withDefaults()
	assert.Equal(t, PolicySkip, o.Policy, "the user's word in install-config.yaml")
	assert.Equal(t, time.Hour, o.Deadline)
	o = Options{Plan: plan, Policy: PolicyDeadline, Deadline: time.Minute}.withDefaults()
	assert.Equal(t, PolicyDeadline, o.Policy, "the command line's word comes before that")
	assert.Equal(t, time.Minute, o.Deadline)
}

// What a failure of the cluster means: some mend themselves, some never do.
func TestFailuresOfTheCluster(t *testing.T) {
	pools := schema.GroupResource{Resource: "machineconfigpools"}
	for _, c := range []struct {
		name  string
		err   error
		fatal bool
		says  string
	}{
		{"none", nil, false, ""},
		{"no account", apierrors.NewUnauthorized("who"), false, "correct --kubeconfig"},
		{"no right", apierrors.NewForbidden(pools, "a", errors.New("not you")), false, "correct --kubeconfig"},
		{"no such kind", &meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: "Pool"}}, false, "dayone cluster install"},
		{"invalid", apierrors.NewInvalid(schema.GroupKind{Kind: "Pool"}, "a", nil), true, "correct the object"},
		{"bad request", apierrors.NewBadRequest("no"), true, "correct the object"},
		{"too large", apierrors.NewRequestEntityTooLargeError("4 MiB"), true, "correct the object"},
		{"no answer", &net.OpError{Op: "dial", Err: errors.New("no route")}, false, "the cluster does not answer"},
		{"anything else", errors.New("slow"), false, "slow"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := ofCluster(c.err)
			if c.err == nil {
				require.NoError(t, err)
				return
			}
			var f fatal
			assert.Equal(t, c.fatal, errors.As(err, &f))
			require.ErrorContains(t, err, c.says)
			require.ErrorIs(t, err, c.err)
			assert.Equal(t, c.says == "correct --kubeconfig", errors.Is(err, errRefused))
		})
	}
}

// What a failure of a registry means.
func TestFailuresOfRegistries(t *testing.T) {
	for _, c := range []struct {
		name  string
		err   error
		fatal bool
	}{
		{"none", nil, false},
		{"stopped", context.Canceled, false},
		{"out of time", context.DeadlineExceeded, false},
		{"no answer", &net.OpError{Op: "read", Err: &net.DNSError{IsTemporary: true}}, false},
		{"not available", transfer.ErrUnavailable, false},
		{"refused", transfer.ErrDenied, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := ofRegistry(c.err, "look there")
			var f fatal
			assert.Equal(t, c.fatal, errors.As(err, &f))
			require.ErrorIs(t, err, c.err)
			if c.fatal {
				require.ErrorContains(t, err, ": look there")
			}
		})
	}
}
