package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"

	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/rebase/daemon/mirrorfiles"
	"dayone.dev/dayone/rebase/daemon/trustfiles"
	"dayone.dev/dayone/rebase/firstboot"
	"dayone.dev/dayone/registry/certs"
	"dayone.dev/dayone/registry/forwarder"
	"dayone.dev/dayone/registry/peers"
	"dayone.dev/dayone/registry/poolaccounts"
)

// forwarderState is where the forwarder says how it does. It is gone after a boot.
const forwarderState = "/run/dayone/forwarder/state.json"

// newForwarder makes the node's mirror. It does nothing as long as the node knows no registries of the control plane.
func newForwarder(node string, log *logrus.Entry) (*forwarder.Forwarder, error) {
	const address = forwarder.DefaultListen
	account := mirrorfiles.Account("/", address)
	return forwarder.New(forwarder.Options{
		Node: node, PeersFile: peers.Path, Account: account, StateFile: forwarderState, Log: log,
		CertsDirs: certs.RegistryDirs(),
		AuthFiles: append([]string{poolaccounts.AuthPath}, firstboot.PullCredentials()...),
		Serving: func(m forwarder.Mirror) error {
			var want mirrorfiles.Mirror
			if m != (forwarder.Mirror{}) {
				want = mirrorfiles.Mirror{Registry: m.Registry, CA: m.CA, Account: account}
			}
			changed, err := mirrorfiles.Apply("/", address, want)
			if len(changed) > 0 {
				log.WithField("files", changed).Info("pulls go another way: through the node's forwarder, or without it")
			}
			if err == nil && want != (mirrorfiles.Mirror{}) {
				err = trustfiles.AdmitForwarder("/")
			}
			return err
		}})
}

// withForwarder adds the forwarder's metrics to the agent's.
func withForwarder(agent http.Handler, forward *forwarder.Forwarder) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		agent.ServeHTTP(w, r)
		if r.Method == http.MethodGet && r.URL.Path == "/metrics" {
			forward.State().WriteMetrics(w)
		}
	})
}

// readForwarder is the forwarder's state; nil: it does not run on this node.
func readForwarder(path string) (*forwarder.State, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var s forwarder.State
	if err == nil {
		err = json.Unmarshal(raw, &s)
	}
	if err != nil {
		return nil, fmt.Errorf("read the forwarder's state: %w", err)
	}
	return &s, nil
}
