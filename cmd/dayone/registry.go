package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"dayone.dev/dayone/registry"
)

const (
	// usersPoll is how often a changed users file is noticed without SIGHUP.
	usersPoll = 2 * time.Second
	// registryStop is how long clients may finish their requests when the server is told to stop.
	registryStop = 30 * time.Second
)

// newRegistryCommand is dayone registry: the bootstrap host's registry on its own.
func newRegistryCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "registry",
		Short: "Serve, fill and look after an OCI registry on this host",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(newRegistryServeCommand(), newRegistryCopyCommand(), newRegistryListCommand(), newRegistryUsageCommand(),
		newRegistryCollectCommand(), newRegistryVerifyCommand())
	return cmd
}

type registryServeFlags struct {
	options   registry.Options
	usersFile string
}

func newRegistryServeCommand() *cobra.Command {
	f := &registryServeFlags{}
	cmd := &cobra.Command{
		Use:   "serve --root DIR --listen HOST:PORT",
		Short: "Serve a registry until SIGTERM",
		Long: "Serve makes a CA, a certificate (ROOT/tls) and a push and a pull account (ROOT/accounts) when none are given. A changed users\n" +
			"file is read again by itself or on SIGHUP: who is no longer in it is refused from the next request on.",
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.options.Root, "root", "", "directory of the images (required)")
	flags.StringVar(&f.options.Listen, "listen", "127.0.0.1:5000", "HOST:PORT to listen on")
	flags.StringVar(&f.options.CertFile, "tls-cert", "", "server certificate (PEM)")
	flags.StringVar(&f.options.KeyFile, "tls-key", "", "key of the server certificate (PEM)")
	flags.StringSliceVar(&f.options.Hosts, "host", nil, "further name or address of the certificate that is made here (repeatable)")
	flags.BoolVar(&f.options.InsecureHTTP, "insecure-http", false, "serve plain HTTP, on a loopback address only")
	flags.StringVar(&f.usersFile, "users", "", "accounts, lines of NAME:BCRYPT:ROLE with role push or pull")
	flags.BoolVar(&f.options.ReadOnly, "read-only", false, "refuse every change")
	flags.Int64Var(&f.options.MaxBytes, "max-bytes", 0, "bytes that the images may take, 0 for no limit")
	flags.Int64Var(&f.options.MinFreeBytes, "min-free-bytes", 0, "bytes of the disk that stay free, 0 for 256 MiB")
	_ = cmd.MarkFlagRequired("root")
	return cmd
}

func (f *registryServeFlags) run(cmd *cobra.Command) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	logger := logrus.New()
	logger.SetOutput(cmd.ErrOrStderr())
	f.options.Log = logrus.NewEntry(logger)

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
	fmt.Fprintln(cmd.OutOrStdout(), s.Addr())
	err = f.watch(ctx, s)
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), registryStop)
	defer cancel()
	return errors.Join(err, s.Shutdown(end))
}

func (f *registryServeFlags) loadUsers() (err error) {
	if f.usersFile == "" {
		dir := filepath.Join(f.options.Root, "accounts")
		if _, err := registry.LoadOrCreateUsers(dir, f.options.Addresses()...); err != nil {
			return err
		}
		f.usersFile = filepath.Join(dir, registry.UsersFile)
	}
	f.options.Users, err = registry.ReadUsers(f.usersFile)
	return err
}

// watch waits for the end and takes over changes of the users file meanwhile.
func (f *registryServeFlags) watch(ctx context.Context, s *registry.Server) error {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	tick := time.NewTicker(usersPoll)
	defer tick.Stop()
	seen := f.stamp()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-s.Err():
			return err
		case <-hup:
		case <-tick.C:
			now := f.stamp()
			if now == seen {
				continue
			}
			seen = now
		}
		users, err := registry.ReadUsers(f.usersFile)
		if err == nil {
			err = s.SetUsers(users)
		}
		if err != nil { // a file under edit must not open or stop the registry
			f.options.Log.WithError(err).Error("users file is not usable, the accounts stay as they were")
			continue
		}
		f.options.Log.WithField("users", len(users)).Info("users were read again")
	}
}

func (f *registryServeFlags) stamp() string {
	fi, err := os.Stat(f.usersFile)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(fi.ModTime().UnixNano(), fi.Size())
}
