package build

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/stretchr/testify/assert"

	"dayone.dev/dayone/installconfig/report"
)

// TestDeadlineIsNoRegistryFailure: the error of a context that is over looks like one of the network.
func TestDeadlineIsNoRegistryFailure(t *testing.T) {
	f := registryFailure("base", fmt.Errorf("read files of base image: %w", context.DeadlineExceeded))
	assert.Equal(t, ClassPolicy, f.Class)
	assert.Equal(t, "raise the time limit", f.Next)
	f = registryFailure("base", &url.Error{Op: "Get", URL: "https://registry.example.com/v2/",
		Err: context.DeadlineExceeded})
	assert.Equal(t, ClassTransient, f.Class, "a registry that did not answer in time")
}

// TestAnswersOfRegistries: what a status means for who has to do something.
func TestAnswersOfRegistries(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		class  Class
		next   string
	}{
		{"no account", http.StatusUnauthorized, ClassInfrastructure, "check the registry credentials"},
		{"no right", http.StatusForbidden, ClassInfrastructure, "check the registry credentials"},
		{"nothing there", http.StatusNotFound, ClassInfrastructure, "under this digest"},
		{"busy", http.StatusTooManyRequests, ClassTransient, "check the registry's log"},
		{"broken", http.StatusInternalServerError, ClassTransient, "check the registry's log"},
		{"full", http.StatusInsufficientStorage, ClassInfrastructure, "free disk space where the registry keeps"},
		{"odd", http.StatusTeapot, ClassInfrastructure, "check the registry's log"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := registryFailure("push", fmt.Errorf("push: %w", &transport.Error{StatusCode: c.status}))
			assert.Equal(t, c.class, f.Class)
			assert.Contains(t, f.Next, c.next)
		})
	}
	for _, c := range []struct {
		name  string
		err   error
		class Class
		next  string
	}{
		{"a certificate", errors.New("tls: x509: unknown authority"), ClassInfrastructure, "pass the CA certificate"},
		{"nobody listens", syscall.ECONNREFUSED, ClassTransient, "can be reached"},
		{"an end in the middle", syscall.ECONNRESET, ClassTransient, "can be reached"},
		{"a closed pipe", syscall.EPIPE, ClassTransient, "can be reached"},
		{"stopped", context.Canceled, ClassInfrastructure, "start the build again"},
		{"explained already", invalid("a", "b", "c"), ClassUser, "c"},
		{"anything", errors.New("odd"), ClassInfrastructure, "check the registry's log"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := registryFailure("push", fmt.Errorf("push: %w", c.err))
			assert.Equal(t, c.class, f.Class)
			assert.Contains(t, f.Next, c.next)
		})
	}
}

func TestSomePaths(t *testing.T) {
	assert.Equal(t, "/a, /b", some([]string{"/b", "/a"}))
	assert.Equal(t, "/a, /b, /c, /d, /e", some([]string{"/e", "/d", "/c", "/b", "/a"}))
	assert.Equal(t, "/a, /b, /c, /d, /e and 2 more", some([]string{"/g", "/f", "/e", "/d", "/c", "/b", "/a"}))
}

// The next step of a finding takes the place of the general one, which would be a second.
func TestNextStepOfARefusal(t *testing.T) {
	const general = "fix the Containerfile"
	for _, c := range []struct {
		name    string
		finding report.Finding
		next    string
	}{
		{"without one", report.Finding{Severity: report.Error, Line: 3, Message: "is wrong"}, general},
		{"with one", report.Finding{Severity: report.Error, Line: 3, Message: "is wrong", Next: "use FROM configs"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			all := report.Report{Findings: []report.Finding{c.finding}}
			f := refused("containerfile", all.Err(), general)
			assert.Equal(t, c.next, f.Next)
			assert.Equal(t, 3, f.Line)
			assert.Contains(t, f.Error(), c.finding.Next)
		})
	}
	f := refused("containerfile", errors.New("no finding"), general)
	assert.Equal(t, general, f.Next)
	assert.Zero(t, f.Line)
}
