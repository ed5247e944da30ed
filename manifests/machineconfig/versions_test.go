package machineconfig

import (
	"strings"
	"testing"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/installconfig/report"
)

// A config of version 2 may name things twice: the last one counts, drop-ins and keys add up, the order is reversed.
func TestVersionTwoMadeUnique(t *testing.T) {
	got := parsed(t, `{"ignition":{"version":"2.2.0"},
		"storage":{"files":[{"filesystem":"root","path":"/etc/a","mode":420,"contents":{"source":"data:,first"}},
			{"filesystem":"root","path":"/etc/b","mode":420,"contents":{"source":"data:,b"}},
			{"filesystem":"root","path":"/etc/a","mode":420,"contents":{"source":"data:,last"}}]},
		"systemd":{"units":[{"name":"a.service","contents":"[Unit]\n",
				"dropins":[{"name":"1.conf","contents":"[Unit]\n#old"},{"name":"2.conf","contents":"[Unit]\n#two"}]},
			{"name":"b.service","enable":true,"contents":"[Unit]\n"},
			{"name":"a.service","enabled":true,"dropins":[{"name":"1.conf","contents":"[Unit]\n#new"}]}]},
		"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["one","two"]},
			{"name":"core","sshAuthorizedKeys":["two","three"]}]}}`)
	raw, err := Encode(got)
	require.NoError(t, err)
	assert.JSONEq(t, `{"ignition":{"version":"3.5.0"},
		"storage":{"files":[{"path":"/etc/a","overwrite":true,"mode":420,"contents":{"source":"data:,last"}},
			{"path":"/etc/b","overwrite":true,"mode":420,"contents":{"source":"data:,b"}}]},
		"systemd":{"units":[{"name":"a.service","enabled":true,
				"dropins":[{"name":"1.conf","contents":"[Unit]\n#new"},{"name":"2.conf","contents":"[Unit]\n#two"}]},
			{"name":"b.service","enabled":true,"contents":"[Unit]\n"}]},
		"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["two","three","one"]}]}}`, string(raw))
}

// What version 3 has no word for is refused.
func TestVersionTwoThatHasNoVersionThree(t *testing.T) {
	_, err := Parse([]byte(`{"ignition":{"version":"2.2.0"},"networkd":{"units":[{"name":"a.network",
		"contents":"[Match]\nName=eth0\n"}]}}`))
	require.Len(t, report.Of(err), 1, "%v", err)
	assert.Equal(t, ruleIgnition2, report.Of(err)[0].Rule)
}

func TestDownRefuses(t *testing.T) {
	const headers = `"httpHeaders":[{"name":"a","value":"b"}]`
	for _, c := range []struct{ name, config, version, says string }{
		{"headers of a file", `"storage":{"files":[{"path":"/a","contents":{"source":"http://a.example.com/a",` + headers +
			`}}]}`, "3.0.0", "file /a: HTTP headers"},
		{"headers of what is appended", `"storage":{"files":[{"path":"/a","append":[{"source":"http://a.example.com/a",` +
			headers + `}]}]}`, "3.0.0", "file /a: HTTP headers"},
		{"headers of a config", `"ignition":{"version":"3.5.0","config":{"merge":[{"source":"http://a.example.com/a",` +
			headers + `}]}}`, "3.0.0", "of fetched configs"},
		{"a config that is packed",
			`"ignition":{"version":"3.5.0","config":{"replace":{"source":"data:,","compression":"gzip"}}}`,
			"3.0.0", "of fetched configs"},
		{"headers of a CA", `"ignition":{"version":"3.5.0","security":{"tls":{"certificateAuthorities":[{"source":` +
			`"http://a.example.com/a",` + headers + `}]}}}`, "3.0.0", "of fetched configs"},
		{"a proxy for TLS", `"ignition":{"version":"3.5.0","proxy":{"httpsProxy":"https://a.example.com"}}`, "3.0.0",
			"ignition.proxy"},
		{"no proxy", `"ignition":{"version":"3.5.0","proxy":{"noProxy":["a.example.com"]}}`, "3.0.0", "ignition.proxy"},
		{"mount options",
			`"storage":{"filesystems":[{"device":"/dev/vdb","format":"xfs","path":"/var/a","mountOptions":["ro"]}]}`,
			"3.0.0", "file system on /dev/vdb"},
		{"cex that is off", `"storage":{"luks":[{"name":"v","device":"/dev/vdb","cex":{"enabled":false}}]}`, "3.4.0", ""},
		{"a config that is not packed",
			`"ignition":{"version":"3.5.0","config":{"replace":{"source":"data:,","compression":""}}}`,
			"3.0.0", ""},
		{"a file system without mount options",
			`"storage":{"filesystems":[{"device":"/dev/vdb","format":"xfs","path":"/var/a"}]}`,
			"3.0.0", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := c.config
			if !strings.Contains(text, `"ignition"`) {
				text = `"ignition":{"version":"3.5.0"},` + text
			}
			_, err := Down(parsed(t, "{"+text+"}"), c.version)
			if c.says == "" {
				assert.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, c.says)
		})
	}
}

