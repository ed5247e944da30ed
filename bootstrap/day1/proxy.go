package day1

import (
	"fmt"
	"net"
	"os"
	"strings"
)

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
