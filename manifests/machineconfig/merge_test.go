package machineconfig

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	v35 "github.com/coreos/ignition/v2/config/v3_5"
	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func parsed(t *testing.T, text string) ign35.Config {
	t.Helper()
	c, err := Parse([]byte(text))
	require.NoError(t, err)
	return c
}

// foldWithLibrary merges with Ignition's own merge, pair by pair, which is what MCO does.
func foldWithLibrary(configs []ign35.Config) ign35.Config {
	out := configs[0]
	for _, c := range configs[1:] {
		files := append([]ign35.File(nil), c.Storage.Files...)
		for i := range files {
			if files[i].Contents.Compression == nil {
				none := ""
				files[i].Contents.Compression = &none
			}
		}
		c.Storage.Files = files
		out = v35.Merge(out, c)
	}
	for i := range out.Storage.Files {
		f := &out.Storage.Files[i]
		if f.Contents.Compression != nil && *f.Contents.Compression == "" {
			f.Contents.Compression = nil
		}
		if f.Overwrite == nil {
			yes := true
			f.Overwrite = &yes
		}
	}
	return out
}

// made is a config of random parts over a few names, so that merging has overlaps of every kind.
func made(r *rand.Rand) map[string]any {
	pick := func(n int) int { return r.IntN(n) }
	var files, dirs, links, users []any
	used := map[string]bool{}
	node := func() map[string]any {
		for {
			p := fmt.Sprintf("/etc/x/%d", pick(8))
			if !used[p] {
				used[p] = true
				return map[string]any{"path": p}
			}
		}
	}
	for range pick(3) {
		f := node()
		if pick(2) == 0 {
			f["mode"] = 384 + pick(3)
		}
		if pick(3) > 0 {
			c := map[string]any{"source": fmt.Sprintf("data:,%d", pick(100))}
			if pick(4) == 0 {
				c["compression"] = []string{"", "gzip"}[pick(2)]
			}
			f["contents"] = c
			if pick(4) == 0 {
				f["overwrite"] = pick(2) == 0
			}
		} else if pick(2) == 0 {
			f["append"] = []any{map[string]any{"source": fmt.Sprintf("data:,%d", pick(100))}}
		}
		files = append(files, f)
	}
	if pick(3) == 0 {
		d := node()
		d["mode"] = 448 + pick(3)
		dirs = append(dirs, d)
	}
	if pick(3) == 0 {
		l := node()
		l["target"] = fmt.Sprint("/etc/y", pick(3))
		links = append(links, l)
	}
	units := madeUnits(pick)
	if pick(3) == 0 {
		users = append(users, map[string]any{"name": "core", "sshAuthorizedKeys": []string{fmt.Sprint("k", pick(4))}})
	}
	c := map[string]any{"ignition": map[string]any{"version": []string{"3.5.0", "3.1.0"}[pick(2)]},
		"storage": map[string]any{"files": files, "directories": dirs, "links": links},
		"systemd": map[string]any{"units": units},
		"passwd":  map[string]any{"users": users}}
	if pick(4) == 0 {
		c["kernelArguments"] = map[string]any{"shouldExist": []string{fmt.Sprint("a", pick(3))}}
	}
	return c
}

func madeUnits(pick func(int) int) []any {
	var units []any
	seen := map[int]bool{}
	for range pick(3) {
		n := pick(5)
		if seen[n] {
			continue
		}
		seen[n] = true
		u := map[string]any{"name": fmt.Sprintf("u%d.service", n)}
		if pick(2) == 0 {
			u["contents"] = fmt.Sprintf("[Unit]\nDescription=%d\n", pick(9))
		}
		if pick(2) == 0 {
			u["enabled"] = pick(2) == 0
		}
		if pick(2) == 0 {
			u["dropins"] = []any{map[string]any{"name": fmt.Sprintf("%d.conf", pick(2)), "contents": "[Unit]\n"}}
		}
		units = append(units, u)
	}
	return units
}

func TestMergeEqualsIgnitions(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		var configs []ign35.Config
		for range 2 + r.IntN(6) {
			raw, err := json.Marshal(made(r))
			require.NoError(t, err)
			configs = append(configs, parsed(t, string(raw)))
		}
		want, err := Encode(foldWithLibrary(configs))
		require.NoError(t, err)
		got, err := Encode(merge(configs...))
		require.NoError(t, err)
		require.JSONEq(t, string(want), string(got), "seed %d", seed)
		require.Equal(t, string(want), string(got), "seed %d", seed)
	}
}

func TestMergeReplacesKinds(t *testing.T) {
	got := merge(
		parsed(t, `{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/a","contents":{"source":"data:,1"}},
			{"path":"/b","contents":{"source":"data:,2"}}]}}`),
		parsed(t, `{"ignition":{"version":"3.5.0"},"storage":{"links":[{"path":"/a","target":"/b"}]}}`))
	require.Len(t, got.Storage.Files, 1)
	assert.Equal(t, "/b", got.Storage.Files[0].Path)
	require.Len(t, got.Storage.Links, 1)
}

func TestMergeKeepsItsInput(t *testing.T) {
	a := parsed(t, `{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/a","contents":{"source":"data:,1"}}]}}`)
	b := parsed(
		t, `{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/a","mode":384},
			{"path":"/c","contents":{"source":"data:,3"}}]}}`)
	before, err := Encode(b)
	require.NoError(t, err)
	first, err := Encode(merge(a, b))
	require.NoError(t, err)
	second, err := Encode(merge(a, b))
	require.NoError(t, err)
	after, err := Encode(b)
	require.NoError(t, err)
	assert.Equal(t, string(first), string(second))
	assert.Equal(t, string(before), string(after))
}

// merge merges configs in order, as a Merger does.
func merge(configs ...ign35.Config) ign35.Config {
	var m Merger
	for _, c := range configs {
		m.Add(c)
	}
	return m.Result()
}
