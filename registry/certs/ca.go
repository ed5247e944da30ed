package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

const (
	// defaultCAValidity is how long a CA made here is valid: openshift-install gives its root CA the same ten years.
	defaultCAValidity = 10 * 365 * 24 * time.Hour
	// defaultServerValidity bounds a server certificate. The bootstrap host lives for hours; a standalone registry is
	// restarted or renewed within a year.
	defaultServerValidity = 365 * 24 * time.Hour
	// maxServerValidity is the longest server certificate that common clients accept (CA/Browser Forum baseline
	// requirements, 825 days for private CAs).
	maxServerValidity = 825 * 24 * time.Hour
	// backdate is how far before now a certificate starts to be valid: nodes without a battery-backed clock may run behind
	// the bootstrap host.
	backdate = time.Hour

	// CACertFile and CAKeyFile are the names LoadOrCreateCA uses in its directory.
	CACertFile = "ca.crt"
	CAKeyFile  = "ca.key"

	// unnamedEnd ends the key's name until the certificate is there.
	unnamedEnd = ".new"

	serialBits = 128 // RFC 5280 §4.1.2.2 allows 20 octets; 128 random bits never collide within one CA
)

// CAOptions says how a new CA looks. The zero value is a CA named "dayone bootstrap CA" that is valid for
// defaultCAValidity from now.
type CAOptions struct {
	// CommonName of the CA's subject.
	CommonName string
	// Validity from now on; 0 is defaultCAValidity.
	Validity time.Duration
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

func (o CAOptions) now() time.Time { return clock(o.Now) }

func clock(now func() time.Time) time.Time {
	if now == nil {
		return time.Now()
	}
	return now()
}

// CA signs server certificates. It is immutable and safe for concurrent use.
type CA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewCA makes an ECDSA P-256 CA in memory.
func NewCA(o CAOptions) (*CA, error) {
	if o.CommonName == "" {
		o.CommonName = "dayone bootstrap CA"
	}
	if o.Validity < 0 {
		return nil, fmt.Errorf("make CA: validity %s is negative", o.Validity)
	}
	if o.Validity == 0 {
		o.Validity = defaultCAValidity
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make CA key: %w", err)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	now := o.now()
	tmpl := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: o.CommonName},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(o.Validity),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make CA certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("make CA certificate: %w", err)
	}
	return &CA{cert: cert, key: key}, nil
}

// LoadOrCreateCA returns the CA of dir (ca.crt and ca.key) and makes it on the first call. A CA of which one file is
// missing, that does not parse or is out of its validity is an error, never replaced: nodes may already trust it. A
// call that was cut off by a kill or a power cut is no such damage: the key has its name last, so that nobody has seen
// a CA without one, and the next call ends the work.
func LoadOrCreateCA(dir string, o CAOptions) (*CA, error) {
	certFile, keyFile := filepath.Join(dir, CACertFile), filepath.Join(dir, CAKeyFile)
	unnamed := keyFile + unnamedEnd
	if exists(unnamed) && exists(certFile) && !exists(keyFile) {
		if err := os.Rename(unnamed, keyFile); err != nil {
			return nil, fmt.Errorf("finish making the CA: %w", err)
		}
	}
	ca, err := LoadCA(certFile, keyFile, o.Now)
	if err == nil {
		return ca, nil
	}
	if exists(certFile) || exists(keyFile) {
		return nil, fmt.Errorf("%w (restore both %s and %s, or remove both and distribute the new CA to all nodes)", err,
			certFile, keyFile)
	}
	if ca, err = NewCA(o); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make CA directory: %w", err)
	}
	if err := WriteKeyPair(ca.keyPair(), certFile, unnamed); err != nil {
		return nil, err
	}
	if err := os.Rename(unnamed, keyFile); err != nil {
		return nil, fmt.Errorf("write CA: %w", err)
	}
	return ca, nil
}

// exists says that there is something, or that nobody can tell.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, os.ErrNotExist)
}

// LoadCA reads a CA from PEM files and checks that it is a CA, that the key fits and that it is valid now. One file may
// have both.
func LoadCA(certFile, keyFile string, now func() time.Time) (*CA, error) {
	cert, err := os.ReadFile(certFile)
	if err != nil {
		return nil, fmt.Errorf("load CA: %w", err)
	}
	key, err := os.ReadFile(keyFile)
	if err != nil {
		return nil, fmt.Errorf("load CA: %w", err)
	}
	ca, err := ParseCA(cert, key)
	if err == nil {
		err = checkValidity(ca.cert, clock(now))
	}
	if err != nil {
		return nil, fmt.Errorf("load CA %s: %w", certFile, err)
	}
	return ca, nil
}

