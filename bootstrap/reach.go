package bootstrap

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
)

// reachLimit is how long the embedded registry may take to answer on this machine, by its own name.
const reachLimit = 10 * time.Second

// reachRegistry asks the embedded registry for its version by the name that the nodes use. The build pushes to that
// name, too: a name that leads elsewhere is found out here and not in the middle of the first copy.
func (h *host) reachRegistry(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reachLimit)
	defer cancel()
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(h.id.ca.CertificatePEM())
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12},
		DisableKeepAlives: true}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+h.registryHost+"/v2/", nil)
	if err != nil {
		return fmt.Errorf("ask the embedded registry: %w", err)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return report.Finding{File: installconfig.FileName, Path: installconfig.Field + ".bootstrapRegistry.host",
			Rule:    "registry-unreachable",
			Message: fmt.Sprintf("the embedded registry does not answer at %s: %v", h.registryHost, err),
			Next:    "give an address or a name that leads to this machine, from here as from the nodes"}
	}
	return response.Body.Close()
}

// exemptFromProxy makes this process and the build workers that it starts talk to the embedded registry directly: a
// proxy could not reach it and should not see what goes there. It must run before the first request, after which
// net/http no longer reads the environment.
func exemptFromProxy(hostPort string) error {
	name, _, err := net.SplitHostPort(hostPort)
	if err != nil {
		return fmt.Errorf("exempt %s from the proxy: %w", hostPort, err)
	}
	for _, variable := range []string{"NO_PROXY", "no_proxy"} {
		if err := os.Setenv(variable, withoutProxy(os.Getenv("NO_PROXY"), os.Getenv("no_proxy"), name)); err != nil {
			return fmt.Errorf("exempt %s from the proxy: %w", hostPort, err)
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
