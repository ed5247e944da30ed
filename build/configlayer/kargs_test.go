package configlayer_test

import (
	"testing"
	"time"

	"github.com/BurntSushi/toml"
	"github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build/configlayer"
	"dayone.dev/dayone/installconfig/report"
)

const kargsFile = "/usr/lib/bootc/kargs.d/50-dayone-config.toml"

func withArguments(t *testing.T, files map[string]string, k configlayer.KernelArguments) (*configlayer.Layer,
	[]report.Finding, error) {
	t.Helper()
	tree := base()
	for name, text := range files {
		tree.Contents["/usr/lib/bootc/kargs.d/"+name] = []byte(text)
	}
	return configlayer.Compile(types.Config{}, configlayer.Options{Tree: tree, Created: time.Unix(1700000000, 0),
		KernelArguments: k})
}

func content(layer *configlayer.Layer, p string) string {
	for _, e := range layer.Entries {
		if e.Path == p {
			return string(e.Content)
		}
	}
	return ""
}

func TestBootcKernelArguments(t *testing.T) {
	for _, c := range []struct {
		name string
		base map[string]string
		list []string
		want []string
	}{
		{"as they are", nil, []string{"nosmt", "console=ttyS0,115200n8"},
			[]string{"nosmt", "console=ttyS0,115200n8"}},
		{"several in one string", nil, []string{"a=1  b=2", "c"}, []string{"a=1", "b=2", "c"}},
		{"order is kept and doubles go", nil, []string{"b", "a", "b a"}, []string{"b", "a"}},
		{"equal keys are not doubles", nil, []string{"console=tty0", "console=ttyS0"},
			[]string{"console=tty0", "console=ttyS0"}},
		{"quotes hold blanks together", nil, []string{`dyndbg="file a.c +p; file b.c +p" x`},
			[]string{`dyndbg="file a.c +p; file b.c +p"`, "x"}},
		{"backslashes and other languages", nil, []string{`p=\w+`, "name=Łódź"}, []string{`p=\w+`, "name=Łódź"}},
		{"what the base has is not twice", map[string]string{"00-a.toml": "kargs = [\"a=1\", \"b\"]\n",
			"10-no.txt": "kargs = [\"c\"]"}, []string{"a=1", "b", "c"}, []string{"c"}},
		{"the base's for another machine", map[string]string{"00-a.toml": "kargs = [\"a\"]\nmatch-architectures = " +
			"[\"aarch64\"]\n"}, []string{"a"}, []string{"a"}},
		{"all of them are the base's", map[string]string{"00-a.toml": "kargs = [\"a\"]\nmatch-architectures = " +
			"[\"x86_64\"]\n"}, []string{"a"}, nil},
		{"none", nil, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := configlayer.KernelArguments{List: c.list, Bootc: true, Architecture: "amd64"}
			layer, findings, err := withArguments(t, c.base, k)
			require.NoError(t, err)
			assert.Empty(t, findings)
			text := content(layer, kargsFile)
			if c.want == nil {
				assert.Empty(t, text)
				assert.True(t, layer.Empty())
				return
			}
			var file map[string][]string
			require.NoError(t, toml.Unmarshal([]byte(text), &file), text)
			assert.Equal(t, map[string][]string{"kargs": c.want}, file, "bootc refuses keys that it does not know")
			again, _, err := withArguments(t, c.base, k)
			require.NoError(t, err)
			assert.Equal(t, layer.DiffID, again.DiffID)
			require.Len(t, layer.Placements, 1)
			assert.Equal(t, "kargs.d", layer.Placements[0].Where)
		})
	}
}

func TestKernelArgumentsWithoutBootc(t *testing.T) {
	layer, findings, err := withArguments(t, nil, configlayer.KernelArguments{List: []string{"nosmt"},
		Architecture: "amd64"})
	require.NoError(t, err)
	assert.Empty(t, findings)
	assert.True(t, layer.Empty(), "rpm-ostree and ostree take none from an image")
	assert.Equal(t, []configlayer.Placement{{Path: "spec.kernelArguments", Where: "deployment",
		Reason: layer.Placements[0].Reason}}, layer.Placements)
}

func TestBadKernelArguments(t *testing.T) {
	for name, argument := range map[string]string{"a control character": "a=\x01", "half a pair of quotes": `a="b c`,
		"not UTF-8": "a=\xff"} {
		t.Run(name, func(t *testing.T) {
			_, findings, err := withArguments(t, nil, configlayer.KernelArguments{List: []string{"fine", argument}, Bootc: true})
			require.Error(t, err)
			require.Len(t, findings, 1)
			assert.Equal(t, "kernel-argument", findings[0].Rule)
			assert.Equal(t, "spec.kernelArguments[1]", findings[0].Path)
		})
	}
	_, findings, err := withArguments(t, map[string]string{"00-bad.toml": "kargs = nothing"},
		configlayer.KernelArguments{List: []string{"a"}, Bootc: true})
	require.NoError(t, err)
	require.Len(t, findings, 1, "a file of the base that bootc would stumble over")
	assert.Equal(t, report.Warning, findings[0].Severity)
}
