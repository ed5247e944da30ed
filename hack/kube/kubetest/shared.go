package kubetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Shared is one environment for all tests of a package, started when the first test asks for it:
//
//	var shared kubetest.Shared
//
//	func TestMain(m *testing.M) { os.Exit(shared.Main(m, kubetest.Options{})) }
//
//	func TestSomething(t *testing.T) {
//		env := shared.Env(t)
type Shared struct {
	options Options

	mu  sync.Mutex
	env *Env
	err error
	// renewed were given back by tests that had asked for a new one.
	renewed []*renewable
}

// Main runs the package's tests and then ends the environments. It returns the exit status.
func (s *Shared) Main(m *testing.M, o Options) int {
	s.options = o
	code := m.Run()
	var all []*Env
	for _, r := range s.renewed {
		all = append(all, r.Env)
	}
	if s.env != nil {
		all = append(all, s.env)
	}
	for _, e := range all {
		if err := e.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "end kubernetes:", err)
			code = max(code, 1)
		}
	}
	return code
}

// Env is the running environment. It skips the test with -short. Tests that stop the API server must not run beside
// others.
func (s *Shared) Env(t testing.TB) *Env {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a real kube-apiserver, which is left out with -short")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.env == nil && s.err == nil {
		s.env, s.err = start(context.Background(), s.options) // outlives the test that asks first
	}
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.env
}

// New is an environment of the test's own, in which nothing is but what a start makes. It skips the test with -short.
// To start one takes as long as many tests: it is one that an earlier test had, when that has succeeded and has not
// changed which kinds there are. Then all objects are what they were after its start, and requests of clients that the
// earlier test made fail. Options with a controller manager or a scheduler, which remember objects, are refused.
func (s *Shared) New(t testing.TB) *Env {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a real kube-apiserver, which is left out with -short")
	}
	require.False(t, s.options.ControllerManager || s.options.Scheduler, "they remember objects of earlier tests")
	r, err := s.take()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.giveBack(r, t.Failed())) })
	return r.Env
}

func (s *Shared) take() (*renewable, error) {
	s.mu.Lock()
	if n := len(s.renewed); n > 0 {
		defer s.mu.Unlock()
		r := s.renewed[n-1]
		s.renewed = s.renewed[:n-1]
		return r, nil
	}
	s.mu.Unlock()
	return startRenewable(context.Background(), s.options) // it outlives the test
}

// giveBack keeps an environment for the next test, or ends it.
func (s *Shared) giveBack(r *renewable, failed bool) error {
	if failed || r.ended() {
		return r.Close()
	}
	switch err := r.renew(context.Background()); {
	case errors.Is(err, errUsed):
		return r.Close()
	case err != nil:
		return errors.Join(err, r.Close())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.renewed = append(s.renewed, r)
	return nil
}
