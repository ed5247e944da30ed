package machineconfig

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Encode writes an Ignition config of any version as JSON without anything empty: no null, no empty object, no empty
// list. That is the form in which MCO keeps configs in MachineConfigs, and the rendered name depends on it.
func Encode(config any) ([]byte, error) {
	raw, err := json.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("write Ignition config: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber() // numbers stay as they are written
	var tree any
	if err := decoder.Decode(&tree); err != nil {
		return nil, fmt.Errorf("write Ignition config: %w", err)
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(withoutEmpty(tree)); err != nil {
		return nil, fmt.Errorf("write Ignition config: %w", err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// withoutEmpty removes null, empty objects and empty lists from the members of objects, at every level.
func withoutEmpty(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, member := range v {
			if member = withoutEmpty(member); isEmpty(member) {
				delete(v, key)
			}
		}
	case []any:
		for i := range v {
			v[i] = withoutEmpty(v[i])
		}
	}
	return value
}

func isEmpty(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return false
}
