package rollout

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// Waves let a target reach few nodes first. The zero value is one wave of all nodes.
type Waves struct {
	// Sizes are how many nodes have the target at the end of each wave: numbers or percentages (rounded up), growing. All
	// nodes follow after the last one.
	Sizes []intstr.IntOrString
	// Soak is how long the nodes of a wave must have had the target, and be well, before the next wave starts.
	Soak time.Duration
}

// maxWaves bounds what an annotation can ask for.
const maxWaves = 20

// ParseWaves reads the value of the annotation dayone.dev/rollout-waves: sizes separated by commas and, after a slash,
// the time for which a wave is watched, such as "1, 10%, 50% / 15m".
func ParseWaves(s string) (Waves, error) {
	var w Waves
	sizes, soak, watched := strings.Cut(s, "/")
	if watched {
		d, err := time.ParseDuration(strings.TrimSpace(soak))
		if err != nil || d < 0 {
			return w, fmt.Errorf("read waves %q: %q is no duration such as 15m", s, strings.TrimSpace(soak))
		}
		w.Soak = d
	}
	for _, word := range strings.Split(sizes, ",") {
		size := intstr.Parse(strings.TrimSpace(word))
		n, err := intstr.GetScaledValueFromIntOrPercent(&size, 100, true)
		if err != nil || n <= 0 || (size.Type == intstr.String && n > 100) {
			return w, fmt.Errorf("read waves %q: %q is neither a number from 1 nor a percentage from 1%% to 100%%", s,
				strings.TrimSpace(word))
		}
		w.Sizes = append(w.Sizes, size)
	}
	if len(w.Sizes) > maxWaves {
		return w, fmt.Errorf("read waves %q: more than %d waves", s, maxWaves)
	}
	return w, nil
}

// sizes gives the numbers of nodes at the end of each wave, growing, the last one being all nodes.
func (w Waves) sizes(nodes int) []int {
	var out []int
	reached := 0
	for _, s := range w.Sizes {
		n, err := intstr.GetScaledValueFromIntOrPercent(&s, nodes, true)
		if err != nil || n <= reached || n >= nodes {
			continue
		}
		out, reached = append(out, n), n
	}
	return append(out, nodes)
}
