package manifests

import (
	"crypto/md5"
	"encoding/json"
	"strings"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// sameAsLibrary checks that YAML writes what the library writes, or fails where it fails.
func sameAsLibrary(t *testing.T, raw []byte) {
	t.Helper()
	want, wantErr := yaml.JSONToYAML(raw)
	got, err := YAML(raw)
	if wantErr != nil {
		require.Error(t, err)
		return
	}
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
}

func TestYAMLWritesWhatTheLibraryWrites(t *testing.T) {
	text := func(s string) string {
		raw, err := json.Marshal(s)
		require.NoError(t, err)
		return string(raw)
	}
	for _, s := range []string{
		"", "plain", "50-perf-1", "00-master", "2x", "2001-01-01t00:00:00z", "9-s:", "7 s", "/etc/path", "y", "No", "null",
		"Null", "~", "12", "1_000", "0x1f", "1:30", "2026-01-02", "3.5.0", "a: b", "a:", "a #b", "#a", "-a", "- a",
		"data:,a%0A",
		" a", "a ", "a\tb", "a\nb", "a\nb\n", "a\nb\n\n", "\na\n", "a\n b\n", "a \nb\n", "a\n\nb\n",
		"[Unit]\nDescription=x\n\n[Install]\nWantedBy=a\n", "<>&\n", "<a>&b",
		strings.Repeat("word ", 40), strings.Repeat("x", 400), "key=" + strings.Repeat("value  ", 30), "quote\"d",
		"back\\slash", "back\\nslash\n", "0\\n", "a\n\\n", "\\\\n", "a\n\\", "it's", "é", "\u0085", "\u2028", "\uffff",
		"\x7f",
		"---", "--- a", "...", "a: b\nc: d\n", "? a", "* a", "a\r\nb\r\n", "{a}", "[a]", "a,b", "@a", "%a", "!a", "|", ">",
		"&a", "'a'", "\"a\"", "=", "<<", ".inf", "+1", "1e3", "0b1", "off\n",
	} {
		for _, frame := range []string{`{"a":%}`, `{"a":{"b":%}}`, `{"a":[%]}`, `{"a":[{"b":%,"c":[%,%]}]}`,
			`{"kernelArguments":["x",%],"config":{"storage":{"files":[{"path":%}]}}}`, `[%]`, `{"k":[[%]]}`} {
			sameAsLibrary(t, []byte(strings.ReplaceAll(frame, "%", text(s))))
		}
		if raw := text(s); len(s) > 0 {
			sameAsLibrary(t,
				[]byte(`{"z":1,`+raw+`:"v","A":true,"a/b.c-d":null,"e":{},"f":[],"g":-12,"h":1.5,"i":12345678901234567890}`))
		}
	}
}

func TestYAMLLeavesUnusualDocumentsToTheLibrary(t *testing.T) {
	for _, raw := range []string{`{}`, `[]`, `"a"`, `1`, `null`, `{"a":1,"a":2}`, `{"a":01}`, `{"a":1`, `{"a":-0}`,
		`{"a1":1,"a10":2,"a9":3}`, `{"a":"\ud83d\ude00"}`, `{"a":"\u0041"}`, `{"a":"\/"}`,
		strings.Repeat(`{"a":`, 80) + "1" + strings.Repeat("}", 80)} {
		sameAsLibrary(t, []byte(raw))
	}
}

func TestGraftedConfigsHaveTheLibrarysBytes(t *testing.T) {
	large := `{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/a b","mode":420,` +
		`"contents":{"source":"data:,` + strings.Repeat("many%20words and more ", 40) + `"}}]},` +
		`"systemd":{"units":[{"name":"a.service","contents":"[Unit]\nDescription=x\n"}]}}`
	for name, c := range map[string]mcfgv1.MachineConfig{
		"a config": {Spec: mcfgv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: []byte(large)},
			KernelArguments: []string{"a=b c"}, OSImageURL: "x@sha256:1"}},
		"no config":       {Spec: mcfgv1.MachineConfigSpec{KernelType: "default"}},
		"an empty config": {Spec: mcfgv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: []byte(`{}`)}}},
		"a config beyond ASCII": {Spec: mcfgv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: []byte(
			`{"ignition":{"version":"3.5.0"},"x":"\u00e9é"}`)}}},
		"an argument with the mark": {Spec: mcfgv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: []byte(large)},
			KernelArguments: []string{graftMark}}},
		"an annotation with a fold": {ObjectMeta: metav1.ObjectMeta{Name: "m",
			Annotations: map[string]string{"a": strings.Repeat("long words ", 20)}},
			Spec: mcfgv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: []byte(large)}}},
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := json.Marshal(c.Spec)
			require.NoError(t, err)
			want, err := yaml.JSONToYAML(raw)
			require.NoError(t, err)
			sum, err := HashSpec(c.Spec, md5.New)
			require.NoError(t, err)
			whole := md5.Sum(want)
			assert.Equal(t, whole[:], sum.Sum(nil))

			got, err := Marshal(&c)
			require.NoError(t, err)
			c.SetGroupVersionKind(mcfgv1.GroupVersion.WithKind("MachineConfig"))
			raw, err = json.Marshal(c)
			require.NoError(t, err)
			want, err = yaml.JSONToYAML(raw)
			require.NoError(t, err)
			assert.Equal(t, string(want), string(got))
		})
	}
}

func FuzzYAML(f *testing.F) {
	f.Add([]byte(`{"a":["b",{"c":"d e","f":"g\nh\n"}],"i":"y"}`))
	f.Add([]byte(`{"contents":{"source":"data:,a"},"kernelArguments":["a b","c\u003c"]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) > 4096 || !json.Valid(raw) {
			t.Skip("no JSON")
		}
		if _, ok := parseTree(raw); !ok {
			return // the library's word anyway
		}
		want, wantErr := yaml.JSONToYAML(raw)
		got, err := YAML(raw)
		assert.Equal(t, wantErr == nil, err == nil)
		assert.Equal(t, string(want), string(got))
		sum, err := HashYAML(raw, md5.New)
		if err == nil {
			whole := md5.Sum(got)
			assert.Equal(t, whole[:], sum.Sum(nil))
		}
	})
}
