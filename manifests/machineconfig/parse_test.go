package machineconfig

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	ign22 "github.com/coreos/ignition/config/v2_2/types"
	ign30 "github.com/coreos/ignition/v2/config/v3_0/types"
	ign31 "github.com/coreos/ignition/v2/config/v3_1/types"
	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"

	"dayone.dev/dayone/installconfig/report"
)

func TestParseRefusals(t *testing.T) {
	for _, c := range []struct {
		name            string
		raw, rule, path string
	}{
		{"no object", `"text"`, ruleInvalid, ""},
		{"cut off", `{"ignition":`, ruleInvalid, ""},
		{"no version", `{"ignition":{}}`, ruleVersion, "ignition.version"},
		{"a version that is none", `{"ignition":{"version":"three"}}`, ruleVersion, "ignition.version"},
		{"2.3", `{"ignition":{"version":"2.3.0"}}`, ruleVersion, "ignition.version"},
		{"2.4", `{"ignition":{"version":"2.4.0"}}`, ruleVersion, "ignition.version"},
		{"3.6", `{"ignition":{"version":"3.6.0"}}`, ruleVersion, "ignition.version"},
		{"1.0", `{"ignition":{"version":"1.0.0"}}`, ruleVersion, "ignition.version"},
		{"a relative path", `{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"etc/a",
			"contents":{"source":"data:,"}}]}}`, ruleInvalid, "storage.files[0].path"},
		{"a path twice", `{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/a"},
			{"path":"/a"}]}}`, ruleInvalid, "storage.files[1]"},
		{"a path as a file and a directory", `{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/a"}],
			"directories":[{"path":"/a"}]}}`, ruleInvalid, "storage.files[0]"},
		{"set-user-id", `{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/a",
			"mode":2541}]}}`, ruleFileMode, "storage.files[0].mode"},
		{"another user in 2.2", `{"ignition":{"version":"2.2.0"},"passwd":{"users":[{"name":"guest"}]}}`,
			ruleIgnition2, "passwd.users[0].name"},
		{"a unit without a type", `{"ignition":{"version":"3.1.0"},"systemd":{"units":[{"name":"a"}]}}`,
			ruleInvalid, "systemd.units[0].name"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse([]byte(c.raw))
			require.Error(t, err)
			findings := report.Of(err)
			require.NotEmpty(t, findings)
			assert.Equal(t, c.rule, findings[0].Rule)
			assert.Equal(t, c.path, findings[0].Path)
			assert.NotEmpty(t, findings[0].Next)
		})
	}
}

func TestParseRenderedAppends(t *testing.T) {
	raw := []byte(
		`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/motd","overwrite":true,
			"append":[{"source":"data:,x"}]},{"path":"/b","overwrite":true,"contents":{"source":"data:,x"}}]}}`)
	_, err := Parse(raw)
	require.Error(t, err)
	got, err := ParseRendered(raw)
	require.NoError(t, err)
	assert.Nil(t, got.Storage.Files[0].Overwrite)
	assert.True(t, *got.Storage.Files[1].Overwrite)
	_, err = ParseRendered([]byte(`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"relative"}]}}`))
	require.Error(t, err)
	for _, version := range []string{"2.2.0", "3.2.0"} {
		old, err := ParseRendered([]byte(`{"ignition":{"version":"` + version + `"}}`))
		require.NoError(t, err)
		assert.Equal(t, Version, old.Ignition.Version)
	}
	_, err = ParseRendered3([]byte(`{"ignition":{"version":"3.2.0"}}`))
	require.NoError(t, err)
	_, err = ParseRendered3([]byte(`{"ignition":{"version":"2.2.0"}}`))
	require.ErrorContains(t, err, "nodes have configs of version 3")
}

