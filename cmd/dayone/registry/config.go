package registry

import (
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"dayone.dev/dayone/registry/transfer"
)

// setting is a key of distribution's configuration: it has a flag of serve, or the one value that the server keeps to.
type setting struct{ key, flag, only string }

// settings are those keys of distribution v3's configuration (about/configuration in its documentation) that serve
// holds to.
func settings() []setting {
	return []setting{
		{key: "version", only: "0.1"},
		{key: "storage.filesystem.rootdirectory", flag: "root"},
		{key: "storage.delete.enabled", only: "true"},
		{key: "storage.redirect.disable", only: "true"},
		{key: "storage.maintenance.readonly.enabled", flag: "read-only"},
		{key: "storage.maintenance.uploadpurging.enabled", only: "true"},
		{key: "storage.maintenance.uploadpurging.age", flag: "upload-idle"},
		{key: "storage.maintenance.uploadpurging.dryrun", only: "false"},
		{key: "http.addr", flag: "listen"},
		{key: "http.net", only: "tcp"},
		{key: "http.host", flag: "host"},
		{key: "http.tls.certificate", flag: "tls-cert"},
		{key: "http.tls.key", flag: "tls-key"},
		{key: "http.tls.minimumtls", only: "tls1.2"},
		{key: "http.http2.disabled", only: "true"},
		{key: "auth.htpasswd.path", flag: "htpasswd"},
		{key: "auth.htpasswd.realm", flag: "realm"},
		{key: "proxy.remoteurl", flag: "upstream"},
		{key: "proxy.ttl", flag: "upstream-ttl"},
	}
}

// applyConfig sets serve's flags, and the account at the upstream, from a file in distribution's configuration format.
// Flags that were given win. A key that serve does not hold to is refused.
func applyConfig(cmd *cobra.Command, file string, upstream *transfer.Endpoint) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	var root map[string]any
	if err := yaml.UnmarshalStrict(raw, &root); err != nil {
		return fmt.Errorf("read configuration %s: %w", file, err)
	}
	bad := applyAccount(file, root, upstream)
	for key, value := range leaves("", root) {
		if fault := applySetting(cmd, key, value); fault != "" {
			bad = append(bad, key+": "+fault)
		}
	}
	if bad != nil {
		slices.Sort(bad)
		return fmt.Errorf("read configuration %s: take out or change what dayone registry does not do:\n  %s", file,
			strings.Join(bad, "\n  "))
	}
	return nil
}

// applyAccount takes the account at the upstream out of a configuration: it has no flags, because an argument is not
// secret.
func applyAccount(file string, root map[string]any, upstream *transfer.Endpoint) (bad []string) {
	proxy, _ := root["proxy"].(map[string]any)
	account := map[string]string{}
	for _, key := range []string{"username", "password"} {
		value, given := proxy[key]
		text, ok := value.(string)
		if given && !ok {
			bad = append(bad, "proxy."+key+": write it in quotes")
		}
		account[key] = text
		if delete(proxy, key); given && len(proxy) == 0 { // the flag --upstream may name the registry
			delete(root, "proxy")
		}
	}
	if account["password"] != "" {
		if fi, err := os.Stat(file); err != nil || fi.Mode().Perm()&0o077 != 0 {
			bad = append(bad, "proxy.password: others may read the file: chmod 600 it, or give --upstream-authfile")
		}
	}
	if upstream.AuthFile == "" {
		upstream.Username, upstream.Password = account["username"], account["password"]
	}
	return bad
}

func applySetting(cmd *cobra.Command, key, value string) (fault string) {
	i := slices.IndexFunc(settings(), func(s setting) bool { return s.key == key })
	if i < 0 {
		return "not supported"
	}
	s := settings()[i]
	if s.flag == "" {
		if value != s.only {
			return fmt.Sprintf("only %s is supported", s.only)
		}
		return ""
	}
	if cmd.Flags().Changed(s.flag) {
		return ""
	}
	if s.flag == "host" || s.flag == "upstream" {
		u, err := url.Parse(value)
		if err != nil || u.Hostname() == "" {
			return fmt.Sprintf("%q is no URL", value)
		}
		if s.flag == "upstream" {
			if u.Scheme != "https" || strings.Trim(u.Path, "/") != "" || u.User != nil {
				return "only https://HOST[:PORT] is supported"
			}
			value = u.Host
		} else { // the URL under which clients reach the registry
			value = u.Hostname()
		}
	}
	if err := cmd.Flags().Set(s.flag, value); err != nil {
		return err.Error()
	}
	return ""
}

// leaves are the values of nested maps by the path of their keys, joined with dots.
func leaves(path string, value any) map[string]string {
	below, ok := value.(map[string]any)
	if !ok || len(below) == 0 && path != "" {
		return map[string]string{path: fmt.Sprint(value)}
	}
	out := map[string]string{}
	for key, v := range below {
		maps.Copy(out, leaves(strings.TrimPrefix(path+"."+key, "."), v))
	}
	return out
}
