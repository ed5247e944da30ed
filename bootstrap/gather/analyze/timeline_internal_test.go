package analyze

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTimelineTellsDurations(t *testing.T) {
	end := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name  string
		phase Phase
		want  string
	}{
		{"whole", Phase{Name: "base", Started: end.Add(-2 * time.Second), Finished: end}, "base is done after 2s"},
		{"end only", Phase{Name: "base", Finished: end}, "base is done"},
		{"failed", Phase{Name: "base", Status: "failed", Finished: end}, "base fails"},
	} {
		t.Run(c.name, func(t *testing.T) {
			events, _ := timeline(&facts{}, &Report{Phases: []Phase{c.phase}})
			require.NotEmpty(t, events)
			assert.Equal(t, c.want, events[len(events)-1].Text)
		})
	}
}
