// Command probe runs in a pod and says what it sees of the cluster: names by DNS, and the API server by its service.
//
//	pod -> registry's name, kubernetes.default -> one line per fact, exit status 1 when one is missing
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupHost(ctx, "registry.dayone.test")
	fmt.Println("registry", addresses, err)
	status, apiErr := api(ctx)
	fmt.Println("api", status, apiErr)
	_, unknown := net.DefaultResolver.LookupHost(ctx, "example.com")
	fmt.Println("outside", unknown)
	if err != nil || apiErr != nil || unknown == nil {
		os.Exit(1)
	}
}

func api(ctx context.Context) (string, error) {
	ca, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/ca.crt")
	if err != nil {
		return "", err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://kubernetes.default.svc/version", nil)
	if err != nil {
		return "", err
	}
	answer, err := client.Do(request)
	if err != nil {
		return "", err
	}
	return answer.Status, answer.Body.Close()
}
