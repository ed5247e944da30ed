package buildahengine_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build/buildahengine"
)

// secretConfig has a token that root alone may read, and one in a unit's environment.
const secretConfig = `{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/agent.conf","mode":384,
"overwrite":true,"contents":{"source":"data:,url=https://example.com%0Atoken=canary-file%0A"}}]},"systemd":{"units":[
{"name":"agent.service","contents":"[Service]\nEnvironment=TOKEN=canary-unit\nExecStart=/usr/bin/true\n"}]}}`

// A RUN may read what the rendered config keeps secret, and print it in forms of its own.
func TestConfigSecretsAreHidden(t *testing.T) {
	b := newBench(t, buildahengine.Options{})
	r := b.request("FROM configs\n" +
		"RUN cat /etc/agent.conf /etc/systemd/system/agent.service && . /etc/agent.conf && echo \"seen: $token\" && exit 7\n")
	r.Config.Spec.Config.Raw = []byte(secretConfig)
	f := b.fails(r)
	log, err := os.ReadFile(f.Log)
	require.NoError(t, err)
	require.Contains(t, string(log), "seen: *****")
	failure, err := json.Marshal(f)
	require.NoError(t, err)
	events, err := json.Marshal(b.events)
	require.NoError(t, err)
	for place, text := range map[string]string{"log": string(log), "failure": string(failure) + f.Error(),
		"events": string(events)} {
		assert.NotContains(t, text, "canary-file", place)
		assert.NotContains(t, text, "canary-unit", place)
	}
	b.clean()
}
