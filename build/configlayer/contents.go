package configlayer

import (
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"dayone.dev/dayone/manifests/machineconfig"
)

// contents gives a resource's bytes as Ignition would write them: decoded, unpacked, compared with its hash.
func contents(r types.Resource) ([]byte, error) {
	data, err := machineconfig.Contents(r)
	if err != nil {
		return nil, err
	}
	return data, verify(r.Verification, data)
}

// verify compares with verification.hash (Ignition specification: sha512-HEX or sha256-HEX, of the unpacked content).
func verify(v types.Verification, data []byte) error {
	if v.Hash == nil {
		return nil
	}
	kind, want, _ := strings.Cut(*v.Hash, "-")
	var got string
	switch kind {
	case "sha512":
		sum := sha512.Sum512(data)
		got = hex.EncodeToString(sum[:])
	case "sha256":
		sum := sha256.Sum256(data)
		got = hex.EncodeToString(sum[:])
	default:
		return fmt.Errorf("there is no hash function %q", kind)
	}
	if got != strings.ToLower(want) {
		return fmt.Errorf("content has hash %s-%s, the config says %s", kind, got, *v.Hash)
	}
	return nil
}