func TestParseVersions(t *testing.T) {
	for _, version := range []string{"2.0.0", "2.1.0", "2.2.0", "3.0.0", "3.1.0", "3.2.0", "3.3.0", "3.4.0", "3.5.0"} {
		file := `{"path":"/etc/a","mode":420,"contents":{"source":"data:,a"}}`
		if version[0] == '2' {
			file = `{"filesystem":"root","path":"/etc/a","mode":420,"contents":{"source":"data:,a"}}`
		}
		got, err := Parse([]byte(`{"ignition":{"version":"` + version + `"},"storage":{"files":[` + file + `]}}`))
		require.NoError(t, err, version)
		assert.Equal(t, Version, got.Ignition.Version)
		require.Len(t, got.Storage.Files, 1)
		data, err := Contents(got.Storage.Files[0].Contents)
		require.NoError(t, err)
		assert.Equal(t, "a", string(data))
	}
}

func TestDown(t *testing.T) {
	plain := parsed(t,
		`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/a","contents":{"source":"data:,1"}}]},
			"systemd":{"units":[{"name":"a.service","enabled":true,"contents":"[Unit]\n"}]}}`)
	for _, version := range []string{"3.5.0", "3.4.0", "3.3.0", "3.2.0", "3.1.0", "3.0.0", "2.2.0"} {
		got, err := Down(plain, version)
		require.NoError(t, err, version)
		raw, err := Encode(got)
		require.NoError(t, err)
		assert.Contains(t, string(raw), `"version":"`+version+`"`)
		if version == "3.0.0" {
			assert.IsType(t, ign30.Config{}, got)
		}
		if version == "3.1.0" {
			assert.IsType(t, ign31.Config{}, got)
		}
		if version == "2.2.0" {
			assert.IsType(t, ign22.Config{}, got)
		}
	}
	proxy := parsed(t, `{"ignition":{"version":"3.5.0","proxy":{"httpProxy":"http://proxy.example.com"}}}`)
	_, err := Down(proxy, "3.0.0")
	require.ErrorContains(t, err, "ignition.proxy")
	_, err = Down(proxy, "3.1.0")
	require.NoError(t, err)
	cex := parsed(t,
		`{"ignition":{"version":"3.5.0"},"storage":{"luks":[{"name":"v","device":"/dev/vdb","cex":{"enabled":true}}]}}`)
	_, err = Down(cex, "3.4.0")
	require.ErrorContains(t, err, "cex")
	_, err = Down(plain, "4.0.0")
	require.ErrorContains(t, err, "not known")
}

func TestContentsAreBounded(t *testing.T) {
	packed := func(size int) ign35.Resource {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, err := w.Write(bytes.Repeat([]byte("a"), size))
		require.NoError(t, err)
		require.NoError(t, w.Close())
		r, method := Inline(b.Bytes()), "gzip"
		r.Compression = &method
		return r
	}
	got, err := Contents(packed(100))
	require.NoError(t, err)
	assert.Len(t, got, 100)
	_, err = Contents(packed(maxContents + 1))
	require.ErrorContains(t, err, "more than")
	remote := "https://example.com/a"
	_, err = Contents(parsed(t,
		`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/a","contents":{"source":"`+remote+`"}}]}}`).
		Storage.Files[0].Contents)
	require.ErrorIs(t, err, ErrRemote)
	got, err = Contents(Inline([]byte("x\x00y")))
	require.NoError(t, err)
	assert.Equal(t, "x\x00y", string(got))
	got, err = Contents(Escaped([]byte("a b%\n")))
	require.NoError(t, err)
	assert.Equal(t, "a b%\n", string(got))
}

func FuzzParse(f *testing.F) {
	for seed := range uint64(8) {
		raw, _ := json.Marshal(made(rand.New(rand.NewPCG(seed, 3))))
		f.Add(raw)
	}
	f.Add([]byte(
		`{"ignition":{"version":"2.2.0"},"storage":{"files":[{"filesystem":"root","path":"/a"}]},
			"systemd":{"units":[{"name":"a.service","enable":true}]}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		config, err := Parse(raw)
		if err != nil {
			require.NotEmpty(t, report.Of(err))
			return
		}
		encoded, err := Encode(config)
		require.NoError(t, err)
		again, err := Parse(encoded)
		require.NoError(t, err)
		twice, err := Encode(again)
		require.NoError(t, err)
		require.Equal(t, string(encoded), string(twice))
		for _, version := range []string{"3.4.0", "3.0.0", "2.2.0"} {
			_, _ = Down(config, version) // may refuse, must not panic
		}
	})
}
