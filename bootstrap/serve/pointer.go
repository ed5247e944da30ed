package serve

import (
	"encoding/json"
	"fmt"

	"dayone.dev/dayone/manifests/machineconfig"
)

// pointerVersion is the Ignition spec of pointer configs: the oldest with everything that they need.
const pointerVersion = "3.1.0"

// Pointer is a pool's pointer config, what a machine's user data or boot medium holds: where the config is, the
// CA that signs the server's certificate and, when the server asks for one, the token.
func Pointer(url string, caPEM []byte, token string) ([]byte, error) {
	source := map[string]any{"source": url}
	if token != "" {
		source["httpHeaders"] = []any{map[string]string{"name": "Authorization", "value": "Bearer " + token}}
	}
	ca := map[string]string{"source": *machineconfig.Inline(caPEM).Source}
	raw, err := json.MarshalIndent(map[string]any{"ignition": map[string]any{
		"version":  pointerVersion,
		"config":   map[string]any{"merge": []any{source}},
		"security": map[string]any{"tls": map[string]any{"certificateAuthorities": []any{ca}}},
	}}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode pointer config: %w", err)
	}
	return append(raw, '\n'), nil
}
