package build

import (
	"encoding/base64"
	"net/url"
	"slices"
	"strings"
)

// Proxies are the variables of the environment that lead requests through these proxies, in both spellings: programs
// read one or the other. Without a proxy there are none.
func Proxies(http, https, no string) map[string]string {
	if http == "" && https == "" {
		return nil
	}
	out := map[string]string{}
	for name, value := range map[string]string{"http_proxy": http, "https_proxy": https, "no_proxy": no} {
		if value != "" {
			out[name], out[strings.ToUpper(name)] = value, value
		}
	}
	return out
}

// HostProxies are those of an environment (NAME=value). Where it has both spellings the small one counts, as curl reads
// it.
func HostProxies(environment []string) map[string]string {
	value := func(name string) string {
		for _, spelt := range []string{name, strings.ToUpper(name)} {
			at := slices.IndexFunc(environment, func(e string) bool { return strings.HasPrefix(e, spelt+"=") })
			if at >= 0 && environment[at] != spelt+"=" {
				return strings.TrimPrefix(environment[at], spelt+"=")
			}
		}
		return ""
	}
	return Proxies(value("http_proxy"), value("https_proxy"), value("no_proxy"))
}

// ProxySecrets are what must not be read in output: the passwords in proxies' addresses, as they are written, as they
// are meant and as they are sent.
func ProxySecrets(proxies map[string]string) []string {
	var out []string
	for _, address := range proxies {
		_, rest, _ := strings.Cut(address, "://")
		rest, _, _ = strings.Cut(rest, "/")
		at := strings.LastIndexByte(rest, '@')
		if at < 0 {
			continue
		}
		user, password, _ := strings.Cut(rest[:at], ":")
		out = append(out, password)
		plainUser, noUser := url.PathUnescape(user)
		plain, noPassword := url.PathUnescape(password)
		if noUser == nil && noPassword == nil {
			out = append(out, plain, base64.StdEncoding.EncodeToString([]byte(plainUser+":"+plain)))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
