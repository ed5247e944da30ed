package forwarder

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/registry/credentials"
	"dayone.dev/dayone/registry/quiet"
)

const (
	// DefaultListen is where a node's clients find the forwarder: the port after the registries'.
	DefaultListen = "127.0.0.1:22627"

	// handshakeLimit bounds TLS: a registry that a thousand nodes come to at once is busy with it.
	handshakeLimit = 5 * time.Second
	// smallLimit bounds an answer that is no blob.
	smallLimit = 20 * time.Second
	// clientLimit ends a client that takes less than a piece in it.
	clientLimit = 2 * time.Minute
	// minBusy and maxBusy bound the pause before busy peers are asked again, whatever they ask for.
	minBusy = time.Second
	maxBusy = 30 * time.Second

	// pieceSize is how much of a blob is read and given at once.
	pieceSize = 256 << 10
	// maxSmall bounds an answer that is no blob: a manifest's 4 MiB. Source: OCI distribution specification.
	maxSmall = 4 << 20
	// maxBlobs and maxSmalls are how many answers are under way at once, further ones wait. They need 16 MiB each at most.
	maxBlobs  = 32
	maxSmalls = 4
	// maxConnections bounds clients.
	maxConnections = 128
)

// limits are how long peers may take.
type limits struct {
	// connect is for a connection: a peer that is gone says nothing at all.
	connect time.Duration
	// answer is for the head of an answer, and for each piece of a blob.
	answer time.Duration
	// patience is for all peers that say that they are busy: less than the two minutes after which the agent's own import
	// gives up.
	patience time.Duration
}

func usual() limits {
	return limits{connect: 2 * time.Second, answer: 10 * time.Second, patience: 90 * time.Second}
}

// Options of a forwarder. Node, PeersFile and Account are required.
type Options struct {
	// Node is this node's name; with the peers' it gives the order in which they are asked.
	Node string
	// PeersFile says where the peers are, and the name of the registry that they are. All files are read again when they
	// change.
	PeersFile string
	// CertsDirs are in the form of /etc/containers/certs.d: the .crt files below the registry's name in the first that has
	// some are the peers' CAs. None has: the system's CAs count.
	CertsDirs []string
	// AuthFiles are in the form of auth.json: the entry for the registry in the first that has one is the peers' account.
	// Files may be missing.
	AuthFiles []string
	// Listen is an address of loopback, HOST:PORT; default DefaultListen.
	Listen string
	// Account is what clients show: only who reads the node's own credentials gets images, which have secrets in them.
	Account credentials.Account
	// Serving is called with what clients need when that changes, and with the zero Mirror when there are no peers any
	// more. Its failure is logged, and it is called again. nil: nothing is called.
	Serving func(Mirror) error
	// StateFile gets the State as JSON, when it changes; "": no file.
	StateFile string
	// Log receives what fails; default: nothing.
	Log *logrus.Entry
}

// Mirror is what clients need to use the forwarder.
type Mirror struct {
	// Registry is HOST[:PORT] of the images' final names.
	Registry string
	// Address is the forwarder's.
	Address string
	// CA has signed its certificate; in PEM. It is made anew at each start, so that no key is on a disk.
	CA string
}

// Validate names the first option that cannot work.
func (o Options) Validate() error {
	if o.Node == "" || o.PeersFile == "" {
		return errors.New("forwarder options: Node and PeersFile are required")
	}
	if o.Account.Username == "" || o.Account.Password == "" {
		return errors.New("forwarder options: Account has no user name or no password")
	}
	host, _, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return fmt.Errorf("forwarder options: Listen %q: give HOST:PORT: %w", o.Listen, err)
	}
	if ip, err := netip.ParseAddr(host); err != nil || !ip.IsLoopback() {
		return fmt.Errorf("forwarder options: Listen %q is no address of loopback: it is for this node's clients only",
			o.Listen)
	}
	return nil
}

func (o Options) withDefaults() Options {
	o.Listen = cmp.Or(o.Listen, DefaultListen)
	if o.Serving == nil {
		o.Serving = func(Mirror) error { return nil }
	}
	o.Log = cmp.Or(o.Log, quiet.Log())
	return o
}
