package controlplane

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

const (
	// validity outlives every test and a cluster that somebody keeps for a while.
	validity = 90 * 24 * time.Hour
	// backdate is room for a clock that is set back meanwhile.
	backdate = 24 * time.Hour
)

// authority signs all certificates of one control plane.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// pair is a certificate and its key in PEM.
type pair struct{ cert, key []byte }

func newAuthority() (*authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	cert, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: "dayone test cluster", NotBefore: time.Now().
		Add(-backdate)}, key)
	if err != nil {
		return nil, fmt.Errorf("sign authority: %w", err)
	}
	return &authority{cert: cert, key: key}, nil
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	return key, nil
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: a.cert.Raw})
}

// client makes credentials: Kubernetes takes the common name for the user and the organization for the groups.
func (a *authority) client(user string, groups ...string) (pair, error) {
	return a.sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// server makes a serving certificate for names and addresses.
func (a *authority) server(hosts ...string) (pair, error) {
	c := &x509.Certificate{Subject: pkix.Name{CommonName: hosts[0]},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, h)
		}
	}
	return a.sign(c)
}

func (a *authority) sign(c *x509.Certificate) (pair, error) {
	key, err := newKey()
	if err != nil {
		return pair{}, err
	}
	if c.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return pair{}, fmt.Errorf("make serial number: %w", err)
	}
	c.NotBefore, c.NotAfter = time.Now().Add(-backdate), time.Now().Add(validity)
	c.KeyUsage = x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, key.Public(), a.key)
	if err != nil {
		return pair{}, fmt.Errorf("sign certificate of %s: %w", c.Subject.CommonName, err)
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return pair{}, err
	}
	return pair{cert: pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: der}), key: keyPEM}, nil
}

// write puts the pair into NAME.crt and NAME.key.
func (p pair) write(path string) error {
	if err := os.WriteFile(path+".crt", p.cert, 0o600); err != nil {
		return err
	}
	return os.WriteFile(path+".key", p.key, 0o600)
}
