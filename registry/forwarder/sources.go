package forwarder

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"

	"dayone.dev/dayone/registry/credentials"
	"dayone.dev/dayone/registry/dial"
	"dayone.dev/dayone/registry/peers"
)

// source is what the files say of the peers.
type source struct {
	list     peers.List
	client   *http.Client
	accounts credentials.Accounts
}

// sources reads the files again when they change. Files that cannot be used leave what was read before.
type sources struct {
	o      Options
	limits limits

	mu    sync.Mutex
	now   source
	stamp string
	err   error
}

// look reads the files if they have changed. The error is of the last reading.
func (s *sources) look() (source, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	stamp := stampOf(s.o.PeersFile, s.o.CAFile, s.o.AuthFile)
	if stamp == s.stamp {
		return s.now, s.err
	}
	next, err := s.read()
	if s.stamp, s.err = stamp, err; err != nil {
		return s.now, err
	}
	if s.now.client != nil {
		s.now.client.CloseIdleConnections() // those under way go on
	}
	s.now = next
	return s.now, nil
}

// read gives no peers where there is no file of them.
func (s *sources) read() (next source, err error) {
	next.list, err = peers.Read(s.o.PeersFile)
	if errors.Is(err, os.ErrNotExist) {
		return source{}, nil
	}
	if err != nil {
		return next, err
	}
	if next.accounts, err = credentials.Read(s.o.AuthFile); err != nil {
		return next, err
	}
	t, err := dial.Transport(dial.Options{CAFile: s.o.CAFile, Connect: s.limits.connect, Answer: s.limits.answer})
	if err != nil {
		return next, fmt.Errorf("reach registry peers: %w", err)
	}
	t.TLSHandshakeTimeout, t.MaxIdleConnsPerHost, t.ForceAttemptHTTP2 = handshakeLimit, maxBlobs, false
	t.Proxy, t.DisableCompression = nil, true // they are nodes of this cluster, and ranges are of the blob's bytes
	next.client = &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // the account is for the peers alone
	}}
	return next, nil
}

// account is the one that a peer is shown.
func (s source) account(p peers.Peer, repository string) (credentials.Account, error) {
	account, found, err := s.accounts.Find(p.Address + "/" + repository)
	if !found && s.list.Registry != "" {
		account, _, err = s.accounts.Find(s.list.Registry + "/" + repository)
	}
	return account, err
}

// stampOf changes when one of the files does.
func stampOf(files ...string) string {
	var out strings.Builder
	for _, name := range files {
		if fi, err := os.Stat(name); err == nil {
			fmt.Fprintln(&out, fi.ModTime().UnixNano(), fi.Size())
		} else {
			fmt.Fprintln(&out, err)
		}
	}
	return out.String()
}
