package kubetest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
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
}

// Main runs the package's tests and then ends the environment. It returns the exit status.
func (s *Shared) Main(m *testing.M, o Options) int {
	s.options = o
	code := m.Run()
	if s.env != nil {
		if err := s.env.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "end kubernetes:", err)
			return max(code, 1)
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
