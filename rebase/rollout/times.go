package rollout

import (
	"encoding/json"
	"slices"
	"time"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/disruption"
)

// Times is how long a node's last transitions took, from the new target to done: the annotation
// dayone.dev/update-times.
type Times struct {
	// Sent is the moment at which the last of them began, RFC 3339.
	Sent string `json:"told,omitempty"`
	// Seconds are those of the last transition of each level.
	Seconds map[string]int64 `json:"seconds"`
}

// SoftReboot is where Times has a transition of level Reboot that was soft.
const SoftReboot = "SoftReboot"

// TimesOf reads the annotation; one that cannot be read is none.
func TimesOf(annotations map[string]string) Times {
	var t Times
	if json.Unmarshal([]byte(annotations[manifests.AnnotationUpdateTimes]), &t) != nil || t.Seconds == nil {
		return Times{Seconds: map[string]int64{}}
	}
	return t
}

// Estimate is how long a plan takes when so many nodes may go at once, by the median of what nodes of the cluster
// needed for a transition of the same level; 0 when there is a level without history.
func (c *Cluster) Estimate(plan disruption.PoolPlan, atOnce int) time.Duration {
	if len(plan.Transitions) == 0 {
		return 0
	}
	known := map[string][]int64{}
	for _, n := range c.Nodes {
		for level, seconds := range c.Memory.historyOf(n).Times.Seconds {
			known[level] = append(known[level], seconds)
		}
	}
	sum := time.Duration(0)
	for _, w := range plan.Transitions {
		seconds := known[w.Level.String()]
		if soft := known[SoftReboot]; w.SoftLikely() && len(soft) > 0 {
			seconds = soft
		}
		if len(seconds) == 0 {
			return 0
		}
		slices.Sort(seconds)
		sum += time.Duration(w.Nodes) * time.Duration(seconds[len(seconds)/2]) * time.Second
	}
	return sum / time.Duration(max(1, atOnce))
}
