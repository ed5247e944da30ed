package buildlogs

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestLast(t *testing.T) {
	for _, c := range []struct{ name, log, step, line string }{
		{"nothing yet", "", "", ""},
		{"a long step", "installed 7 of 9\ninstalled 8 of 9\n\n", "", "installed 8 of 9"},
		{"a step begins", "old\nPHASE base\n", "PHASE base", ""},
		{"a step of ours", "STEP: pull\nLINE 3: RUN dnf install x\n  50%  \n", "LINE 3: RUN dnf install x", "50%"},
		{"buildah's", "STEP 1/2: FROM configs\n[3/3] STEP 2/2: RUN false\nno such package\n", "[3/3] STEP 2/2: RUN false",
			"no such package"},
		{"output that says STEP", "LINE 1: RUN x\nSTEP is no step\n", "LINE 1: RUN x", "STEP is no step"},
	} {
		step, line := last(c.log)
		assert.Equal(t, c.step, step, c.name)
		assert.Equal(t, c.line, line, c.name)
	}
}
