package nodestate

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/manifests"
)

// TestRecordsOfOtherVersions reads what agents and controllers of other versions of dayone, and MCO's, leave on a node:
// keys that are not known are left alone, and those that are absent mean what they meant before there were such.
func TestRecordsOfOtherVersions(t *testing.T) {
	mc := manifests.MCOPrefix
	for _, c := range []struct {
		name string
		in   map[string]string
		want Record
	}{
		{"nothing yet", map[string]string{"other": "x"}, Record{}},
		{"a newer version's keys", map[string]string{manifests.AnnotationCurrentConfig: "a",
			manifests.DayonePrefix + "of-a-newer-version": "{", mc + "newKey": "x"}, Record{CurrentConfig: "a"}},
		{"an older version without the alias", map[string]string{manifests.AnnotationDesiredConfig: "a",
			manifests.AnnotationDesiredImage: imageA}, Record{DesiredConfig: "a", DesiredImage: imageA}},
		{"the first version's alias alone", map[string]string{manifests.AnnotationDesiredOSImage: imageA},
			Record{DesiredImage: imageA}},
		{"MCO's empty reason", map[string]string{manifests.AnnotationState: "Done", manifests.AnnotationReason: ""},
			Record{State: StateDone}},
		{"MCO's other keys", map[string]string{manifests.AnnotationState: "Done",
			mc + "controlPlaneTopology": "SingleReplica", mc + "customPoolLabelsApplied": "",
			mc + "lastSyncedControllerConfigResourceVersion": "17"},
			Record{State: StateDone}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := Parse(c.in)
			require.NoError(t, err)
			assert.Equal(t, c.want, r)
			r.State = StateWorking
			patch, err := r.Patch(c.in)
			require.NoError(t, err)
			after := Apply(c.in, patch)
			for key := range c.in {
				if key != manifests.AnnotationState && key != manifests.AnnotationReason {
					assert.Equal(t, c.in[key], after[key], "%s is another's", key)
				}
			}
		})
	}
}