func TestStaysInside(t *testing.T) {
	long := strings.Repeat("a", maxName)
	for name, want := range map[string]bool{
		"a.service": true, "m.wants/a.service": true, "m.requires/a": true, "m.upholds/a": true, long: true,
		"": false, ".": false, "..": false, "m.wants/": false, "m.wants/..": false, "/a.service": false, "//a": false,
		"/etc/m.wants/a": false, "b/m.wants/a": false, "m.wants/b/a": false, "../m.wants/a": false, ".wants/a": false,
		"m.d/a": false, "m/a": false, "a\tb": false, long + "a": false, "m.wants/" + long + "a": false,
		long + ".wants/a": false, "/m.wants/a": false,
	} {
		assert.Equal(t, want, StaysInside(name), "%.40q", name)
	}
}

func TestNamesOfDirectoriesAndDropins(t *testing.T) {
	install := "[Install]\nWantedBy=../x\n"
	found := Names(ign35.Config{
		Storage: ign35.Storage{Directories: []ign35.Directory{{Node: ign35.Node{Path: "/etc/a\x00"}}}},
		Systemd: ign35.Systemd{Units: []ign35.Unit{{Name: "a.service",
			Dropins: []ign35.Dropin{{Name: "1.conf", Contents: &install}}}}}})
	require.Len(t, found, 2)
	assert.Equal(t, "storage.directories[0].path", found[0].Path)
	assert.Equal(t, "systemd.units[0].dropins[0].contents", found[1].Path)
}

// The reason of a value of the wrong kind names the field, without Go's words.
func TestReasonsOfWrongKinds(t *testing.T) {
	for raw, want := range map[string]string{
		`"text"`:              "the config cannot be a string",
		`{"ignition":"text"}`: "ignition cannot be a string",
	} {
		_, err := Parse([]byte(raw))
		assert.ErrorContains(t, err, want)
	}
}

func TestEncode(t *testing.T) {
	raw, err := Encode(map[string]any{"a<b": uint64(12345678901234567890), "c": nil, "d": map[string]any{"e": []string{}},
		"f": "", "g": false})
	require.NoError(t, err)
	assert.Equal(t, `{"a<b":12345678901234567890,"f":"","g":false}`, string(raw))
	_, err = Encode(make(chan int))
	assert.Error(t, err, "what JSON has no word for")
}

func TestUnknownCompression(t *testing.T) {
	source, kind := "data:,a", "xz"
	_, err := Contents(ign35.Resource{Source: &source, Compression: &kind})
	assert.ErrorContains(t, err, `compression "xz" is not known`)
	kind = "gzip"
	_, err = Contents(ign35.Resource{Source: &source, Compression: &kind})
	assert.ErrorContains(t, err, "unpack contents")
}
