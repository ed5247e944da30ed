package registry

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/crypto/bcrypt"

	"dayone.dev/dayone/registry/quiet"
	"dayone.dev/dayone/registry/storage"
)

// Role says what an account may do. There is no anonymous access.
type Role string

const (
	// RolePull may read everything and change nothing.
	RolePull Role = "pull"
	// RolePush may also push and delete.
	RolePush Role = "push"
)

const (
	// defaultMaxManifestBytes is the manifest size that the OCI distribution specification asks registries to accept (4
	// MiB).
	defaultMaxManifestBytes = 4 << 20

	// defaultMinFreeBytes of the file system stay free for the rest of the host: journal, kubelet and builds fail badly on
	// a full disk.
	defaultMinFreeBytes = 256 << 20

	// defaultMaxConnections leave room for several layers at once of every node of a large cluster.
	defaultMaxConnections = 4096

	passwordBytes = 32 // 256 bits
)

// User is an account. Exactly one of Password and PasswordHash is set.
type User struct {
	Name     string
	Password string
	// PasswordHash is a bcrypt hash (htpasswd -B). It costs one bcrypt per password and process, not one per request.
	PasswordHash string
	Role         Role
}

// NewUser makes an account with a random password of 256 bits.
func NewUser(name string, role Role) (User, error) {
	var b [passwordBytes]byte
	if _, err := rand.Read(b[:]); err != nil {
		return User{}, fmt.Errorf("make password for %s: %w", name, err)
	}
	u := User{Name: name, Password: base64.RawURLEncoding.EncodeToString(b[:]), Role: role}
	return u, u.Validate()
}

// Validate names what is wrong with the account. The password never appears in the error.
func (u User) Validate() error {
	switch {
	case u.Name == "" || strings.ContainsAny(u.Name, ":\n\r\x00"):
		return fmt.Errorf("user name %q must be non-empty and without colon or line break", u.Name)
	case u.Role != RolePull && u.Role != RolePush:
		return fmt.Errorf("user %s: role %q is neither %s nor %s", u.Name, u.Role, RolePull, RolePush)
	case (u.Password == "") == (u.PasswordHash == ""):
		return fmt.Errorf("user %s: give either a password or a bcrypt hash", u.Name)
	}
	if u.PasswordHash != "" {
		if _, err := bcrypt.Cost([]byte(u.PasswordHash)); err != nil {
			return fmt.Errorf("user %s: the hash is not bcrypt (make it with htpasswd -B): %w", u.Name, err)
		}
	}
	return nil
}

// Options of a Server. Root, Listen and Users are required.
type Options struct {
	// Root is the directory of the images; it is made when missing. One server at a time uses it.
	Root string
	// Listen is HOST:PORT; port 0 takes a free one (see Server.Addr).
	Listen string
	// Certificate is the server certificate. With none, CertFile and KeyFile are read; with none of these a CA and a
	// certificate are made (and kept) in TLSDir.
	Certificate       *tls.Certificate
	CertFile, KeyFile string
	// TLSDir holds the CA and server certificate made here; "" is Root/tls.
	TLSDir string
	// NodeCAFile is PEM of a CA with its key, which counts before that of TLSDir where it is there; with a name here no CA
	// is ever made. "": there is none.
	NodeCAFile string
	// Hosts are further names and addresses of the certificate made here, beside Listen's host, localhost and the loopback
	// addresses.
	Hosts []string
	// InsecureHTTP serves plain HTTP, refused unless Listen is a loopback address.
	InsecureHTTP bool
	// Users are the accounts; Server.SetUsers replaces them while the server runs.
	Users []User
	// Realm is what a login names; "" is defaultRealm.
	Realm string
	// ReadOnly refuses every change and writes nothing below Root, which may lie on a file system that cannot be written
	// to. Several such servers may use one Root.
	ReadOnly bool
	// Sparse accepts manifests and indexes that name what the repository does not have. Without it they are refused: a
	// node could not pull such an image.
	Sparse bool
	// MaxManifestBytes bounds a manifest; 0 is defaultMaxManifestBytes.
	MaxManifestBytes int64
	// MaxBytes is how many bytes of blobs Root may hold; 0 is no limit beside MinFreeBytes.
	MaxBytes int64
	// MinFreeBytes is how much of Root's file system stays free: a push that would use it is refused with 507. 0 is
	// defaultMinFreeBytes.
	MinFreeBytes int64
	// CollectEvery is how often the running server collects garbage, more often when room runs low; 0 is six hours,
	// negative never.
	CollectEvery time.Duration
	// ScrubEvery is how often the running server reads all blobs to find those that rot; 0 is a week, negative never.
	ScrubEvery time.Duration
	// ScrubRate is how many bytes a second it reads for that at most; 0 is 32 MiB.
	ScrubRate int64
	// UploadIdle is how long an upload without a request is kept; 0 is an hour.
	UploadIdle time.Duration
	// MaxUploads is how many uploads an account may have under way, beyond them it is answered with 429; 0 is 1024.
	MaxUploads int
	// MaxConnections is how many clients may be connected at once; others wait. 0 is defaultMaxConnections.
	MaxConnections int
	// Upstream is the registry from which this one takes what it lacks; pushes are refused then. nil is none.
	Upstream Upstream
	// UpstreamTTL is how long an unused image from there stays; 0 keeps it until disk space runs low.
	UpstreamTTL time.Duration
	// Pulled receives what accounts with RolePull get, while they get it; it must not block. nil drops it.
	Pulled func(Pull)
	// Reports answers POST requests to ReportsPath, of accounts that may pull; nil: there is no such path.
	Reports     http.Handler
	ReportsPath string
	// Beside works with the storage of a server that runs, until ctx ends; Shutdown waits for it. nil is nothing.
	Beside func(ctx context.Context, store *storage.Store)
	// Log receives what the server and distribution report; nil discards it.
	Log *logrus.Entry
}

