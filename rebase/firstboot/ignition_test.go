package firstboot

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	v35 "github.com/coreos/ignition/v2/config/v3_5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/rebase/deploy/pull"
)

func TestIgnitionIsValidAndHoldsWhatANodeNeeds(t *testing.T) {
	config, err := Ignition(IgnitionOptions{
		Config: Config{Registry: "192.168.77.1:5000", RetryMax: installconfig.Duration(time.Minute)},
		Mirrors: []Mirror{{"registry.example.com/ocp/master-os", "192.168.77.1:5000/ocp/master-os"},
			{"registry.example.com/ocp/base", "192.168.77.1:5000/ocp/base"}},
		RegistryCA: []byte("ca"), PullAuth: []byte("{}"), DaemonURL: "https://192.168.77.1:22623/files/dayone-daemon",
		DaemonSHA512: strings.Repeat("a", 128),
	})
	require.NoError(t, err)
	raw, err := json.Marshal(config)
	require.NoError(t, err)
	parsed, report, err := v35.Parse(raw)
	require.NoError(t, err, report.String())
	assert.Empty(t, report.Entries)
	modes, text := map[string]int{}, map[string]string{}
	for _, f := range parsed.Storage.Files {
		modes[f.Path] = *f.Mode
		if f.Path != DaemonPath {
			content, err := machineconfig.Contents(f.Contents)
			require.NoError(t, err)
			text[f.Path] = string(content)
		}
	}
	assert.Equal(t, map[string]int{ConfigPath: 0o644, MirrorPath: 0o644, attachmentsPath: 0o644,
		"/etc/containers/certs.d/192.168.77.1:5000/ca.crt": 0o644, PullAuthPath: 0o600, DaemonPath: 0o755}, modes)
	assert.Equal(t, 2, strings.Count(text[MirrorPath], `pull-from-mirror = "digest-only"`))
	assert.Contains(t, text[attachmentsPath], "\"192.168.77.1:5000\":\n    use-sigstore-attachments: true\n", "once")
	c, err := parseConfig([]byte(text[ConfigPath]))
	require.NoError(t, err)
	assert.Equal(t, installconfig.Duration(time.Minute), c.RetryMax)
	require.Len(t, parsed.Systemd.Units, 1)
	assert.True(t, *parsed.Systemd.Units[0].Enabled)
	assert.Contains(t, *parsed.Systemd.Units[0].Contents, "ExecStart="+DaemonPath+" firstboot\n")
}

func TestTheSignaturePolicyIsServedAndNamed(t *testing.T) {
	config, err := Ignition(IgnitionOptions{SignaturePolicy: []byte(`{"default":[{"type":"reject"}]}`)})
	require.NoError(t, err)
	text := map[string]string{}
	for _, f := range config.Storage.Files {
		content, err := machineconfig.Contents(f.Contents)
		require.NoError(t, err)
		text[f.Path] = string(content)
	}
	assert.JSONEq(t, `{"default":[{"type":"reject"}]}`, text[pull.ServedPolicyPath])
	c, err := parseConfig([]byte(text[ConfigPath]))
	require.NoError(t, err)
	assert.Equal(t, pull.ServedPolicyPath, c.SignaturePolicy)
}

func TestIgnitionRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		o    IgnitionOptions
	}{
		{"a mirror with a tag", IgnitionOptions{Mirrors: []Mirror{
			{"registry.example.com/a/b:latest", "192.168.77.1:5000/a/b"}}}},
		{"a mirror without a host", IgnitionOptions{Mirrors: []Mirror{{"registry.example.com/a/b", "b"}}}},
		{"an agent without a hash", IgnitionOptions{DaemonURL: "https://192.168.77.1/x"}},
		{"an unknown deployer", IgnitionOptions{Config: Config{Deployer: "dnf"}}},
		{"another version", IgnitionOptions{Config: Config{Version: 2}}},
		{"a negative reboot number", IgnitionOptions{Config: Config{MaxReboots: -1}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Ignition(c.o)
			require.Error(t, err)
		})
	}
}

func TestParseConfigRefusesWhatItDoesNotKnow(t *testing.T) {
	for _, bad := range []string{"", "{}", `{"version":2}`, `{"version":1,"unknown":1}`, `{"version":1,"retryMin":"-1s"}`,
		`{"version":1,"retryMin":5}`, `{"version":1,"retryMax":"soon"}`, `{"version":1,"deployer":"x"}`} {
		_, err := parseConfig([]byte(bad))
		require.ErrorContains(t, err, ConfigPath, bad)
	}
	c, err := parseConfig([]byte(`{"version":1,"health":["true"]}`))
	require.NoError(t, err)
	assert.Equal(t, installconfig.Duration(defaultRetryMax), c.withDefaults().RetryMax)
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(`{"version":1,"retryMin":"1s","health":["a"]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := parseConfig(raw)
		if err != nil {
			return
		}
		again, err := json.Marshal(c)
		require.NoError(t, err)
		_, err = parseConfig(again)
		require.NoError(t, err)
	})
}

func TestWorthSayingThinsOut(t *testing.T) {
	var said []int
	for attempt := range 61 {
		if attempt > 0 && worthReporting(attempt) {
			said = append(said, attempt)
		}
	}
	assert.Equal(t, []int{1, 2, 4, 8, 16, 20, 40, 60}, said)
}

func TestKernelTypeIsReadFromTheRelease(t *testing.T) {
	for _, c := range []struct {
		release, kernelType string
		want                bool
	}{
		{"5.14.0-570.el9.x86_64", "", true}, {"5.14.0-570.el9.x86_64", "default", true},
		{"5.14.0-570.el9.x86_64", "realtime", false},
		{"5.14.0-570.el9.x86_64+rt", "realtime", true}, {"5.14.0-570.el9.aarch64+64k", "64k-pages", true},
		{"5.14.0-570.el9.aarch64", "64k-pages", false},
	} {
		assert.Equal(t, c.want, isKernelType(c.release, c.kernelType), "%s %s", c.release, c.kernelType)
	}
}
