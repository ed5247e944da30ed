package draincontroller_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes"

	"dayone.dev/dayone/hack/testnode/clock/clocktest"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/rebase/draincontroller"
	"dayone.dev/dayone/rebase/nodestate"
)

// The clock may be set at any moment of the first look: after the cordon's time was taken and before the pods' answers
// are judged, too.
func TestAClockThatIsSetAtAnyMomentMakesNoDrainFail(t *testing.T) {
	for moment := 1; moment <= 6; moment++ {
		t.Run(strconv.Itoa(moment), func(t *testing.T) {
			f := newFixture(t, nil)
			f.budget()
			f.pod("kept", map[string]string{"keep": "me"})
			f.ask(nodestate.Drain)
			pods, err := kubernetes.NewForConfig(f.env.As(t, cluster.DefaultNamespace, cluster.Controller))
			require.NoError(t, err)
			asked := 0
			f.r = draincontroller.New(f.env.ClientAs(t, cluster.DefaultNamespace, cluster.Controller), pods, f.ev,
				draincontroller.Options{Now: func() time.Time {
					if asked++; asked > moment {
						return clocktest.Set(t, time.Now(), 3*draincontroller.Limit)
					}
					return time.Now()
				}})
			for range 3 {
				_, err := f.look()
				require.NoError(t, err)
				assert.Equal(t, "Draining", f.condition("Drained").Reason)
			}
			assert.Greater(t, asked, moment, "the clock was asked after it was set")
			assert.Empty(t, f.ev.Events)
		})
	}
}
