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

// pullSecret keeps what new nodes pull with the same as its files, which kubelet renews.
type pullSecret struct {
	files []string
	have  []byte
	log   *logrus.Entry
	// use is told what the file has when that is something new.
	use func(transfer.Keychain, []byte)
}

// newPullSecret follows the files of a server that began with o.
func newPullSecret(files []string, o servecontroller.Options, r *servecontroller.Reconciler) *pullSecret {
	use := func(known transfer.Keychain, raw []byte) {
		o.Proxy.SetKeychain(known)
		r.SetPullAuth(raw)
	}
	return &pullSecret{files: files, have: o.FirstBoot.PullAuth, log: o.Log, use: use}
}

// refresh looks at the files. One that cannot be read changes nothing.
func (p *pullSecret) refresh() error {
	known, raw, err := readAccounts(p.files)
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

// readAccounts reads pull secrets into one: of one registry the first account counts. No file is no accounts.
func readAccounts(files []string) (transfer.Keychain, []byte, error) {
	var all []byte
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("read --pull-secret: %w", err)
		}
		if all == nil { // what pulls on nodes reads one of the two forms
			all, err = credentials.Normalize(raw)
		} else {
			all, err = credentials.Merge(raw, all)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("read --pull-secret %s: %w", file, err)
		}
	}
	accounts, err := credentials.Parse(all)
	return transfer.Keychain(accounts), all, err
}
