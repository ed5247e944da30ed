package preflight

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests/assets"
	"dayone.dev/dayone/registry/certs"
)

// freeForm are paths whose keys an API does not prescribe, with the reason why a wrong one there is no mistake that
// anybody could see.
func freeForm() []struct{ path, reason string } {
	return []struct{ path, reason string }{
		{`metadata\.(labels|annotations)\.`, "keys of labels and annotations are their author's"},
		{`nodeSelector\.matchLabels\.`, "nodes may have any label"},
		{`^ConfigMap .*data\.`, "keys of a ConfigMap are their author's"},
		{`overlaySize$`, "the API takes a number of bytes for a quantity"},
		{`^Secret .*(data|stringData)\.\.dockerconfigjson$`, "a Secret that no MachineOSConfig names may have any keys"},
	}
}

// mistake is one wrong thing in one file.
type mistake struct {
	kind string
	// path has the object's kind before the field's path.
	file, path string
	// node leads to the place by its indexes from the file's documents on; the key where key is set, else its value.
	node   []int
	change func(n *yaml.Node)
}

// documentsOf reads all documents of a file.
func documentsOf(t *testing.T, raw []byte) []*yaml.Node {
	t.Helper()
	var out []*yaml.Node
	for dec := yaml.NewDecoder(bytes.NewReader(raw)); ; {
		var n yaml.Node
		err := dec.Decode(&n)
		if errors.Is(err, io.EOF) {
			return out
		}
		require.NoError(t, err)
		out = append(out, &n)
	}
}

func nodeAt(docs []*yaml.Node, path []int) *yaml.Node {
	n := docs[path[0]]
	for _, i := range path[1:] {
		n = n.Content[i]
	}
	return n
}

// mistakes are all that are made of one file.
func mistakes(t *testing.T, file string, raw []byte) []mistake {
	t.Helper()
	var out []mistake
	for i, doc := range documentsOf(t, raw) {
		kind := installconfig.FileName
		if file != installconfig.FileName {
			var object struct{ Kind string }
			require.NoError(t, doc.Decode(&object))
			kind = object.Kind
		}
		visit(doc.Content[0], kind+" ", []int{i, 0}, func(n *yaml.Node, path string, at []int, isKey bool) {
			add := func(what string, change func(*yaml.Node)) {
				out = append(out, mistake{what, file, path, slices.Clone(at), change})
			}
			if isKey {
				add(fewer, func(n *yaml.Node) { n.Value = n.Value[:len(n.Value)/2] + n.Value[len(n.Value)/2+1:] })
				add("another case", func(n *yaml.Node) {
					if upper := strings.ToUpper(n.Value[:1]) + n.Value[1:]; upper != n.Value {
						n.Value = upper
						return
					}
					n.Value = strings.ToUpper(n.Value)
				})
				return
			}
			word := yaml.Node{Kind: yaml.ScalarNode, Value: "banana"}
			switch n.ShortTag() {
			case "!!int", "!!float", "!!bool":
				add("a word instead", func(n *yaml.Node) { *n = word })
			default:
				add("a number instead", func(n *yaml.Node) { *n = yaml.Node{Kind: yaml.ScalarNode, Value: "7"} })
			}
			add("a list instead", func(n *yaml.Node) { *n = yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{&word}} })
		})
	}
	return out
}

// visit shows every key and every scalar below a node.
func visit(n *yaml.Node, path string, at []int, show func(n *yaml.Node, path string, at []int, key bool)) {
	switch n.Kind {
	case yaml.ScalarNode:
		show(n, path, at, false)
	case yaml.SequenceNode:
		for i, e := range n.Content {
			visit(e, fmt.Sprintf("%s[%d]", path, i), append(at, i), show)
		}
	case yaml.MappingNode:
		for i := 0; i < len(n.Content); i += 2 {
			below := strings.Replace(path+"."+n.Content[i].Value, " .", " ", 1)
			show(n.Content[i], below, append(at, i), true)
			visit(n.Content[i+1], below, append(at, i+1), show)
		}
	}
}

// make writes a file with the mistake, and returns the places that lead to it: that of the value and of its key.
func (m mistake) make(t *testing.T, raw []byte) (text []byte, there []place) {
	t.Helper()
	docs := documentsOf(t, raw)
	m.change(nodeAt(docs, m.node))
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	for _, doc := range docs {
		require.NoError(t, enc.Encode(doc))
	}
	require.NoError(t, enc.Close())
	docs = documentsOf(t, b.Bytes())
	n, last := nodeAt(docs, m.node), len(m.node)-1
	there = []place{{n.Line, n.Column}}
	if above := nodeAt(docs, m.node[:last]); above.Kind == yaml.MappingNode {
		key := above.Content[m.node[last]/2*2]
		there = append(there, place{key.Line, key.Column})
	}
	return b.Bytes(), there
}

// place is a line and a column.
type place struct{ line, column int }

// allowed says why a mistake may pass.
func (m mistake) allowed() string {
	for _, f := range freeForm() {
		if regexp.MustCompile(f.path).MatchString(m.path) &&
			(m.kind == "a number instead" || !strings.HasSuffix(m.kind, " instead")) {
			return f.reason
		}
	}
	return ""
}

