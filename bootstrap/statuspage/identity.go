package statuspage

import (
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"

	"dayone.dev/dayone/registry/certs"
)

// TokenFile is the token's name in the directory of the identity; mode 0600. Log bundles hold no content of *.token
// files.
const TokenFile = "status.token"

// Identity is how the page proves who it is, and how clients prove that they may read it.
type Identity struct {
	Certificate tls.Certificate
	Token       string
}

// tokenBytes make a token that cannot be guessed.
const tokenBytes = 32

// LoadIdentity reads the CA in a bootstrap's identity directory, makes a certificate for this host's addresses and the
// names, and reads the token in a file of that directory or makes one.
func LoadIdentity(dir, tokenFile string, names ...string) (*Identity, error) {
	ca, err := certs.LoadCA(filepath.Join(dir, certs.CACertFile), filepath.Join(dir, certs.CAKeyFile), nil)
	if err != nil {
		return nil, err
	}
	hosts := []string{"localhost", "127.0.0.1"}
	for _, n := range names {
		if n != "" {
			hosts = append(hosts, n)
		}
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list this host's addresses: %w", err)
	}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			hosts = append(hosts, n.IP.String())
		}
	}
	certificate, err := ca.ServerCertificate(hosts, certs.ServerOptions{})
	if err != nil {
		return nil, err
	}
	token, err := loadToken(filepath.Join(dir, tokenFile))
	return &Identity{Certificate: certificate, Token: token}, err
}

func loadToken(file string) (string, error) {
	raw, err := os.ReadFile(file)
	if text := strings.TrimSpace(string(raw)); err == nil && text != "" {
		return text, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read token: %w", err)
	}
	random := make([]byte, tokenBytes)
	_, _ = rand.Read(random) // never fails (crypto/rand)
	token := base64.RawURLEncoding.EncodeToString(random)
	if err := renameio.WriteFile(file, []byte(token), 0o600); err != nil {
		return "", fmt.Errorf("write token: %w", err)
	}
	return token, nil
}
