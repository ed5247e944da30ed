package gather

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/scrub"
	"dayone.dev/dayone/manifests/assets/bootstrapnode"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/registry/credentials"
)

// maxSecretFile bounds the files that are searched for secrets, in bytes.
const maxSecretFile = 4 << 20

// passphraseEnd is that of the file of a signing key's passphrase; installconfig refuses others.
const passphraseEnd = ".passphrase"

// knownSecrets collects every secret that this host has: the scrubber takes them out of all that is gathered. A
// file that cannot be read is skipped; the scrubber also takes out what only looks like a secret.
func knownSecrets(o Options) []string {
	out := append([]string(nil), o.Secrets...)
	identity := filepath.Join(o.StateDir, "identity")
	for _, dir := range []string{identity, filepath.Join(identity, "signing"), o.StateDir} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			name := e.Name()
			secret := strings.HasSuffix(name, ".password") || strings.HasSuffix(name, passphraseEnd) ||
				strings.HasSuffix(name, ".token") ||
				strings.HasSuffix(name, ".key") || strings.HasSuffix(name, "auth.json")
			if raw := small(filepath.Join(dir, name)); secret && raw != nil {
				out = append(out, secretsOf(name, raw)...)
			}
		}
	}
	dirs := installersPlaces(o.Root)
	if o.InstallDir != "" {
		dirs = append(dirs, o.InstallDir)
	}
	for _, dir := range dirs {
		out = append(out, secretsBelow(dir)...)
	}
	return out
}

// installersPlaces are where openshift-install puts secrets on its bootstrap node (openshift/installer,
// data/data/bootstrap), and where dayone does.
func installersPlaces(root string) []string {
	var out []string
	for _, dir := range []string{"/root/.docker", "/opt/openshift/auth", "/opt/openshift/tls", "/opt/openshift/manifests",
		"/opt/openshift/openshift",
		"/etc/mcc/bootstrap", "/etc/kubernetes", "/var/lib/kubelet/config.json", bootstrapnode.ConfigDir} {
		out = append(out, root+dir)
	}
	return out
}

// secretsBelow are those in a directory of an installation, which is small. What is unreadable is skipped.
func secretsBelow(dir string) []string {
	var out []string
	_ = filepath.WalkDir(dir, func(file string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			if raw := small(file); raw != nil {
				out = append(out, secretsOf(e.Name(), raw)...)
			}
		}
		return nil
	})
	return out
}

func small(file string) []byte {
	info, err := os.Stat(file)
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxSecretFile {
		return nil
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	return raw
}

// secretsOf finds the secrets in one file by what it is.
func secretsOf(name string, raw []byte) []string {
	switch {
	case strings.HasSuffix(name, passphraseEnd):
		return []string{strings.TrimSpace(string(raw))}
	case strings.HasSuffix(name, ".password"), strings.HasSuffix(name, ".token"), strings.HasSuffix(name, "-password"),
		strings.HasSuffix(name, ".key"):
		return []string{string(raw)}
	case strings.HasSuffix(name, ".json") && bytes.Contains(raw, []byte(`"auth`)):
		return credentials.Sensitive(raw)
	}
	out := scrub.Addresses(string(raw))
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	for range 1000 {
		var doc map[string]any
		if dec.Decode(&doc) != nil {
			return out
		}
		if text, ok := doc["pullSecret"].(string); ok {
			out = append(out, credentials.Sensitive([]byte(text))...)
		}
		if proxy, ok := doc["proxy"].(map[string]any); ok {
			http, _ := proxy["httpProxy"].(string)
			https, _ := proxy["httpsProxy"].(string)
			out = append(out, build.ProxySecrets(build.Proxies(http, https, ""))...)
		}
		switch doc["kind"] {
		case "Secret":
			out = append(out, secretObject(doc)...)
		case "MachineConfig":
			out = append(out, secretConfig(doc)...)
		}
		if users, ok := doc["users"].([]any); ok { // a kubeconfig
			out = append(out, allStrings(users)...)
		}
	}
	return out
}

// secretConfig are the secrets in a MachineConfig's Ignition config. A config that does not parse has none.
func secretConfig(doc map[string]any) []string {
	spec, _ := doc["spec"].(map[string]any)
	raw, err := json.Marshal(spec["config"])
	if err != nil {
		return nil
	}
	config, err := machineconfig.ParseRendered(raw)
	if err != nil {
		return nil
	}
	return scrub.Config(config)
}

// secretObject are the values of a Secret, and what registry credentials among them hold.
func secretObject(doc map[string]any) []string {
	var out []string
	for _, key := range []string{"data", "stringData"} {
		values, _ := doc[key].(map[string]any)
		for _, v := range values {
			text, ok := v.(string)
			if !ok {
				continue
			}
			out = append(out, text)
			if plain, err := base64.StdEncoding.DecodeString(text); key == "data" && err == nil {
				text = string(plain)
				out = append(out, text)
			}
			out = append(out, credentials.Sensitive([]byte(text))...)
		}
	}
	return out
}

// allStrings are the texts of a tree, except short ones.
func allStrings(tree any) []string {
	var out []string
	switch v := tree.(type) {
	case string:
		if len(v) >= 20 {
			out = append(out, v)
		}
	case []any:
		for _, e := range v {
			out = append(out, allStrings(e)...)
		}
	case map[string]any:
		for _, e := range v {
			out = append(out, allStrings(e)...)
		}
	}
	return out
}
