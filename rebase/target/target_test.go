package target_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/rebase/target"
)

func TestString(t *testing.T) {
	assert.Equal(t, "c1", target.Target{Config: "c1"}.String())
	assert.Equal(t, "c1 in image i@sha256:1", target.Target{Config: "c1", Image: "i@sha256:1"}.String())
}

func TestCompare(t *testing.T) {
	all := []target.Target{{Config: "b"}, {Config: "a", Image: "2"}, {Config: "a"}, {Config: "a", Image: "1"}}
	slices.SortFunc(all, target.Compare)
	assert.Equal(t, []target.Target{{Config: "a"}, {Config: "a", Image: "1"}, {Config: "a", Image: "2"}, {Config: "b"}},
		all)
}

func TestJSON(t *testing.T) {
	for _, c := range []struct {
		name, json string
		target     target.Target
	}{
		{"layered", `{"config":"c1","image":"i@sha256:1"}`, target.Target{Config: "c1", Image: "i@sha256:1"}},
		{"not layered", `{"config":"c1"}`, target.Target{Config: "c1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			raw, err := json.Marshal(c.target)
			require.NoError(t, err)
			assert.JSONEq(t, c.json, string(raw))
			var got target.Target
			require.NoError(t, json.Unmarshal([]byte(c.json), &got))
			assert.Equal(t, c.target, got)
		})
	}
}