// ParseCA reads a CA from PEM, of which each part may have further blocks. It may be out of its validity.
func ParseCA(cert, key []byte) (*CA, error) {
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	private, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("the key is a %T, not ECDSA", pair.PrivateKey)
	}
	if !pair.Leaf.IsCA {
		return nil, errors.New("the certificate is not a CA (basicConstraints)")
	}
	return &CA{cert: pair.Leaf, key: private}, nil
}

// Certificate is the CA's certificate.
func (ca *CA) Certificate() *x509.Certificate { return ca.cert }

// CertificatePEM is the CA's certificate as clients install it.
func (ca *CA) CertificatePEM() []byte { return certPEM(ca.cert.Raw) }

// PEM is the CA's certificate and its key, in one text.
func (ca *CA) PEM() ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(ca.key)
	if err != nil {
		return nil, errors.New("encode the CA's key")
	}
	return append(certPEM(ca.cert.Raw), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})...), nil
}

// Pool holds only this CA.
func (ca *CA) Pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(ca.cert)
	return p
}

func (ca *CA) keyPair() tls.Certificate {
	return tls.Certificate{Certificate: [][]byte{ca.cert.Raw}, PrivateKey: ca.key, Leaf: ca.cert}
}

// ServerOptions says how a server certificate looks. The zero value is valid for defaultServerValidity from now, never
// beyond the CA.
type ServerOptions struct {
	// Validity from now on, at most maxServerValidity; 0 is defaultServerValidity.
	Validity time.Duration
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// ServerCertificate makes a server certificate for hosts: DNS names and IP addresses, the first is also the common
// name.
func (ca *CA) ServerCertificate(hosts []string, o ServerOptions) (tls.Certificate, error) {
	now := clock(o.Now)
	if o.Validity == 0 {
		o.Validity = defaultServerValidity
	}
	if o.Validity < 0 || o.Validity > maxServerValidity {
		return tls.Certificate{}, fmt.Errorf("make server certificate: validity %s is not within 0 and %s", o.Validity,
			maxServerValidity)
	}
	if err := checkValidity(ca.cert, now); err != nil {
		return tls.Certificate{}, fmt.Errorf("make server certificate: CA: %w", err)
	}
	serial, err := newSerial()
	if err != nil {
		return tls.Certificate{}, err
	}
	tmpl := &x509.Certificate{
		SerialNumber: serial, NotBefore: now.Add(-backdate), NotAfter: now.Add(o.Validity),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	if err := setHosts(tmpl, hosts); err != nil {
		return tls.Certificate{}, fmt.Errorf("make server certificate: %w", err)
	}
	if tmpl.NotAfter.After(ca.cert.NotAfter) {
		tmpl.NotAfter = ca.cert.NotAfter
	}
	if tmpl.NotBefore.Before(ca.cert.NotBefore) {
		tmpl.NotBefore = ca.cert.NotBefore
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make server key: %w", err)
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, ca.cert, key.Public(), ca.key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make server certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make server certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}

func setHosts(tmpl *x509.Certificate, hosts []string) error {
	seen := map[string]bool{}
	for _, h := range hosts {
		if seen[h] {
			continue
		}
		seen[h] = true
		if ip := net.ParseIP(h); ip != nil {
			tmpl.IPAddresses = append(tmpl.IPAddresses, ip)
			continue
		}
		if !validHost(h) {
			return fmt.Errorf("host %q is neither an IP address nor a DNS name (give it without port and brackets)", h)
		}
		tmpl.DNSNames = append(tmpl.DNSNames, h)
	}
	if len(seen) == 0 {
		return errors.New("hosts are empty: name every name and address that clients use")
	}
	tmpl.Subject = pkix.Name{CommonName: hosts[0]}
	if len(hosts[0]) > 64 { // ub-common-name of RFC 5280
		tmpl.Subject.CommonName = "dayone bootstrap service"
	}
	return nil
}

func validHost(h string) bool {
	if h == "" || len(h) > 253 {
		return false
	}
	label := 0
	for i := range len(h) {
		c := h[i]
		switch {
		case c == '.':
			if label == 0 {
				return false
			}
			label = 0
			continue
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_':
		case c == '-' && label > 0:
		case c == '*' && i == 0 && len(h) > 2 && h[1] == '.':
		default:
			return false
		}
		if label++; label > 63 {
			return false
		}
	}
	return label > 0
}

func newSerial() (*big.Int, error) {
	limit := new(big.Int).Lsh(big.NewInt(1), serialBits)
	n, err := rand.Int(rand.Reader, limit)
	if err != nil {
		return nil, fmt.Errorf("make certificate serial: %w", err)
	}
	return n.Add(n, big.NewInt(1)), nil
}

func certPEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
