package render_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/manifests/render"
)

var update = flag.Bool("update", false, "write the cases' wanted results anew")

// outcome is what a case wants: findings by rule and place, and for each pool its name and what is in it.
type outcome struct {
	Refused []string            `json:"refused,omitempty"`
	Strict  []string            `json:"refusedWhenStrict,omitempty"`
	Warned  []string            `json:"warned,omitempty"`
	Pools   map[string]poolSeen `json:"pools,omitempty"`
}

type poolSeen struct {
	Name    string            `json:"name"`
	Image   string            `json:"image"`
	Layered string            `json:"layered,omitempty"`
	Files   map[string]string `json:"files,omitempty"`
	// Unreadable is why no server can read the config.
	Unreadable string `json:"unreadable,omitempty"`
}

func TestCases(t *testing.T) {
	entries, err := os.ReadDir("testdata")
	require.NoError(t, err)
	require.NotEmpty(t, entries)
	for _, e := range entries {
		if e.Name() == "fuzz" {
			continue
		}
		t.Run(e.Name(), func(t *testing.T) {
			got := see(t, filepath.Join("testdata", e.Name(), "in"))
			file := filepath.Join("testdata", e.Name(), "want.json")
			if *update {
				raw, err := json.MarshalIndent(got, "", "  ")
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(file, append(raw, '\n'), 0o600))
			}
			raw, err := os.ReadFile(file)
			require.NoError(t, err)
			var want outcome
			require.NoError(t, json.Unmarshal(raw, &want))
			assert.Equal(t, want, got)
		})
	}
}

func see(t *testing.T, dir string) outcome {
	t.Helper()
	set, err := manifests.ReadDir(dir, manifests.ReadOptions{})
	require.NoError(t, err)
	options := render.Options{Versions: render.Versions{Raw: "v1", Hash: "h", Payload: "1.0.0"}, NeedTemplates: true}
	var out outcome
	result, err := render.Render(set, options)
	if err != nil {
		out.Refused = lines(report.Of(err))
		return out
	}
	out.Warned = lines(result.Findings)
	options.Strict = true
	if _, err := render.Render(set, options); err != nil {
		out.Strict = lines(report.Of(err))
	}
	out.Pools = map[string]poolSeen{}
	for i, p := range result.Pools {
		c := result.Configs[i]
		seen := poolSeen{Name: c.Name, Image: c.Spec.OSImageURL, Layered: c.Annotations[manifests.AnnotationPreBuiltImage],
			Files: map[string]string{}}
		config, err := machineconfig.ParseRendered(c.Spec.Config.Raw)
		if err != nil {
			seen.Unreadable = err.Error() // the findings say it before
		}
		for _, f := range config.Storage.Files {
			data, err := machineconfig.Contents(f.Contents)
			if errors.Is(err, machineconfig.ErrRemote) {
				data, err = []byte(*f.Contents.Source), nil
			}
			require.NoError(t, err)
			seen.Files[f.Path] = string(data)
			if !utf8.Valid(data) {
				seen.Files[f.Path] = fmt.Sprintf("%x", data)
			}
		}
		if len(seen.Files) == 0 {
			seen.Files = nil
		}
		out.Pools[p.Name] = seen
		assert.Equal(t, c.Name, p.Spec.Configuration.Name)
		assert.Equal(t, c.Name, p.Status.Configuration.Name)
		assert.Len(t, p.Spec.Configuration.Source, len(result.Components))
	}
	return out
}

func lines(findings []report.Finding) []string {
	var out []string
	for _, f := range findings {
		out = append(out, f.Rule+" at "+f.Place()+": "+f.Message)
	}
	return out
}
