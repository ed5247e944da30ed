package bootstrap

import (
	"crypto/tls"
	"path/filepath"
	"time"

	"dayone.dev/dayone/bootstrap/handover"
	"dayone.dev/dayone/bootstrap/journal"
	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/certs"
)

// MarkHandedOver writes down that nobody needs the bootstrap host any more, and removes the passwords of its registry's
// accounts. instead is HandedOver's.
func MarkHandedOver(stateDir, registryHost, instead string) error {
	return markHandedOver(stateDir, handover.Mark{Time: time.Now().UTC(), Registry: registryHost, Instead: instead})
}

// SettleHandedOver finishes what a process had left to do that was killed after it had written the mark done: it
// removes the accounts' passwords, and writes into the journal that the hand-over's phase is over.
func SettleHandedOver(stateDir, phase string, done *handover.Mark) error {
	if err := removeAccounts(stateDir); err != nil {
		return err
	}
	j, err := journal.Open(stateDir)
	if err != nil {
		return err
	}
	r := j.Find(phase)
	if r == nil || r.Status != journal.StatusRunning {
		return nil
	}
	r.Status, r.Finished, r.Interruptions, r.Interrupted = journal.StatusDone, done.Time, r.Interruptions+1, time.Now()
	return j.Save()
}

// ExemptFromProxy makes this process and its children talk to HOST:PORT directly. It must run before the first request.
func ExemptFromProxy(hostPort string) error { return exemptFromProxy(hostPort) }

// Identity is what makes a bootstrap host trusted by its nodes.
type Identity struct {
	// CAFile and CAPEM are the authority made for this cluster; Certificate is the embedded registry's.
	CAFile      string
	CAPEM       []byte
	Certificate tls.Certificate
	// Users are the registry's accounts: one pushes, one pulls.
	Users []registry.User
	// PushAuth and PullAuth are auth.json files for them.
	PushAuth, PullAuth string
}

// PhaseIdentity is the first phase of every flow; after it the identity is there.
const PhaseIdentity = "identity"

// IdentityDir is where a state directory keeps authority and credentials.
func IdentityDir(stateDir string) string { return filepath.Join(stateDir, identityDir) }

// LoadIdentity reads the identity in a state directory, or makes what is missing of it.
func LoadIdentity(stateDir, registryHost string, hosts []string) (*Identity, error) {
	id, err := loadIdentity(stateDir, registryHost)
	if err != nil {
		return nil, err
	}
	// A server certificate is cheap and its hosts may have changed: every run makes its own.
	server, err := id.ca.ServerCertificate(hosts, certs.ServerOptions{})
	if err != nil {
		return nil, err
	}
	return &Identity{CAFile: id.caFile, CAPEM: id.ca.CertificatePEM(), Certificate: server,
		Users:    []registry.User{id.push, id.pull},
		PushAuth: id.pushAuth, PullAuth: id.pullAuth}, nil
}
