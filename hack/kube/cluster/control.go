package cluster

import (
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	"dayone.dev/dayone/hack/kube/process"
)

// programs are those that run, by name.
type programs struct {
	mu sync.Mutex
	m  map[string]*process.Process
}

func (p *programs) get(name string) *process.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.m[name]
}

func (p *programs) set(name string, started *process.Process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.m == nil {
		p.m = map[string]*process.Process{}
	}
	p.m[name] = started
}

func (n *node) start(name string) error {
	spec, known := n.specs[name]
	if !known {
		return fmt.Errorf("start %s: the node has no such program", name)
	}
	if p := n.programs.get(name); p != nil && p.Ended() == nil {
		return fmt.Errorf("start %s: it runs", name)
	}
	p, err := n.group.Start(spec)
	if err != nil {
		return err
	}
	n.programs.set(name, p)
	return nil
}

func (n *node) kill(name string) error {
	p := n.programs.get(name)
	if p == nil {
		return fmt.Errorf("kill %s: the node has no such program", name)
	}
	return p.Kill()
}

// control serves a socket in the cluster's directory: POST /start/NAME and /kill/NAME, GET /programs. It ends with the
// process.
func (n *node) control() error {
	mux := http.NewServeMux()
	handle := func(pattern string, f func(name string) error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := f(r.PathValue("name")); err != nil {
				http.Error(w, err.Error(), http.StatusConflict)
			}
		})
	}
	handle("POST /start/{name}", n.start)
	handle("POST /kill/{name}", n.kill)
	mux.HandleFunc("GET /programs", func(w http.ResponseWriter, _ *http.Request) {
		for name := range n.specs {
			state := "runs"
			if err := n.programs.get(name).Ended(); err != nil {
				state = err.Error()
			}
			fmt.Fprintf(w, "%s: %s\n", name, state)
		}
	})
	listener, err := net.Listen("unix", filepath.Join(inside, controlFile))
	if err != nil {
		return fmt.Errorf("listen for control: %w", err)
	}
	if err := os.Chmod(filepath.Join(inside, controlFile), 0o600); err != nil {
		return err
	}
	return http.Serve(listener, mux)
}

func encodeBasic(user, password string) string {
	return base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
}
