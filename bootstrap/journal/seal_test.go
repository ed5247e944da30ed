package journal

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/installconfig/report"
)

// sample writes a journal with two results into a directory of its own.
func sample(t *testing.T) (dir string, raw []byte) {
	dir = t.TempDir()
	j, err := Open(dir)
	require.NoError(t, err)
	j.Process = Process{PID: 7, Started: time.Unix(1_800_000_000, 5).UTC()}
	j.Records = []Record{
		{Name: "base", Status: StatusDone, InputsHash: "12ab",
			Output: []byte(`{"final":"registry.example.com/os@sha256:0123"}`)},
		{Name: "build-master", Status: StatusDone, InputsHash: "34cd", Output: []byte(`{"digest":"sha256:4567"}`)}}
	require.NoError(t, j.Save())
	raw, err = os.ReadFile(filepath.Join(dir, File))
	require.NoError(t, err)
	return dir, raw
}

// Every byte is changed, one after the other. The journal is refused, or it says what it said before.
func TestNoticeChangedByte(t *testing.T) {
	dir, raw := sample(t)
	file := filepath.Join(dir, File)
	want, err := Open(dir)
	require.NoError(t, err)
	for i := range raw {
		for _, bit := range []byte{0x01, 0x20} {
			changed := append([]byte(nil), raw...)
			changed[i] ^= bit
			require.NoError(t, os.WriteFile(file, changed, 0o600))
			got, err := Open(dir)
			if err == nil {
				assert.Equal(t, want, got, "byte %d", i)
				continue
			}
			var finding report.Finding
			require.ErrorAs(t, err, &finding, "byte %d", i)
			assert.Equal(t, file, finding.File)
			assert.Contains(t, []string{"journal-damaged", "journal-version"}, finding.Rule)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	_, raw := sample(t)
	const damaged, away = "journal-damaged", "move this file away"
	for _, c := range []struct{ name, content, rule, says, next string }{
		{"cut short", string(raw[:len(raw)/2]), damaged, "unexpected end of JSON input", away},
		{"empty", "", damaged, "unexpected end of JSON input", away},
		{"without a version", `{"phases":[]}`, damaged, "there is no layout 0", away},
		{"a version that is no number", `{"version":"1"}`, damaged, "version of type int", away},
		{"phases of another form", `{"version":1,"phases":{}}`, damaged, "phases of type", away},
		{"another digest", strings.Replace(string(raw), "sha256:0123", "sha256:0124", 1), damaged,
			"its checksum does not fit what it says", away},
		{"a checksum in the middle", `{"version":1,"checksum":"sha256:00","phases":[]}`, damaged,
			"its checksum is not at its end", away},
		{"text after it", string(raw) + "{}", damaged, "after top-level value", away},
		{"newer, of another form", `{"version":2,"phases":{"base":"done"}}`, "journal-version", "a newer dayone",
			"with that version"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, File), []byte(c.content), 0o600))
			_, err := Open(dir)
			var finding report.Finding
			require.ErrorAs(t, err, &finding)
			assert.Equal(t, c.rule, finding.Rule)
			assert.Contains(t, finding.Message, c.says)
			assert.Contains(t, finding.Next, c.next)
		})
	}
}

func TestOpenWithoutChecksum(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, File),
		[]byte(`{"version":1,"phases":[{"name":"base","title":"","status":"done"}]}`), 0o600))
	j, err := Open(dir)
	require.NoError(t, err)
	assert.Equal(t, StatusDone, j.Find("base").Status)
}
