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
	"path"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"
)

// masker replaces content by a mark that is equal for equal content within one bundle and says nothing else: its key is thrown away.
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

// rendered gathers the configs that nodes get, without the content of their files and units: paths, modes and names tell what differs.
func (h *hostGatherer) rendered(context.Context) error {
	for _, dir := range []string{"rendered-first", "rendered"} {
		if err := h.tree(filepath.Join(h.StateDir, dir), path.Join(dirRendered, dir), func(string) bool { return true }); err != nil {
			return err
		}
	}
	return nil
}

// redact takes content out of objects by what they are: Secrets and ConfigMaps lose their values, MachineConfigs the content of files and
// units, install-config.yaml its pull secret. A file that is no such object stays as it is.
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

// mayHoldContent is a cheap look before a file is taken apart.
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
			if text, ok := value.(string); ok {
				if maskedKey(key) {
					v[key] = m.mark(text)
				}
				continue
			}
			redactTree(value, m)
		}
	}
}

// maskedKey names fields whose text is content: Ignition files and units, pull secrets, credentials and certificates' keys.
func maskedKey(key string) bool {
	switch key {
	case "source", "inline", "contents", "pullSecret", "passwordHash", "internalRegistryPullSecret", "kubeAPIServerServingCAData", "rootCAData", "cloudProviderCAData":
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
	if meta, ok := object["metadata"].(map[string]any); ok {
		if notes, ok := meta["annotations"].(map[string]any); ok {
			delete(notes, "kubectl.kubernetes.io/last-applied-configuration")
		}
	}
}
