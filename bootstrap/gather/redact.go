package gather

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"
)

// masker replaces content by a mark that is equal for equal content within one bundle and says nothing else: its key is
// thrown away.
type masker struct{ key []byte }

func newMasker() masker {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails (crypto/rand)
	return masker{key: key}
}

func (m masker) mark(content string) string {
	sum := hmac.New(sha256.New, m.key)
	sum.Write([]byte(content))
	return fmt.Sprintf("redacted:%s:%d-bytes", hex.EncodeToString(sum.Sum(nil)[:6]), len(content))
}

// mask is the bundle's masker.
func (h *hostGatherer) mask() masker { return h.archive.mask }

// rendered gathers the configs that nodes get, without the content of their files and units: paths, modes and names
// tell what differs.
func (h *hostGatherer) rendered(context.Context) error {
	for _, dir := range []string{"rendered-first", "rendered"} {
		if err := h.tree(filepath.Join(h.StateDir, dir), path.Join(dirRendered, dir),
			func(string) bool { return true }); err != nil {
			return err
		}
	}
	// The openshift flow keeps the first rendering by pool; the final one is the config server's.
	first := h.tree(filepath.Join(h.StateDir, "first"), path.Join(dirRendered, "rendered-first"),
		func(string) bool { return true })
	if first != nil || !exists(filepath.Join(h.StateDir, "first")) {
		return first
	}
	for _, dir := range []string{"machine-pools", "machine-configs"} {
		if err := h.tree(filepath.Join(h.Root+"/etc/mcs/bootstrap", dir), path.Join(dirRendered, "rendered", dir),
			func(string) bool { return true }); err != nil {
			return err
		}
	}
	return nil
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// redact takes content out of objects by what they are: Secrets and ConfigMaps lose their values, MachineConfigs the
// content of files and units, install-config.yaml its pull secret. Any other file stays as it is.
func redact(name string, raw []byte, m masker) []byte {
	ext := path.Ext(name)
	if !strings.HasPrefix(name, "rendered-assets/") && !strings.HasPrefix(name, "resources/") {
		return raw // records and logs
	}
	if ext != ".yaml" && ext != ".yml" && ext != ".json" || !mayHoldContent(raw) {
		return raw
	}
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	var out bytes.Buffer
	for n := 0; ; n++ {
		var doc any
		if err := dec.Decode(&doc); err != nil {
			if n == 0 || !errors.Is(err, io.EOF) {
				return []byte("left out: the file cannot be read as YAML, and what it holds is not known\n")
			}
			break
		}
		redactTree(doc, m)
		text, err := encode(doc, ext)
		if err != nil {
			return []byte("left out: the file cannot be written again\n")
		}
		if n > 0 && ext != ".json" {
			out.WriteString("---\n")
		}
		out.Write(text)
	}
	return out.Bytes()
}

func encode(doc any, ext string) ([]byte, error) {
	raw, err := json.Marshal(doc)
	if err != nil {
		return nil, err
	}
	if ext == ".json" {
		var pretty bytes.Buffer
		err = json.Indent(&pretty, raw, "", "  ")
		return append(pretty.Bytes(), '\n'), err
	}
	return sigsyaml.JSONToYAML(raw)
}

// mayHoldContent is a cheap check before a file is parsed.
func mayHoldContent(raw []byte) bool {
	for _, word := range []string{"MachineConfig", "Secret", "ConfigMap", "pullSecret", "ControllerConfig", "ignition"} {
		if bytes.Contains(raw, []byte(word)) {
			return true
		}
	}
	return false
}

// redactTree changes a decoded document in place.
func redactTree(tree any, m masker) {
	switch v := tree.(type) {
	case []any:
		for _, e := range v {
			redactTree(e, m)
		}
	case map[string]any:
		switch v["kind"] {
		case "Secret":
			maskValues(v, m, "data", "stringData")
		case "ConfigMap":
			maskValues(v, m, "data", "binaryData")
		}
		for key, value := range v {
			redactField(v, key, value, m)
		}
	}
}

// redactField treats one field of an object by its name and its form.
func redactField(object map[string]any, key string, value any, m masker) {
	switch value := value.(type) {
	case string:
		if maskedKey(key) || strings.HasPrefix(value, "data:") {
			object[key] = m.mark(value)
		}
	case map[string]any:
		if key == "annotations" {
			maskAnnotations(value, m)
			return
		}
		redactTree(value, m)
	case []any:
		switch key {
		case "env":
			maskEnvironment(value, m)
		case "args", "command":
			maskArguments(value, m)
		}
		redactTree(value, m)
	}
}

// maskedKey names fields whose text is content: Ignition files and units, pull secrets, credentials and certificates'
// keys.
func maskedKey(key string) bool {
	switch key {
	case "source", "inline", "contents", "pullSecret", "passwordHash", "internalRegistryPullSecret",
		"kubeAPIServerServingCAData", "rootCAData", "cloudProviderCAData",
		"cloudProviderConfig":
		return true
	}
	lower := strings.ToLower(key)
	return strings.HasSuffix(lower, "password") || strings.HasSuffix(lower, "token")
}

func maskValues(object map[string]any, m masker, keys ...string) {
	for _, key := range keys {
		values, _ := object[key].(map[string]any)
		for name, value := range values {
			if text, ok := value.(string); ok {
				values[name] = m.mark(text)
			}
		}
	}
}

// lastApplied holds a whole object in kubectl's form, content and all.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// knownDomains are the annotations' owners whose values say how things are and hold no secret.
func knownDomains() []string {
	return []string{"kubernetes.io", "k8s.io", "openshift.io", "dayone.dev"}
}

// maskAnnotations keeps the values of known owners only: any program may write anything into an annotation.
func maskAnnotations(notes map[string]any, m masker) {
	for key, value := range notes {
		domain, _, _ := strings.Cut(key, "/")
		known := slices.ContainsFunc(knownDomains(), func(d string) bool {
			return domain == d ||
				strings.HasSuffix(domain, "."+d)
		})
		if text, ok := value.(string); ok && (!known || key == lastApplied || maskedKey(key)) {
			notes[key] = m.mark(text)
		}
	}
}

// maskEnvironment masks the values of a container's variables; their names stay.
func maskEnvironment(env []any, m masker) {
	for _, e := range env {
		if variable, ok := e.(map[string]any); ok {
			if text, ok := variable["value"].(string); ok && text != "" {
				variable["value"] = m.mark(text)
			}
		}
	}
}

// secretFlag is an option whose value is an argument of its own.
var secretFlag = regexp.MustCompile(`(?i)^--?[a-z0-9-]*(?:password|token|secret|api-?key|credentials?)$`)

// maskArguments masks what follows such an option; --option=value is for the scrubber.
func maskArguments(args []any, m masker) {
	for i := 1; i < len(args); i++ {
		option, _ := args[i-1].(string)
		if text, ok := args[i].(string); ok && secretFlag.MatchString(option) {
			args[i] = m.mark(text)
		}
	}
}
