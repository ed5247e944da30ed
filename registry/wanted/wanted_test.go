package wanted_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry/wanted"
)

func image(n int, by ...string) wanted.Image {
	return wanted.Image{Repository: "ns/os", Digest: digest.FromString(fmt.Sprint(n)), By: by}
}

func TestNewJoinsWhoWantsAnImage(t *testing.T) {
	var many []wanted.Image
	for i := range 20 {
		many = append(many, image(1, fmt.Sprintf("node w%02d", i)))
	}
	l := wanted.New(time.Now(), append(many, image(2, "pool b"), image(2, "pool a"), image(2, "pool a")))
	require.Len(t, l.Images, 2)
	for _, i := range l.Images {
		if i.Digest == image(1).Digest {
			assert.Len(t, i.By, 8)
			assert.Equal(t, "and 13 more", i.By[7])
		} else {
			assert.Equal(t, []string{"pool a", "pool b"}, i.By)
		}
	}
	other := wanted.New(time.Now().Add(time.Hour), []wanted.Image{image(2), image(1)})
	assert.Equal(t, l.Hash(), other.Hash(), "who wants it and when it was made do not matter")
	assert.NotEqual(t, l.Hash(), wanted.New(time.Now(), []wanted.Image{image(1)}).Hash())
}

func TestHolds(t *testing.T) {
	l := wanted.New(time.Now(), []wanted.Image{image(1), image(2)})
	missing := func(n ...int) []wanted.Missing {
		var out []wanted.Missing
		for _, i := range n {
			out = append(out, wanted.Missing{Image: image(i).Name(), Why: "no room"})
		}
		return out
	}
	many := wanted.List{Issued: l.Issued}
	var gone []wanted.Missing
	for i := range 40 {
		many.Images = append(many.Images, image(i))
		if i > 0 && i < 30 {
			gone = append(gone, missing(i)...)
		}
	}
	for _, tc := range []struct {
		name   string
		list   wanted.List
		report wanted.Report
		image  int
		want   bool
	}{
		{"all", l, wanted.NewReport(l, nil, 0, 0), 1, true},
		{"the other one is missing", l, wanted.NewReport(l, missing(2), 0, 0), 1, true},
		{"it is missing", l, wanted.NewReport(l, missing(1), 0, 0), 1, false},
		{"of another list", l, wanted.NewReport(many, nil, 0, 0), 1, false},
		{"nobody wants it", l, wanted.NewReport(l, nil, 0, 0), 3, false},
		{"more are missing than are named", many, wanted.NewReport(many, gone, 0, 0), 0, false},
		{"the registry does not run", l, func() wanted.Report {
			r := wanted.NewReport(l, nil, 0, 0)
			r.Ready, r.Problem = false, "it does not run"
			return r
		}(), 1, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			assert.Equal(t, tc.want, tc.report.Holds(tc.list, "ns/os", image(tc.image).Digest))
		})
	}
}

func TestSetRoom(t *testing.T) {
	for _, tc := range []struct {
		name       string
		room, want int64
	}{{"none", 0, 0}, {"few bytes", 15, 15}, {"a little more", 1<<30 + 5, 1 << 30}, {"an eighth more", 9<<27 + 1, 9 << 27},
		{"all ones", 1<<40 - 1, 15 << 36}} {
		t.Run(tc.name, func(t *testing.T) {
			var r wanted.Report
			r.SetRoom(tc.room)
			assert.Equal(t, tc.want, *r.RoomBytes)
		})
	}
	assert.Contains(t, wanted.Reported(`{"roomBytes":-1}`).Problem, "-1 bytes of room")
}

func TestReportIsBounded(t *testing.T) {
	l := wanted.List{}
	var gone []wanted.Missing
	for i := range wanted.MaxImages {
		l.Images = append(l.Images, image(i))
		gone = append(gone, wanted.Missing{Image: strings.Repeat("a", 255) + image(i).Name(), Why: strings.Repeat("ä", 5000)})
	}
	text, err := wanted.NewReport(l, gone, 1<<40, 1<<40).Encode()
	require.NoError(t, err)
	r, err := wanted.DecodeReport([]byte(text))
	require.NoError(t, err)
	assert.Equal(t, 0, r.Held)
	assert.Len(t, r.Missing, 16)
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, wanted.ListFile)
	raw, err := wanted.New(time.Now(), []wanted.Image{image(1, "pool a")}).Encode()
	require.NoError(t, err)
	wrote, err := wanted.WriteFile(path, raw)
	require.NoError(t, err)
	assert.True(t, wrote)
	wrote, err = wanted.WriteFile(path, raw)
	require.NoError(t, err)
	assert.False(t, wrote, "the file's time is when the list last changed")
	_, err = wanted.WriteFile(path, []byte(`{"images":[{"repository":"../x","digest":"sha256:1"}]}`))
	require.Error(t, err)
	l, err := wanted.ReadFile(path)
	require.NoError(t, err)
	assert.True(t, l.Has("ns/os", image(1).Digest))

	report := filepath.Join(dir, wanted.ReportFile)
	_, there, err := wanted.ReadReport(report, time.Now())
	require.NoError(t, err)
	assert.False(t, there)
	require.NoError(t, wanted.WriteReport(report, wanted.NewReport(l, nil, 1<<30, 0)))
	r, there, err := wanted.ReadReport(report, time.Now())
	require.NoError(t, err)
	assert.True(t, there && r.Ready)
	for _, off := range []time.Duration{time.Hour, -time.Hour} { // it does not run, or the clock was set
		r, _, err = wanted.ReadReport(report, time.Now().Add(off))
		require.NoError(t, err)
		assert.False(t, r.Ready)
		assert.Contains(t, r.Problem, "journalctl")
	}
	require.NoError(t, os.WriteFile(report, []byte(`{"held":3,"wanted":1}`), 0o600))
	_, _, err = wanted.ReadReport(report, time.Now())
	require.Error(t, err)
}

// FuzzDecode: what is read is written again as the same list.
func FuzzDecode(f *testing.F) {
	raw, err := wanted.New(time.Unix(1, 0), []wanted.Image{image(1, "a")}).Encode()
	require.NoError(f, err)
	f.Add(raw)
	f.Add([]byte(`{"images":[]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		l, err := wanted.Decode(raw)
		if err != nil {
			return
		}
		again, err := json.Marshal(l)
		require.NoError(t, err)
		same, err := wanted.Decode(again)
		require.NoError(t, err)
		assert.Equal(t, l.Hash(), same.Hash())
	})
}

// What a reason ends with says the cause and the next step, for each registry that was asked.
func TestLongReasonsKeepTheirEnds(t *testing.T) {
	long := func(who, end string) string { return who + ": " + strings.Repeat("x", 900) + ": " + end }
	l := wanted.New(time.Now(), []wanted.Image{image(1)})
	r := wanted.NewReport(l, []wanted.Missing{{Image: image(1).Name(),
		Why: "nobody has it\n" + long("m0", "set the clock") + "\n" + long("m1", "free disk space")}}, 0, 0)
	why := r.Missing[0].Why
	assert.LessOrEqual(t, len(why), 600)
	assert.Regexp(t, `^nobody has it\nm0: x+….*: set the clock\nm1: x+….*: free disk space$`, why)
	r = wanted.NewReport(l, []wanted.Missing{{Image: image(1).Name(), Why: "m0: no room"}}, 0, 0)
	assert.Equal(t, "m0: no room", r.Missing[0].Why)
}
