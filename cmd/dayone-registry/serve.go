package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/certs"
	"dayone.dev/dayone/registry/peers"
	"dayone.dev/dayone/registry/poolaccounts"
	"dayone.dev/dayone/registry/replica"
	"dayone.dev/dayone/registry/storage"
	"dayone.dev/dayone/registry/wanted"
)

const (
	// defaultRoot survives reboots and changes of the image.
	defaultRoot = "/var/lib/dayone/registry"
	// defaultConfig has what the control plane's registries share, where a MachineConfig brings it: accounts, the CA with
	// its key, the pull secret.
	defaultConfig = "/etc/dayone/registry"
	// defaultMinFree of the disk stays free for etcd, the journal and pods, in percent.
	defaultMinFree = 10
	mega           = 1 << 20

	usersFile = "users"
	pullFile  = "pull-auth.json"
	caFile    = "ca.crt"
)

// options are the flags.
type options struct {
	root, config, state string
	listen              string
	hosts               []string
	peers, node, auth   string
	minFree             int
	rate                int64
	grace               time.Duration
	logLevel            string
}

func newCommand(version string) *cobra.Command {
	var o options
	c := &cobra.Command{Use: "dayone-registry", Short: "The registry of a control-plane node", Version: version,
		Long: "Serve the images that the cluster's nodes run, fetch those that are missing here from the other " +
			"registries, and let go what nothing\nwants any more. It needs neither the API nor a container runtime. " +
			"It reads changed accounts and certificates by itself.",
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c) }}
	f := c.Flags()
	f.StringVar(&o.root, "root", defaultRoot, "directory of the images")
	f.StringVar(&o.config, "config", defaultConfig, "directory with "+usersFile+" (lines of NAME:BCRYPT:ROLE), "+
		caFile+" and ca.key, from which the server certificate is made, and, where --auth has none, "+pullFile+
		" (the account with which registries pull from each other)")
	f.StringVar(&o.state, "state", wanted.Dir, "directory of the list of wanted images, of the controller's accounts "+
		"and of the report; "+poolaccounts.SharedUsers+" and "+poolaccounts.SharedCA+" in it, which the node's agent "+
		"brings, count before --config")
	f.StringVar(&o.listen, "listen", net.JoinHostPort("", strconv.Itoa(peers.Port)), "HOST:PORT to listen on")
	f.StringSliceVar(&o.hosts, "host", nil, "further name of the certificate, as that of the images (repeatable)")
	f.StringVar(&o.peers, "peers", peers.Path, "file with the addresses of the cluster's registries")
	f.StringVar(&o.node, "node", "", "this node's name among them; default: the host's name")
	f.StringVar(&o.auth, "auth", poolaccounts.AuthPath, "account of this node, which its agent brings; it counts before "+
		pullFile)
	f.IntVar(&o.minFree, "min-free", defaultMinFree, "percent of the disk that stay free")
	f.Int64Var(&o.rate, "rate", replica.DefaultBytesPerSecond/mega, "MiB a second that are fetched at most")
	f.DurationVar(&o.grace, "grace", replica.DefaultGrace, "how long an image stays that nothing wants")
	f.StringVar(&o.logLevel, "log-level", logrus.InfoLevel.String(), "debug, info, warning or error")
	return c
}

func (o options) run(c *cobra.Command) error {
	log, err := newLog(c, o.logLevel)
	if err != nil {
		return err
	}
	if err := o.check(); err != nil {
		return err
	}
	if o.node == "" {
		if o.node, err = os.Hostname(); err != nil {
			return fmt.Errorf("find this node's name (--node gives it): %w", err)
		}
	}
	for _, dir := range []string{o.root, o.state} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("make directory: %w", err)
		}
	}
	minFree, err := percentOf(o.root, o.minFree)
	if err != nil {
		return err
	}
	var accepted, shared atomic.Pointer[string] // hashes of the controller's accounts and of shared files in force
	accepted.Store(new(string))
	shared.Store(new(string))
	users, ca := filepath.Join(o.state, poolaccounts.SharedUsers), filepath.Join(o.state, poolaccounts.SharedCA)
	beside := replica.Options{Dir: o.state, Self: o.node, CAFile: filepath.Join(o.config, caFile), NodeCAFile: ca,
		Shared:   func() string { return *shared.Load() },
		AuthFile: filepath.Join(o.config, pullFile), NodeAuthFile: o.auth,
		Accounts: func() string { return *accepted.Load() }, BytesPerSecond: o.rate * mega, Grace: o.grace, Log: log,
		Peers: func() (peers.List, error) { return peers.Read(o.peers) }}
	return registry.Run(c.Context(), registry.RunOptions{UsersFile: filepath.Join(o.config, usersFile),
		NodeUsersFile: users, MoreUsersFile: filepath.Join(o.state, wanted.AccountsFile),
		Accepted: func(content []byte) {
			hash := wanted.AccountsHash(content)
			accepted.Store(&hash)
		},
		Reading: func() func() {
			hash := poolaccounts.ReadShared(o.state).Hash()
			return func() { shared.Store(&hash) }
		},
		Options: registry.Options{Root: o.root, Listen: o.listen, TLSDir: o.config, NodeCAFile: ca, Hosts: o.hosts,
			MinFreeBytes: minFree,
			Realm:        "dayone registry", Log: log,
			Beside: func(ctx context.Context, store *storage.Store) { replica.Run(ctx, store, beside) }},
		Started: func(addr string) { log.WithField("address", addr).Info("registry serves") }})
}

// check looks for the files that all registries of the cluster share: one that made its own would be no peer.
func (o options) check() error {
	if o.minFree < 0 || o.minFree > 90 || o.rate < 1 || o.grace < 0 {
		return errors.New("--min-free must be 0 to 90, --rate at least 1, --grace not negative")
	}
	for name, of := range map[string]string{usersFile: poolaccounts.SharedUsers, caFile: poolaccounts.SharedCA,
		certs.CAKeyFile: poolaccounts.SharedCA} {
		_, err := os.Stat(filepath.Join(o.state, of))
		if errors.Is(err, fs.ErrNotExist) {
			_, err = os.Stat(filepath.Join(o.config, name))
		}
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s is missing, and %s: the control plane's registries share accounts and a CA. A node's agent "+
				"brings them when the node is in the cluster: see its log, and dayone cluster registry status. For nodes "+
				"without an agent make them with dayone registry node-config and give them to the control-plane pool",
				filepath.Join(o.config, name), filepath.Join(o.state, of))
		}
		if err != nil {
			return fmt.Errorf("read configuration: %w", err)
		}
	}
	return nil
}

func newLog(c *cobra.Command, level string) (*logrus.Entry, error) {
	parsed, err := logrus.ParseLevel(level)
	if err != nil {
		return nil, fmt.Errorf("--log-level: %w", err)
	}
	l := logrus.New()
	l.SetOutput(c.ErrOrStderr())
	l.SetLevel(parsed)
	l.SetFormatter(&logrus.JSONFormatter{})
	return l.WithField("program", "dayone-registry"), nil
}

// percentOf is a part of the file system that a directory is on, in bytes.
func percentOf(dir string, percent int) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("read size of the disk of %s: %w", dir, err)
	}
	return int64(st.Blocks) * st.Bsize / 100 * int64(percent), nil
}
