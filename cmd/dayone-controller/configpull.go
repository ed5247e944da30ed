package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/bootstrap/servecontroller"
	"dayone.dev/dayone/registry/credentials"
	"dayone.dev/dayone/registry/transfer"
)

// pullInterval is how often it is looked whether the pull secret has come or changed.
const pullInterval = time.Minute

// pullSecret keeps what new nodes pull with the same as its file, which kubelet renews.
type pullSecret struct {
	file string
	have []byte
	log  *logrus.Entry
	// use is told what the file has when that is something new.
	use func(transfer.Keychain, []byte)
}

// newPullSecret follows the file of a server that began with o.
func newPullSecret(file string, o servecontroller.Options, r *servecontroller.Reconciler) *pullSecret {
	return &pullSecret{file: file, have: o.FirstBoot.PullAuth, log: o.Log, use: func(known transfer.Keychain, raw []byte) {
		o.Proxy.SetKeychain(known)
		r.SetPullAuth(raw)
	}}
}

// refresh looks at the file. One that cannot be read changes nothing.
func (p *pullSecret) refresh() error {
	known, raw, err := readAccounts(p.file)
	if err != nil {
		return err
	}
	if bytes.Equal(raw, p.have) {
		return nil
	}
	p.have = raw
	p.use(known, raw)
	p.log.Info("new nodes pull with a new pull secret")
	return nil
}

// run refreshes until ctx ends.
func (p *pullSecret) run(ctx context.Context) error {
	return everyTick(ctx, pullInterval, func() error {
		if err := p.refresh(); err != nil {
			p.log.WithError(err).Warn("pull secret of new nodes not renewed")
		}
		return nil
	})
}

// readAccounts reads a pull secret; no file is no accounts.
func readAccounts(file string) (transfer.Keychain, []byte, error) {
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read --pull-secret: %w", err)
	}
	plain, err := credentials.Normalize(raw) // what pulls on nodes reads one of the two forms
	if err != nil {
		return nil, nil, fmt.Errorf("read --pull-secret %s: %w", file, err)
	}
	accounts, err := credentials.Parse(plain)
	return transfer.Keychain(accounts), plain, err
}
