package render

import (
	"crypto/md5" //nolint:gosec // the name's hash is MCO's; nothing relies on its strength
	"encoding/hex"
	"fmt"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/manifests"
)

// salt is what MCO hashes before the spec (pkg/controller/render/hash.go), in hexadecimal.
const salt = "107ccee48b38afaf4fe586769d9ad36e195d2ffdac6a2507" +
	"ae0da0b96e115734db830cceda8d7487bcb5c097e93e7ea5" +
	"4053b3770fa8d0c5926b3ae385bcee1a211aebca20ad1fea" +
	"2990944f06ce1716"

// specHash is the second half of a rendered MachineConfig's name: the MD5 of the salt and of the spec as YAML.
func specHash(spec mcfgv1.MachineConfigSpec) (string, error) {
	salted, err := hex.DecodeString(salt)
	if err != nil {
		return "", fmt.Errorf("decode salt: %w", err)
	}
	raw, err := manifests.Marshal(spec)
	if err != nil {
		return "", err
	}
	sum := md5.Sum(append(salted, raw...)) //nolint:gosec // see the import
	return hex.EncodeToString(sum[:]), nil
}
