package openshift_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"

	"github.com/stretchr/testify/assert"
)

const (
	// inventoryPort is where assisted-service answers, agentToken what its clients show.
	inventoryPort = 8090
	agentToken    = "canary-agent-token"
	clusterID     = "3f1d2c4b-0000-4000-8000-00000000000a"
	infraEnvID    = "3f1d2c4b-0000-4000-8000-00000000000b"
)

// The hosts of the installation: two masters, and the one that bootstraps them.
const (
	firstHost = iota
	secondHost
	rendezvousHost
)

// hostID is that of a host in assisted-service.
func hostID(i int) string { return fmt.Sprintf("3f1d2c4b-0000-4000-8000-%012d", i) }

// inventory is a STAND-IN for assisted-service: what assisted-installer asks of its API, as its swagger file has it.
type inventory struct {
	// bootstrap is bootstrap.ign, config where MCO's server has the masters' config.
	bootstrap []byte
	config    string

	mu     sync.Mutex
	stages [masters][]string
	// odd are requests that this stand-in does not know.
	odd []string
}

// stagesOf are the stages that a host has reported.
func (i *inventory) stagesOf(host int) []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.stages[host])
}

// serve answers until the test ends.
func (i *inventory) serve(w *world) {
	srv := &http.Server{Handler: i.handler()}
	go func(l net.Listener) { _ = srv.Serve(l) }(w.listen(inventoryPort))
	w.t.Cleanup(func() {
		_ = srv.Close()
		i.mu.Lock()
		defer i.mu.Unlock()
		assert.Empty(w.t, i.odd, "requests to assisted-service")
	})
}

func (i *inventory) handler() http.Handler {
	const api, cluster, host = "/api/assisted-install/v2", "/clusters/" + clusterID, "/hosts/{host}"
	const environment = "/infra-envs/" + infraEnvID
	mux := http.NewServeMux()
	answer := func(pattern string, h http.HandlerFunc) { mux.HandleFunc(pattern, h) }
	nothing := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }
	answer("GET "+api+cluster+"/downloads/files", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("file_name") != "bootstrap.ign" {
			i.unknown(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		_, _ = w.Write(i.bootstrap)
	})
	// The file has this path without an s.
	answer("GET "+api+"/infra-env/"+infraEnvID+host+"/downloads/ignition", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/octet-stream")
		fmt.Fprintf(w, `{"ignition":{"version":"3.2.0","config":{"merge":[{"source":"%s"}]}}}`, i.config)
	})
	answer("GET "+api+cluster, func(w http.ResponseWriter, r *http.Request) {
		o := map[string]any{"kind": "Cluster", "id": clusterID, "href": "", "status": "installing", "image_info": nil,
			"platform": map[string]any{"type": "baremetal"}}
		if r.URL.Query().Get("exclude-hosts") != "true" {
			o["hosts"] = i.hosts("")
		}
		write(w, o)
	})
	answer("GET "+api+cluster+"/hosts", func(w http.ResponseWriter, r *http.Request) {
		write(w, i.hosts(r.URL.Query().Get("role")))
	})
	answer("PUT "+api+environment+host+"/progress", i.progress)
	answer("PUT "+api+environment+host+"/logs-progress", nothing)
	answer("PUT "+api+cluster+"/logs-progress", nothing)
	answer("POST "+api+cluster+"/logs", nothing)
	answer("/", i.unknown)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Secret-Key") != agentToken {
			http.Error(w, "{}", http.StatusUnauthorized)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func write(w http.ResponseWriter, o any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(o)
}

func (i *inventory) unknown(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.odd = append(i.odd, r.Method+" "+r.URL.String())
	http.NotFound(w, r)
}

// progress takes a host's stage.
func (i *inventory) progress(w http.ResponseWriter, r *http.Request) {
	var p struct {
		Stage string `json:"current_stage"`
		Info  string `json:"progress_info"`
	}
	n := slices.IndexFunc([]int{firstHost, secondHost, rendezvousHost}, func(n int) bool {
		return hostID(n) == r.PathValue("host")
	})
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil || n < 0 {
		i.unknown(w, r)
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if last := len(i.stages[n]) - 1; last < 0 || i.stages[n][last] != p.Stage {
		i.stages[n] = append(i.stages[n], p.Stage)
	}
}

// hosts are those of a role; "" stands for all.
func (i *inventory) hosts(role string) []any {
	list := []any{}
	if role != "" && role != "master" {
		return list
	}
	for n := range masters {
		stage := "Starting installation"
		if s := i.stagesOf(n); len(s) > 0 {
			stage = s[len(s)-1]
		}
		list = append(list, map[string]any{"kind": "Host", "id": hostID(n), "href": "", "infra_env_id": infraEnvID,
			"status": "installing-in-progress", "role": "master", "bootstrap": n == rendezvousHost,
			"requested_hostname": fmt.Sprintf("master-%d", n), "inventory": `{"interfaces": []}`,
			"progress": map[string]any{"current_stage": stage}})
	}
	return list
}
