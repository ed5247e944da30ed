package preflight

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/google/renameio/v2"
	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/build/sign"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/manifests/render/mirrors"
	"dayone.dev/dayone/registry/imagepolicy"
)

// SigningDir has in an install directory the key that dayone prepare makes, and the public key of whichever key signs.
const SigningDir = installconfig.SidecarDir + "/signing"

// Signing are the keys of a cluster's images.
type Signing struct {
	// Key and Passphrase are the contents of the files of the key that signs; nil if dayone prepare has made none yet.
	Key, Passphrase []byte
	// Public are the keys whose signatures count. The first is that of the key that signs, if dayone prepare has run.
	Public []sign.PublicKey
	// BasePolicy is a containers-policy.json for base images, nil without one.
	BasePolicy []byte
}

// KeyFiles are the files of the key that signs, relative to the install directory.
func KeyFiles(c installconfig.Signing) (key, passphrase string) {
	if c.KeyFile != "" {
		return c.KeyFile, c.PassphraseFile
	}
	return path.Join(SigningDir, sign.KeyFile), path.Join(SigningDir, sign.PassphraseFile)
}

// publicKeyFile has the public key of the key that signs.
var publicKeyFile = path.Join(SigningDir, sign.PublicFile)

// madeByPrepare are the files of the key that dayone prepare leaves in an install directory, relative to it; none in a
// directory that an earlier version has prepared, and on a bootstrap node. Load reports a key of the user's that is
// missing.
func madeByPrepare(c installconfig.Signing) (files []string) {
	if c.RequireOnNodes == nil {
		return nil
	}
	if c.KeyFile == "" {
		key, passphrase := KeyFiles(c)
		files = append(files, key, passphrase)
	}
	return append(files, publicKeyFile)
}

func signingFiles(c installconfig.Signing) []string {
	key, passphrase := KeyFiles(c)
	return append([]string{key, passphrase, publicKeyFile, c.BaseImagePolicy}, c.PublicKeyFiles...)
}

// resolveSigning reads the keys. A key that dayone prepare is to make may be missing.
func resolveSigning(d *directory, rep *report.Report) Signing {
	var out Signing
	c := d.sidecar.Config.Signing
	key, passphrase := KeyFiles(c)
	read := func(name, field string, optional bool) []byte {
		raw, err := d.file(name)
		if err != nil && !(optional && errors.Is(err, fs.ErrNotExist)) {
			rep.Add(atSigning(field, fmt.Errorf("%s cannot be read: %w", name, err)))
		}
		return raw
	}
	out.Key = read(key, "keyFile", c.KeyFile == "")
	out.Passphrase = read(passphrase, "passphraseFile", c.KeyFile == "")
	if c.BaseImagePolicy != "" {
		out.BasePolicy = read(c.BaseImagePolicy, "baseImagePolicy", false)
		if err := checkBasePolicy(out.BasePolicy); out.BasePolicy != nil && err != nil {
			at := atSigning("baseImagePolicy", fmt.Errorf("%s: %w", c.BaseImagePolicy, err))
			at.Next = "write it as containers-policy.json(5) says, with the keys themselves (keyData)"
			rep.Add(at)
		}
	}
	for i, name := range append([]string{publicKeyFile}, c.PublicKeyFiles...) {
		raw := read(name, "publicKeyFiles", i == 0)
		if raw == nil {
			continue
		}
		public, err := sign.ParsePublicKey(raw)
		if err != nil {
			rep.Add(atSigning("publicKeyFiles", fmt.Errorf("%s: %w", name, err)))
			continue
		}
		out.Public = append(out.Public, public)
	}
	return out
}

// JudgesBases says that a policy of the user's may demand signatures of base images: the one for them, a
// ClusterImagePolicy, or a policy.json of a MachineConfig.
func JudgesBases(in *Input) bool {
	return in.Signing.BasePolicy != nil ||
		slices.ContainsFunc(in.Set.ClusterImagePolicies, func(i manifests.Item[*configv1.ClusterImagePolicy]) bool {
			return i.Object.Name != cluster.ImagePolicy
		}) ||
		slices.ContainsFunc(in.Set.MachineConfigs, func(i manifests.Item[*mcfgv1.MachineConfig]) bool {
			return bytes.Contains(i.Object.Spec.Config.Raw, []byte(mirrors.PolicyPath))
		})
}

// checkBasePolicy refuses what builds elsewhere could not read: keys in files of this host.
func checkBasePolicy(raw []byte) error {
	if err := imagepolicy.Check(raw); err != nil {
		return err
	}
	if bytes.Contains(raw, []byte(`Path":`)) || bytes.Contains(raw, []byte(`Paths":`)) {
		return errors.New("it names files with keys, which the hosts of builds do not have")
	}
	return nil
}

func atSigning(field string, err error) report.Finding {
	return report.Finding{Severity: report.Error, File: installconfig.FileName,
		Path: installconfig.Field + ".signing." + field, Rule: "signing-key", Message: err.Error(),
		Next: "the path is relative to the install directory; dayone keygen makes keys"}
}

// PrepareSigning makes the key of a cluster, or tries the user's, and writes the public key into SigningDir.
func PrepareSigning(dir string, c installconfig.Signing) (sign.PublicKey, error) {
	own := filepath.Join(dir, filepath.FromSlash(SigningDir))
	if c.KeyFile == "" {
		k, err := sign.LoadOrCreate(own)
		if err != nil {
			return nil, err
		}
		return k.Public, nil
	}
	k, err := sign.Load(filepath.Join(dir, c.KeyFile), filepath.Join(dir, c.PassphraseFile))
	if err != nil {
		return nil, atSigning("keyFile", err)
	}
	if err := os.MkdirAll(own, 0o700); err != nil {
		return nil, fmt.Errorf("make directory for signing key: %w", err)
	}
	if err := renameio.WriteFile(filepath.Join(own, sign.PublicFile), k.Public, 0o644); err != nil {
		return nil, fmt.Errorf("write public key: %w", err)
	}
	return k.Public, nil
}
