package buildahengine

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestParallelDefault(t *testing.T) {
	const gib = 1 << 20 // kiB
	for _, c := range []struct {
		name       string
		available  int
		processors int
		builds     int
	}{
		{name: "room for two pools", available: 2 * gib, processors: 4, builds: 2},
		{name: "less than one build's memory", available: gib / 2, processors: 4, builds: 1},
		{name: "a little less than two builds' memory", available: 2*gib - 1, processors: 4, builds: 1},
		{name: "more memory than processors", available: 64 * gib, processors: 2, builds: 2},
		{name: "one processor", available: 64 * gib, processors: 1, builds: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := parseMemory(
				fmt.Sprintf("MemTotal:       %d kB\nMemFree:  1 kB\nMemAvailable:   %d kB\nHugePages_Total:       0\n", 64*gib,
					c.available))
			assert.Equal(t, c.builds, parallel(m, c.processors))
		})
	}
	assert.Equal(t, 1, parallel(parseMemory("nothing that is known"), 8), "memory that is unknown is taken for little")
	assert.Equal(t, int64(-1), defaultMemory(memory{}), "and bounds nothing")
	assert.Equal(t, int64(3<<30), defaultMemory(memory{total: 4 << 30}))
	here := readMemory()
	assert.Positive(t, here.available)
	assert.GreaterOrEqual(t, here.total, here.available)
}
