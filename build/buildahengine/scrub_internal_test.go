package buildahengine

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestScrubLongestSecret(t *testing.T) {
	for _, secrets := range [][]string{{"hunter2", "hunter2-and-more"}, {"hunter2-and-more", "hunter2"}} {
		var got []string
		l := newLines(secrets, func(text string) { got = append(got, text) })
		_, err := fmt.Fprintln(l, "login hunter2-and-more failed")
		require.NoError(t, err)
		assert.Equal(t, []string{"login ***** failed"}, got)
	}
}
