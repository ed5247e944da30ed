package forwarder

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"sync"

	"dayone.dev/dayone/registry/certs"
	"dayone.dev/dayone/registry/credentials"
	"dayone.dev/dayone/registry/dial"
	"dayone.dev/dayone/registry/peers"
)

// source is what the files say of the peers.
type source struct {
	list   peers.List
	client *http.Client
	auths  []credentials.Accounts
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
	if s.stampNow() == s.stamp {
		return s.now, s.err
	}
	next, err := s.read()
	if s.err = err; err == nil {
		if s.now.client != nil {
			s.now.client.CloseIdleConnections() // those under way go on
		}
		s.now = next
	}
	s.stamp = s.stampNow()
	return s.now, err
}

func (s *sources) stampNow() string {
	files := append([]string{s.o.PeersFile}, s.o.AuthFiles...)
	return credentials.Stamp(append(files, certs.RegistryFiles(s.now.list.Registry, s.o.CertsDirs...)...)...)
}

// read gives no peers where there is no file of them.
func (s *sources) read() (next source, err error) {
	next.list, err = peers.Read(s.o.PeersFile)
	if errors.Is(err, fs.ErrNotExist) {
		return source{}, nil
	}
	if err == nil && next.list.Registry == "" {
		err = fmt.Errorf("read registry peers %s: it does not say whose registry they are", s.o.PeersFile)
	}
	if err != nil {
		return next, err
	}
	for _, file := range s.o.AuthFiles {
		accounts, err := credentials.Read(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return next, err
		}
		next.auths = append(next.auths, accounts)
	}
	t, err := dial.Transport(dial.Options{CAFiles: certs.RegistryFiles(next.list.Registry, s.o.CertsDirs...),
		Connect: s.limits.connect, Answer: s.limits.answer})
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

// account is the one that peers are shown, anonymous where there is none.
func (s source) account(repository string) (credentials.Account, error) {
	for _, accounts := range s.auths {
		if account, found, err := accounts.Find(s.list.Registry + "/" + repository); found {
			return account, err
		}
	}
	return credentials.Account{}, nil
}