// Pull is a part of an image that an account with RolePull gets.
type Pull struct {
	// Client is the client's address, without its port.
	Client     string
	Repository string
	Digest     string
	// Manifest is the content of a manifest; nil for a part of a blob.
	Manifest []byte
	// Bytes of a blob that were sent since the last call.
	Bytes int64
}

// Validate names the option that is wrong and what to do.
func (o Options) Validate() error {
	if o.Root == "" {
		return errors.New("registry options: Root is empty: name the directory of the images")
	}
	host, _, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return fmt.Errorf("registry options: Listen %q: give HOST:PORT: %w", o.Listen, err)
	}
	if o.InsecureHTTP && !loopback(host) {
		return fmt.Errorf("registry options: InsecureHTTP is allowed on a loopback address only, not on %q: "+
			"leave it out, or listen on 127.0.0.1", o.Listen)
	}
	if o.InsecureHTTP && (o.Certificate != nil || o.CertFile != "" || o.KeyFile != "") {
		return errors.New("registry options: InsecureHTTP and a certificate exclude each other")
	}
	if (o.CertFile == "") != (o.KeyFile == "") {
		return errors.New("registry options: CertFile and KeyFile go together")
	}
	if o.MaxManifestBytes < 0 || o.MaxBytes < 0 || o.MinFreeBytes < 0 || o.ScrubRate < 0 {
		return errors.New("registry options: a size is negative")
	}
	if strings.ContainsAny(o.Realm, "\"\\\r\n") {
		return fmt.Errorf("registry options: Realm %q has quotes or line breaks", o.Realm)
	}
	if o.Upstream != nil && (o.ReadOnly || o.Sparse) {
		return errors.New("registry options: Upstream excludes ReadOnly and Sparse: it stores what it fetches, and " +
			"refuses pushes")
	}
	if o.UpstreamTTL < 0 {
		return errors.New("registry options: UpstreamTTL is negative")
	}
	if o.MaxConnections < 0 || o.MaxUploads < 0 || o.UploadIdle < 0 {
		return errors.New("registry options: MaxConnections, MaxUploads or UploadIdle is negative")
	}
	return validateUsers(o.Users)
}

func validateUsers(users []User) error {
	if len(users) == 0 {
		return errors.New("registry options: Users is empty: name an account, there is no anonymous access")
	}
	seen := map[string]bool{}
	for _, u := range users {
		if err := u.Validate(); err != nil {
			return fmt.Errorf("registry options: %w", err)
		}
		if seen[u.Name] {
			return fmt.Errorf("registry options: user %s occurs twice", u.Name)
		}
		seen[u.Name] = true
	}
	return nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (o Options) withDefaults() Options {
	o.MaxManifestBytes = cmp.Or(o.MaxManifestBytes, defaultMaxManifestBytes)
	o.MinFreeBytes = cmp.Or(o.MinFreeBytes, defaultMinFreeBytes)
	o.MaxConnections = cmp.Or(o.MaxConnections, defaultMaxConnections)
	o.CollectEvery = cmp.Or(o.CollectEvery, defaultCollectEvery)
	o.ScrubEvery = cmp.Or(o.ScrubEvery, defaultScrubEvery)
	o.ScrubRate = cmp.Or(o.ScrubRate, defaultScrubRate)
	o.Realm = cmp.Or(o.Realm, defaultRealm)
	if o.TLSDir == "" {
		o.TLSDir = filepath.Join(o.Root, "tls")
	}
	if o.Pulled == nil {
		o.Pulled = func(Pull) {}
	}
	if o.Beside == nil {
		o.Beside = func(context.Context, *storage.Store) {}
	}
	o.Log = cmp.Or(o.Log, quiet.Log())
	return o
}
