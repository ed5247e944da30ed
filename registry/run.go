package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
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
	// NodeUsersFile counts in the place of UsersFile where it is there; "": there is none.
	NodeUsersFile string
	// UsersRole is that of lines without one, as a htpasswd file of distribution has them; "" refuses them.
	UsersRole Role
	// MoreUsersFile has further accounts in the same form, each with its role. It may be missing, and what cannot be used
	// leaves the ones that it had before; "": there are none.
	MoreUsersFile string
	// Accepted is called with the content of MoreUsersFile when its accounts are in force; nil calls nothing.
	Accepted func(content []byte)
	// Reading is called when the files of the server's accounts and of its certificate are read. What it gives is called
	// when the server works by what the files had then; nil calls nothing.
	Reading func() (inForce func())
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
	if o.Accepted == nil {
		o.Accepted = func([]byte) {}
	}
	if o.Reading == nil {
		o.Reading = func() func() { return func() {} }
	}
	users := userFiles{file: o.UsersFile, node: o.NodeUsersFile, more: o.MoreUsersFile, role: o.UsersRole}
	read := o.stamps(&users) // what changes from now on is read again, also before the server works
	inForce := o.Reading()
	var moreErr error
	if o.Users, moreErr, err = users.read(); err != nil {
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
		if moreErr != nil {
			s.log.WithError(moreErr).Error("further users are not usable")
		}
		o.Accepted(users.accepted)
		if o.stamps(&users) == read {
			inForce()
		}
		err = s.watch(ctx, users, read, o)
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
	defer cancel()
	return errors.Join(err, s.Shutdown(end))
}

// stamps are of the files that a server works by.
type stamps struct{ users, certificate string }

func (o Options) stamps(users *userFiles) stamps {
	return stamps{users: users.stamp(), certificate: credentials.Stamp(o.certificateSources()...)}
}

// watch waits for the end and takes over changes of users and certificate meanwhile: of their files, on SIGHUP, and
// once a day, because a certificate that was made here is renewed before its end. One that was made under a wrong clock
// is made anew when the clock is right.
func (s *Server) watch(ctx context.Context, files userFiles, read stamps, o RunOptions) error {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	tick, daily, clock := time.NewTicker(filesPoll), time.NewTicker(RenewalPoll), time.NewTicker(clockPoll)
	defer tick.Stop()
	defer daily.Stop()
	defer clock.Stop()
	by := works{stamps: read}
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
		case <-clock.C:
			if s.outdated() {
				by.certificate = ""
			}
		case <-tick.C:
		}
		by = s.follow(&files, by, all, o)
	}
}

// works is what a server works by, and why not by what there is.
type works struct {
	stamps
	usersErr, certificateErr error
}

// follow reads what has changed since, or all.
func (s *Server) follow(files *userFiles, was works, all bool, o RunOptions) works {
	now := was
	if now.stamps = s.o.stamps(files); !all && now.stamps == was.stamps {
		return was
	}
	inForce := o.Reading()
	if all || now.users != was.users {
		now.usersErr = s.reloadUsers(files, o.Accepted)
	}
	if all || now.certificate != was.certificate {
		if now.certificateErr = s.ReloadCertificate(); now.certificateErr != nil {
			s.log.WithError(now.certificateErr).Error("server certificate is not usable, the one before stays")
		} else {
			s.log.Info("server certificate was read again")
		}
	}
	// What has changed meanwhile is read again with the next look.
	if now.usersErr == nil && now.certificateErr == nil && s.o.stamps(files) == now.stamps {
		inForce()
	}
	return now
}

// reloadUsers leaves the accounts as they were when the file is wrong: one under edit must neither open nor stop the
// registry.
func (s *Server) reloadUsers(files *userFiles, accepted func([]byte)) error {
	users, moreErr, err := files.read()
	if moreErr != nil {
		s.log.WithError(moreErr).Error("further users are not usable, they stay as they were")
	}
	if err == nil {
		err = s.SetUsers(users)
	}
	if err != nil {
		s.log.WithError(err).Error("users file is not usable, the accounts stay as they were")
		return err
	}
	accepted(files.accepted)
	s.log.WithField("users", len(users)).Info("users were read again")
	return nil
}

// userFiles are where accounts are.
type userFiles struct {
	file, node, more string
	role             Role
	// further are the accounts of more, and accepted its content, as they were last usable.
	further  []User
	accepted []byte
}

func (f *userFiles) stamp() string { return credentials.Stamp(f.file, f.node, f.more) }

// read gives the accounts of both files. Those of the first count where a name is in both. moreErr is why the second
// one is as it was.
func (f *userFiles) read() (users []User, moreErr, err error) {
	own := f.file
	if _, err := os.Stat(f.node); err == nil {
		own = f.node
	}
	if users, err = readUsers(own, f.role); err != nil {
		return nil, nil, err
	}
	if f.more != "" {
		moreErr = f.readMore()
	}
	for _, u := range f.further {
		if !slices.ContainsFunc(users, func(have User) bool { return have.Name == u.Name }) {
			users = append(users, u)
		}
	}
	return users, moreErr, nil
}

func (f *userFiles) readMore() error {
	raw, err := readUsersFile(f.more)
	if errors.Is(err, fs.ErrNotExist) {
		f.further, f.accepted = nil, nil
		return nil
	}
	var users []User
	if err == nil {
		users, err = parseUsers(bytes.NewReader(raw), "")
	}
	if err == nil && len(users) > 0 {
		err = validateUsers(users)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", f.more, err)
	}
	f.further, f.accepted = users, raw
	return nil
}
