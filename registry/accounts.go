package registry

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/bcrypt"
)

const (
	defaultRealm = "dayone bootstrap registry"

	// A client address may fail failureBurst logins at once and then one per failureInterval.
	failureBurst    = 20
	failureInterval = 3 * time.Second
	// maxFailureAddresses bounds the memory that failed logins can take.
	maxFailureAddresses = 4096
)

// account is a user as the server keeps it: no password in clear.
type account struct {
	name string
	sum  [sha256.Size]byte // keyed hash of name and password; unused with hash
	hash []byte            // bcrypt, nil for a user with a password
	role Role
}

// accounts decides who may do what. The table is replaced as a whole, so that a revoked user is out with the next
// request.
type accounts struct {
	key   [sha256.Size]byte
	table atomic.Pointer[accountTable]
	fails failures
}

type accountTable struct {
	byName map[string]*account
	// decoy is compared when the account has no hash of its own, so that a refusal takes the same time for each name; nil
	// when no account has a hash.
	decoy []byte
	// verified maps the keyed hash of a name and password that was verified once to its account: bcrypt is paid once, and
	// a client that is logged in is not shut out by another one's failures from the same address.
	verified sync.Map
}

func newAccounts(users []User) (*accounts, error) {
	a := &accounts{fails: failures{at: map[string]*failure{}}}
	if _, err := rand.Read(a.key[:]); err != nil {
		return nil, fmt.Errorf("make account key: %w", err)
	}
	return a, a.set(users)
}

func (a *accounts) set(users []User) error {
	if err := validateUsers(users); err != nil {
		return err
	}
	t := &accountTable{byName: make(map[string]*account, len(users))}
	for _, u := range users {
		acc := &account{name: u.Name, role: u.Role}
		if u.PasswordHash != "" {
			acc.hash = []byte(u.PasswordHash)
			t.decoy = acc.hash
		} else {
			acc.sum = a.sum(u.Name, u.Password)
		}
		t.byName[u.Name] = acc
	}
	if before := a.table.Load(); before != nil {
		t.keepVerified(before)
	}
	a.table.Store(t)
	return nil
}

// keepVerified takes over what was verified for accounts that have the same hash as before: their passwords are the
// same, and a change of other accounts costs no bcrypt.
func (t *accountTable) keepVerified(before *accountTable) {
	before.verified.Range(func(sum, was any) bool {
		old := was.(*account)
		if acc := t.byName[old.name]; acc != nil && acc.hash != nil && bytes.Equal(acc.hash, old.hash) {
			t.verified.Store(sum, acc)
		}
		return true
	})
}

// sum is keyed with a secret of this process, so that neither its time nor a memory dump helps to find a password. It
// never leaves the process, so a key in front does; HMAC would allocate on every request.
func (a *accounts) sum(name, password string) [sha256.Size]byte {
	var room [256]byte
	buf := append(room[:0], a.key[:]...)
	buf = binary.BigEndian.AppendUint32(buf, uint32(len(name)))
	buf = append(append(buf, name...), password...)
	return sha256.Sum256(buf)
}

// authenticate returns the account of a request. A client address with too many failures is refused before bcrypt runs.
func (a *accounts) authenticate(r *http.Request, now time.Time) (*account, *apiError) {
	name, password, ok := r.BasicAuth()
	if !ok {
		return nil, errUnauthorized
	}
	t := a.table.Load()
	sum := a.sum(name, password)
	if acc, ok := t.verified.Load(sum); ok {
		return acc.(*account), nil
	}
	host := clientAddress(r)
	if wait := a.fails.wait(host, now); wait > 0 {
		return nil, errTooManyLogins.with("retry after " + strconv.Itoa(int(wait/time.Second)+1) + " s")
	}
	acc := t.byName[name]
	if acc == nil {
		acc = &account{} // an unknown user takes the same path as a wrong password
	}
	if acc.matches(sum, password) {
		t.verified.Store(sum, acc)
		return acc, nil
	}
	if acc.hash == nil && t.decoy != nil {
		_ = bcrypt.CompareHashAndPassword(t.decoy, []byte(password)) // for its time only
	}
	a.fails.add(host, now)
	return nil, errUnauthorized
}

func (acc *account) matches(sum [sha256.Size]byte, password string) bool {
	if acc.hash != nil {
		return bcrypt.CompareHashAndPassword(acc.hash, []byte(password)) == nil
	}
	return subtle.ConstantTimeCompare(sum[:], acc.sum[:]) == 1
}

func clientAddress(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// failures is a leaky bucket of failed logins per client address.
type failures struct {
	mu sync.Mutex
	at map[string]*failure
}

type failure struct {
	level float64 // failed logins not yet forgotten
	seen  time.Time
}

func (f *failure) drain(now time.Time) {
	if d := now.Sub(f.seen); d > 0 {
		f.level = max(0, f.level-float64(d)/float64(failureInterval))
		f.seen = now
	}
}

// wait is how long the address has to wait before its next login is looked at.
func (f *failures) wait(host string, now time.Time) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.at[host]
	if e == nil {
		return 0
	}
	e.drain(now)
	if e.level <= failureBurst-1 {
		return 0
	}
	return time.Duration((e.level - (failureBurst - 1)) * float64(failureInterval))
}

func (f *failures) add(host string, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.at[host]
	if e == nil {
		if len(f.at) >= maxFailureAddresses {
			f.forget(now)
		}
		e = &failure{seen: now}
		f.at[host] = e
	}
	e.drain(now)
	e.level++
}

// forget drops addresses without recent failures, and one more when that frees nothing.
func (f *failures) forget(now time.Time) {
	for h, e := range f.at {
		if e.drain(now); e.level == 0 {
			delete(f.at, h)
		}
	}
	for h := range f.at {
		if len(f.at) < maxFailureAddresses {
			return
		}
		delete(f.at, h)
	}
}
