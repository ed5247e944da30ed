package bootstrap

import (
	"context"
	"crypto/tls"
	"os"
	"path/filepath"
	"time"

	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/certs"
)

// ResultPhase ties a phase's result to a variable, for flows in packages of their own. holds checks, on resume, that a
// recorded result is still true of the world; nil means that nothing needs checking.
func ResultPhase[T any](name, title string, result *T, inputs func() (any, error), run func(context.Context) (T, error),
	holds func(context.Context, T) error) Phase {
	return newPhase(name, title, result, inputs, run, holds)
}

// ServicePhase is a phase whose effect ends with the process: it always runs.
func ServicePhase(name, title string, start func(context.Context) error) Phase {
	return newService(name, title, start)
}

// Together lets phases run at the same time; they must stand next to each other in the list.
func Together(group string, phases ...Phase) []Phase {
	for i := range phases {
		phases[i].group = group
	}
	return phases
}

// RunPhases runs a flow's phases in order against a journal, which names this process from then on.
func RunPhases(ctx context.Context, j *Journal, phases []Phase, observe Observer, log *logrus.Entry) error {
	j.Process = Process{PID: os.Getpid(), Started: time.Now()}
	return (&runner{journal: j, observe: observe, now: time.Now, log: log}).run(ctx, phases)
}

// Save writes the journal.
func (j *Journal) Save() error { return j.save() }

// LockState keeps a second run off the same state directory until unlock is called or the process ends.
func LockState(dir string) (unlock func(), err error) { return lockState(dir) }

// MarkHandedOver writes down that nobody needs the bootstrap host any more, and removes the passwords of its registry's
// accounts. instead is HandedOver's.
func MarkHandedOver(stateDir, registryHost, instead string) error {
	return markHandedOver(stateDir, HandedOver{Time: time.Now().UTC(), Registry: registryHost, Instead: instead})
}

// SettleHandedOver finishes what a process had left to do that was killed after it had written the mark done: it
// removes the accounts' passwords, and writes into the journal that the hand-over's phase is over.
func SettleHandedOver(stateDir, phase string, done *HandedOver) error {
	if err := removeAccounts(stateDir); err != nil {
		return err
	}
	j, err := OpenJournal(stateDir)
	if err != nil {
		return err
	}
	r := j.Find(phase)
	if r == nil || r.Status != PhaseRunning {
		return nil
	}
	r.Status, r.Finished, r.Interruptions, r.Interrupted = PhaseDone, done.Time, r.Interruptions+1, time.Now()
	return j.save()
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
