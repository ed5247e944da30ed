package machineconfig

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestStrict(t *testing.T) {
	for _, c := range []struct{ name, config, path, rule, next string }{
		{"an unknown key", `{"ignition":{"version":"3.2.0"},"storage":{"files":[{"pth":"/etc/a"}]}}`,
			"storage.files[0].pth", ruleUnknownField, "did you mean path?"},
		{"another case, which JSON decoders take", `{"ignition":{"version":"3.2.0"},"Storage":{}}`, "Storage",
			ruleUnknownField, "did you mean storage?"},
		{"a key of a later version", `{"ignition":{"version":"3.2.0"},"kernelArguments":{"shouldExist":["a"]}}`,
			"kernelArguments", ruleUnknownField, "write version: 3.3.0"},
		{"a key of version 3 in version 2", `{"ignition":{"version":"2.2.0"},"systemd":{"units":[{"name":"a"},` +
			`{"name":"b","masks":true}]}}`, "systemd.units[1].masks", ruleUnknownField, "did you mean mask?"},
		{"a word for a number", `{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/a","mode":"0644"}]}}`,
			"storage.files[0].mode", "wrong-type", "without quotes"},
		{"no version", `{"igniton":{"version":"3.2.0"}}`, "igniton", ruleUnknownField, "did you mean ignition?"},
	} {
		t.Run(c.name, func(t *testing.T) {
			found := Strict([]byte(c.config))
			require.Len(t, found, 1)
			assert.Equal(t, c.path, found[0].Path)
			assert.Equal(t, c.rule, found[0].Rule)
			assert.Contains(t, found[0].Next, c.next)
		})
	}
	for _, version := range []string{"3.0.0", "3.2.0", "3.5.0"} {
		assert.Empty(t, Strict([]byte(`{"ignition":{"version":"`+version+`"},"systemd":{"units":[{"name":"a.service"}]}}`)))
	}
	assert.Empty(t, Strict(nil))
	assert.Empty(t, Strict([]byte("{")))
}
