package registry

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"dayone.dev/dayone/registry/credentials"
)

const (
	// filesPoll is how often a changed users file or certificate is noticed without SIGHUP.
	filesPoll = 2 * time.Second
	// stopLimit is how long clients may finish their requests when the server stops.
	stopLimit = 30 * time.Second
)

// RunOptions of a registry whose accounts are in a file.
type RunOptions struct {
	// Options of the server. Users are read from UsersFile.
	Options
	// UsersFile has the accounts, see readUsers; "" makes a push and a pull account below Root/accounts.
	UsersFile string
	// UsersRole is that of lines without one, as a htpasswd file of distribution has them; "" refuses them.
	UsersRole Role
	// Started is called with the address once the server accepts connections; nil calls nothing.
	Started func(addr string)
}

// Run serves until ctx ends. It reads a changed users file or certificate again by itself and on SIGHUP, and renews the
// certificate that it made.
func Run(ctx context.Context, o RunOptions) error {
	checked := o.Options
	checked.Users = []User{{Name: "any", Password: "any", Role: RolePull}}
	if err := checked.Validate(); err != nil { // before accounts are made below a root that will not be served
		return err
	}
	own := o.UsersFile == ""
	if own {
		dir := filepath.Join(o.Root, "accounts")
		if _, err := LoadOrCreateUsers(dir, o.Addresses()...); err != nil {
			return err
		}
		o.UsersFile = filepath.Join(dir, UsersFile)
	}
	var err error
	if o.Users, err = readUsers(o.UsersFile, o.UsersRole); err != nil {
		return err
	}
	s, err := New(o.Options)
	if err != nil {
		return err
	}
	if err := s.Start(); err != nil {
		return err
	}
	if own && !o.ReadOnly {
		err = RenameAuthFiles(filepath.Dir(o.UsersFile), s.Addresses()...)
	}
	if err == nil {
		if o.Started != nil {
			o.Started(s.Addr())
		}
		err = s.watch(ctx, o.UsersFile, o.UsersRole)
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
	defer cancel()
	return errors.Join(err, s.Shutdown(end))
}

// watch waits for the end and takes over changes of users and certificate meanwhile: of their files, on SIGHUP, and
// once a day, because a certificate that was made here is renewed before its end.
func (s *Server) watch(ctx context.Context, usersFile string, role Role) error {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	tick, daily := time.NewTicker(filesPoll), time.NewTicker(RenewalPoll)
	defer tick.Stop()
	defer daily.Stop()
	users, certificate := credentials.Stamp(usersFile), credentials.Stamp(s.o.certificateSources()...)
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
		if now := credentials.Stamp(usersFile); all || now != users {
			users = now
			s.reloadUsers(usersFile, role)
		}
		if now := credentials.Stamp(s.o.certificateSources()...); all || now != certificate {
			certificate = now
			if err := s.ReloadCertificate(); err != nil {
				s.log.WithError(err).Error("server certificate is not usable, the one before stays")
			} else {
				s.log.Info("server certificate was read again")
			}
		}
	}
}

// reloadUsers leaves the accounts as they were when the file is wrong: one under edit must neither open nor stop the
// registry.
func (s *Server) reloadUsers(file string, role Role) {
	users, err := readUsers(file, role)
	if err == nil {
		err = s.SetUsers(users)
	}
	if err != nil {
		s.log.WithError(err).Error("users file is not usable, the accounts stay as they were")
		return
	}
	s.log.WithField("users", len(users)).Info("users were read again")
}
