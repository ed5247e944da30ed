package day1

import (
	"fmt"
	"net"
	"os"
	"strings"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests/nodesettings"
)

// UseProxy lets this process and the build workers that it starts use install-config.yaml's proxy, as the nodes will,
// unless the host's environment names one. It must run before the first request.
func UseProxy(p installconfig.Proxy) error {
	if len(build.HostProxies(os.Environ())) > 0 {
		return nil
	}
	for _, variable := range nodesettings.ProxyVariables(p) {
		name, value, _ := strings.Cut(variable, "=")
		if err := os.Setenv(name, value); err != nil {
			return fmt.Errorf("use the proxy of %s: %w", installconfig.FileName, err)
		}
	}
	return nil
}

// ExemptFromProxy makes this process and the build workers that it starts talk to HOST:PORT directly: a proxy could not
// reach the embedded registry and should not see what goes there. It must run before the first request, after which
// net/http no longer reads the environment.
func ExemptFromProxy(address string) error {
	name, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("exempt %s from the proxy: %w", address, err)
	}
	for _, variable := range []string{"NO_PROXY", "no_proxy"} {
		if err := os.Setenv(variable, withoutProxy(os.Getenv("NO_PROXY"), os.Getenv("no_proxy"), name)); err != nil {
			return fmt.Errorf("exempt %s from the proxy: %w", address, err)
		}
	}
	return nil
}

// withoutProxy joins what the two spellings of the variable hold with one more name, each once.
func withoutProxy(upper, lower, name string) string {
	var out []string
	seen := map[string]bool{"": true}
	for _, entry := range append(strings.Split(upper+","+lower, ","), name) {
		if entry = strings.TrimSpace(entry); !seen[entry] {
			seen[entry] = true
			out = append(out, entry)
		}
	}
	return strings.Join(out, ",")
}
