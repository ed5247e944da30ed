package registry

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/registry"
)

const (
	// filesPoll is how often a changed users file or certificate is noticed without SIGHUP.
	filesPoll = 2 * time.Second
	// stopLimit is how long clients may finish their requests when the server is told to stop.
	stopLimit = 30 * time.Second
)

// Command is dayone registry: the bootstrap host's registry on its own.
func Command() *cobra.Command {
	return cli.NewGroup("registry", "Serve, fill and look after an OCI registry on this host", newServeCommand(),
		newCopyCommand(), newListCommand(), newUsageCommand(), newCollectCommand(), newVerifyCommand())
}

type serveFlags struct {
	options   registry.Options
	usersFile string
	// ownUsers: the accounts were made here, with their pull secrets.
	ownUsers bool
}

func newServeCommand() *cobra.Command {
	f := &serveFlags{}
	cmd := &cobra.Command{
		Use:   "serve --root DIR --listen HOST:PORT",
		Short: "Serve a registry until SIGTERM",
		Long: "Serve makes a CA, a certificate (ROOT/tls) and a push and a pull account (ROOT/accounts) when none are " +
			"given. A changed users\n" +
			"file or certificate is read again by itself or on SIGHUP: who is no longer in the file is refused from the " +
			"next request on, and\n" +
			"new connections get the new certificate.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.options.Root, "root", "", "directory of the images (required)")
	flags.StringVar(&f.options.Listen, "listen", "127.0.0.1:5000", "HOST:PORT to listen on")
	flags.StringVar(&f.options.CertFile, "tls-cert", "", "server certificate (PEM)")
	flags.StringVar(&f.options.KeyFile, "tls-key", "", "key of the server certificate (PEM)")
	flags.StringSliceVar(&f.options.Hosts, "host", nil,
		"further name or address of the certificate that is made here (repeatable)")
	flags.BoolVar(&f.options.InsecureHTTP, "insecure-http", false, "serve plain HTTP, on a loopback address only")
	flags.StringVar(&f.usersFile, "users", "", "accounts, lines of NAME:BCRYPT:ROLE with role push or pull")
	flags.BoolVar(&f.options.ReadOnly, "read-only", false, "refuse every change")
	flags.BoolVar(&f.options.Sparse, "sparse", false,
		"accept indexes and manifests whose images or layers are not all there")
	flags.Int64Var(&f.options.MaxBytes, "max-bytes", 0, "bytes that the images may take, 0 for no limit")
	flags.Int64Var(&f.options.MinFreeBytes, "min-free-bytes", 0, "bytes of the disk that stay free, 0 for 256 MiB")
	_ = cmd.MarkFlagRequired("root")
	cmd.MarkFlagsRequiredTogether("tls-cert", "tls-key")
	cmd.MarkFlagsMutuallyExclusive("insecure-http", "tls-cert")
	return cmd
}

func (f *serveFlags) run(cmd *cobra.Command) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	f.options.Log = cli.Log(cmd)

	checked := f.options
	checked.Users = []registry.User{{Name: "any", Password: "any", Role: registry.RolePull}}
	if err := checked.Validate(); err != nil { // before accounts are made below a root that will not be served
		return err
	}
	if err := f.loadUsers(); err != nil {
		return err
	}
	s, err := registry.New(f.options)
	if err != nil {
		return err
	}
	if err := s.Start(); err != nil {
		return err
	}
	if f.ownUsers {
		err = registry.RenameAuthFiles(filepath.Dir(f.usersFile), s.Addresses()...)
	}
	if err == nil {
		fmt.Fprintln(cmd.OutOrStdout(), s.Addr())
		err = f.watch(ctx, s)
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
	defer cancel()
	return errors.Join(err, s.Shutdown(end))
}

func (f *serveFlags) loadUsers() (err error) {
	if f.usersFile == "" {
		dir := filepath.Join(f.options.Root, "accounts")
		if _, err := registry.LoadOrCreateUsers(dir, f.options.Addresses()...); err != nil {
			return err
		}
		f.usersFile, f.ownUsers = filepath.Join(dir, registry.UsersFile), true
	}
	f.options.Users, err = registry.ReadUsers(f.usersFile)
	return err
}

// watch waits for the end and takes over changes of users and certificate meanwhile: of their files, on SIGHUP, and
// once a day, because a certificate that was made here is renewed before its end.
func (f *serveFlags) watch(ctx context.Context, s *registry.Server) error {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	tick, daily := time.NewTicker(filesPoll), time.NewTicker(registry.RenewalPoll)
	defer tick.Stop()
	defer daily.Stop()
	users, certificate := stamp(f.usersFile), stamp(f.options.CertFile, f.options.KeyFile)
	for {
		all := false
		select {
		case <-ctx.Done():
			return nil
		case err := <-s.Err():
			return err
		case <-hup:
			all = true
		case <-daily.C:
			all = true
		case <-tick.C:
		}
		if now := stamp(f.usersFile); all || now != users {
			users = now
			f.reloadUsers(s)
		}
		if now := stamp(f.options.CertFile, f.options.KeyFile); all || now != certificate {
			certificate = now
			f.reloadCertificate(s)
		}
	}
}

// reloadUsers leaves the accounts as they were when the file is wrong: one under edit must neither open nor stop the
// registry.
func (f *serveFlags) reloadUsers(s *registry.Server) {
	users, err := registry.ReadUsers(f.usersFile)
	if err == nil {
		err = s.SetUsers(users)
	}
	if err != nil {
		f.options.Log.WithError(err).Error("users file is not usable, the accounts stay as they were")
		return
	}
	f.options.Log.WithField("users", len(users)).Info("users were read again")
}

func (f *serveFlags) reloadCertificate(s *registry.Server) {
	if err := s.ReloadCertificate(); err != nil {
		f.options.Log.WithError(err).Error("server certificate is not usable, the one before stays")
		return
	}
	f.options.Log.Info("server certificate was read again")
}

// stamp changes when one of the files does.
func stamp(files ...string) string {
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