// answer is what becomes of a mistake.
type answer string

const (
	refusedThere     answer = "refused with the line and the column"
	refusedElsewhere answer = "refused elsewhere"
	named            answer = "named in a warning"
	silent           answer = "accepted in silence"
	free             answer = "free form"
)

// answerTo loads a directory with a mistake at a place.
func answerTo(dir string, m mistake, there []place, before []report.Finding) (answer, []report.Finding) {
	in, err := Load(dir, platform)
	if err != nil {
		for _, f := range report.Of(err) {
			if f.File == m.file && slices.Contains(there, place{f.Line, f.Column}) {
				return refusedThere, nil
			}
		}
		return refusedElsewhere, report.Of(err)
	}
	for _, w := range in.Warnings {
		if !slices.ContainsFunc(before, func(b report.Finding) bool { return b.Rule == w.Rule && b.Message == w.Message }) {
			return named, nil
		}
	}
	if m.allowed() != "" {
		return free, nil
	}
	return silent, nil
}

// rich adds the files of testdata/rich to a sample directory.
func rich(t *testing.T, dir string, flow installconfig.Flow) {
	t.Helper()
	ca, err := certs.NewCA(certs.CAOptions{CommonName: "test"})
	require.NoError(t, err)
	words := strings.NewReplacer("@FLOW@", "  flow: "+string(flow)+"\n"+
		map[installconfig.Flow]string{installconfig.FlowStandalone: "  baseImage: registry.example.com/ocp/base-os:1"}[flow])
	pem := strings.TrimSpace(string(ca.CertificatePEM()))
	indented := regexp.MustCompile(`( *)@CA@`)
	for _, name := range []string{installconfig.FileName, "openshift/70-files.yaml", "openshift/71-old.yaml",
		"openshift/72-settings.yaml", "layering/more.yaml"} {
		raw, err := os.ReadFile(filepath.Join("testdata", "rich", filepath.FromSlash(name)))
		require.NoError(t, err)
		text := indented.ReplaceAllStringFunc(words.Replace(string(raw)), func(at string) string {
			in := strings.TrimSuffix(at, "@CA@")
			return in + strings.ReplaceAll(pem, "\n", "\n"+in)
		})
		put(t, dir, name, text)
	}
	put(t, dir, "ca.pem", pem)
	put(t, dir, "spool.token", "abc")
}

// fewer is the mistake that is made of each key in every run.
const fewer = "a letter fewer"

// TestNoMistakeIsAcceptedInSilence makes every mistake of every key and every scalar with DAYONE_MISTAKES=all. Without
// it, of the mistakes beside a dropped letter each third; with -short, each twentieth of all.
func TestNoMistakeIsAcceptedInSilence(t *testing.T) {
	every := 3
	switch {
	case os.Getenv("DAYONE_MISTAKES") == "all":
		every = 1
	case testing.Short():
		every = 20
	}
	for _, c := range []struct {
		name  string
		make  func(dir string) error
		flow  installconfig.Flow
		rich  bool
		files []string
	}{
		{"the sample", assets.WriteSample, installconfig.FlowStandalone, false, []string{"layering/*.yaml",
			"openshift/10-pools*", "openshift/20-*", "openshift/30-*", "openshift/40-*"}},
		{"the sample of the openshift flow", assets.WriteOpenShiftSample, installconfig.FlowOpenShift, false,
			[]string{"layering/master.yaml", "openshift/30-*"}},
		{"more fields", assets.WriteSample, installconfig.FlowStandalone, true,
			[]string{"openshift/7*", "layering/more.yaml"}},
		{"more fields in the openshift flow", assets.WriteOpenShiftSample, installconfig.FlowOpenShift, true,
			[]string{"openshift/72*"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "cluster")
			require.NoError(t, c.make(dir))
			if c.rich {
				rich(t, dir, c.flow)
			}
			files := []string{filepath.Join(dir, installconfig.FileName)}
			for _, pattern := range c.files {
				more, err := filepath.Glob(filepath.Join(dir, pattern))
				require.NoError(t, err)
				files = append(files, more...)
			}
			good, err := Load(dir, platform)
			require.NoError(t, err)
			counts := map[answer]int{}
			for _, full := range files {
				file, err := filepath.Rel(dir, full)
				require.NoError(t, err)
				raw, err := os.ReadFile(full)
				require.NoError(t, err)
				for i, m := range mistakes(t, file, raw) {
					if i%every > 0 && (testing.Short() || m.kind != fewer) {
						continue
					}
					text, there := m.make(t, raw)
					require.NoError(t, os.WriteFile(full, text, 0o600))
					a, found := answerTo(dir, m, there, good.Warnings)
					counts[a]++
					switch a {
					case silent:
						assert.Fail(t, "accepted in silence", "%s: %s: %s", file, m.path, m.kind)
					case refusedElsewhere:
						t.Logf("%s:%v: %s: %s: %v", file, there, m.path, m.kind, found)
					}
				}
				require.NoError(t, os.WriteFile(full, raw, 0o600))
			}
			t.Logf("%v", counts)
		})
	}
}
