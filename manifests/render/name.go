package render

import (
	"crypto/md5" //nolint:gosec // the name's hash is MCO's; nothing relies on its strength
	"encoding/hex"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/manifests"
)

// salt is what MCO hashes before the spec (pkg/controller/render/hash.go).
const salt = "\x10\x7c\xce\xe4\x8b\x38\xaf\xaf\x4f\xe5\x86\x76\x9d\x9a\xd3\x6e" +
	"\x19\x5d\x2f\xfd\xac\x6a\x25\x07\xae\x0d\xa0\xb9\x6e\x11\x57\x34" +
	"\xdb\x83\x0c\xce\xda\x8d\x74\x87\xbc\xb5\xc0\x97\xe9\x3e\x7e\xa5" +
	"\x40\x53\xb3\x77\x0f\xa8\xd0\xc5\x92\x6b\x3a\xe3\x85\xbc\xee\x1a" +
	"\x21\x1a\xeb\xca\x20\xad\x1f\xea\x29\x90\x94\x4f\x06\xce\x17\x16"

// specHash is the second half of a rendered MachineConfig's name: the MD5 of the salt and of the spec as YAML.
func specHash(spec mcfgv1.MachineConfigSpec) (string, error) {
	raw, err := manifests.Marshal(spec)
	if err != nil {
		return "", err
	}
	sum := md5.Sum(append([]byte(salt), raw...)) //nolint:gosec // see the import
	return hex.EncodeToString(sum[:]), nil
}
