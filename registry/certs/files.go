package certs

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/google/renameio/v2"
)

// clockSkewHint is the distance below which a certificate that is not valid yet is taken for a wrong clock.
const clockSkewHint = 48 * time.Hour

// ValidityError says that a certificate is outside its validity. errors.As finds it through wrapping.
type ValidityError struct {
	Subject             string
	NotBefore, NotAfter time.Time
	Now                 time.Time
}

func (e *ValidityError) Error() string {
	now := e.Now.UTC().Format(time.RFC3339)
	if e.Now.Before(e.NotBefore) {
		early := e.NotBefore.Sub(e.Now).Round(time.Second)
		msg := fmt.Sprintf("certificate %q is not valid before %s and this host's clock says %s (%s earlier)",
			e.Subject, e.NotBefore.UTC().Format(time.RFC3339), now, early)
		if early < clockSkewHint {
			return msg + ": set the clock (chronyc makestep) or wait"
		}
		return msg + ": set the clock or make a new certificate"
	}
	return fmt.Sprintf("certificate %q expired at %s and this host's clock says %s: set the clock if it is wrong, "+
		"else make a new certificate", e.Subject, e.NotAfter.UTC().Format(time.RFC3339), now)
}

// checkValidity returns a *ValidityError when now is outside the certificate's validity.
func checkValidity(cert *x509.Certificate, now time.Time) error {
	if now.Before(cert.NotBefore) || now.After(cert.NotAfter) {
		return &ValidityError{Subject: cert.Subject.CommonName, NotBefore: cert.NotBefore, NotAfter: cert.NotAfter, Now: now}
	}
	return nil
}

// MadeAt is when the first certificate of a file was made that this package has made.
func MadeAt(certFile string) (time.Time, error) {
	raw, err := os.ReadFile(certFile)
	if err != nil {
		return time.Time{}, fmt.Errorf("read certificate: %w", err)
	}
	block, _ := pem.Decode(raw)
	if block == nil {
		return time.Time{}, fmt.Errorf("read certificate %s: it holds no PEM", certFile)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}, fmt.Errorf("read certificate %s: %w", certFile, err)
	}
	return cert.NotBefore.Add(backdate), nil
}

// LoadServer reads a server certificate and key and checks that it is valid now and may serve TLS.
func LoadServer(certFile, keyFile string, now time.Time) (tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("load server certificate: %w", err)
	}
	if err := CheckServer(pair, now); err != nil {
		return tls.Certificate{}, fmt.Errorf("load server certificate %s: %w", certFile, err)
	}
	return pair, nil
}

// CheckServer checks that a certificate is valid now and names hosts: clients read only subject alternative names.
func CheckServer(pair tls.Certificate, now time.Time) error {
	if len(pair.Certificate) == 0 || pair.PrivateKey == nil {
		return errors.New("certificate or key is missing")
	}
	leaf := pair.Leaf
	if leaf == nil {
		var err error
		if leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
			return fmt.Errorf("parse certificate: %w", err)
		}
	}
	if len(leaf.DNSNames)+len(leaf.IPAddresses) == 0 {
		return fmt.Errorf(
			"certificate %q has no subject alternative name: make one with the names and addresses that clients use",
			leaf.Subject.CommonName)
	}
	return checkValidity(leaf, now)
}

// WriteKeyPair writes a certificate (0644) and its key (0600) as PEM. Each file appears whole or not at all; the key is
// written first, so that a certificate on disk always has its key.
func WriteKeyPair(pair tls.Certificate, certFile, keyFile string) error {
	der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		return fmt.Errorf("write key %s: %w", keyFile, err)
	}
	key := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	var chain []byte
	for _, c := range pair.Certificate {
		chain = append(chain, certPEM(c)...)
	}
	if err := renameio.WriteFile(keyFile, key, 0o600, renameio.IgnoreUmask()); err != nil {
		return fmt.Errorf("write key: %w", err)
	}
	if err := renameio.WriteFile(certFile, chain, 0o644, renameio.IgnoreUmask()); err != nil {
		return fmt.Errorf("write certificate: %w", err)
	}
	return nil
}
