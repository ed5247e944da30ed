package registry

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"dayone.dev/dayone/registry/certs"
)

const (
	serverCertFile = "server.crt"
	serverKeyFile  = "server.key"
)

// CAFile is the CA certificate that clients trust when the server made its own certificate.
func (o Options) CAFile() string { return filepath.Join(o.withDefaults().TLSDir, certs.CACertFile) }

// CertificateFiles are the server certificate and its key as files: the configured ones, or those that the server makes
// and renews in place.
func (o Options) CertificateFiles() (cert, key string) {
	if o.CertFile != "" {
		return o.CertFile, o.KeyFile
	}
	dir := o.withDefaults().TLSDir
	return filepath.Join(dir, serverCertFile), filepath.Join(dir, serverKeyFile)
}

// certificateSources are the files that a new certificate comes of: the configured ones, or the CA's.
func (o Options) certificateSources() []string {
	if o.CertFile != "" {
		return []string{o.CertFile, o.KeyFile}
	}
	dir := o.withDefaults().TLSDir
	return []string{o.NodeCAFile, filepath.Join(dir, certs.CACertFile), filepath.Join(dir, certs.CAKeyFile)}
}

// authority is the CA that signs the server's certificate.
func (o Options) authority() (*certs.CA, error) {
	if o.NodeCAFile == "" {
		return certs.LoadOrCreateCA(o.TLSDir, certs.CAOptions{})
	}
	if _, err := os.Stat(o.NodeCAFile); err == nil {
		return certs.LoadCA(o.NodeCAFile, o.NodeCAFile, nil)
	}
	return certs.LoadCA(filepath.Join(o.TLSDir, certs.CACertFile), filepath.Join(o.TLSDir, certs.CAKeyFile), nil)
}

// ReloadCertificate reads the certificate again, or renews one that was made here and has little time left. New
// connections get it, kept ones go on with theirs. A certificate that no client would accept is refused and changes
// nothing.
func (s *Server) ReloadCertificate() error {
	if s.o.InsecureHTTP {
		return nil
	}
	pair, err := s.o.serverCertificate(time.Now())
	if err != nil {
		return err
	}
	s.pair.Store(&pair)
	return nil
}

// tlsConfig asks for the certificate at each handshake. HTTP/2 would share one connection among all layers of a client:
// HTTP/1.1 is faster here. Small records at a connection's start do not help clients that pull layers.
func (s *Server) tlsConfig() *tls.Config {
	return &tls.Config{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.pair.Load(), nil },
		MinVersion:     tls.VersionTLS12, NextProtos: []string{"http/1.1"}, DynamicRecordSizingDisabled: true,
	}
}

// renewBefore is the remaining validity below which a certificate that was made here is made anew.
const renewBefore = 30 * 24 * time.Hour

// RenewalPoll is how often a running server's owner is to call ReloadCertificate: often enough within renewBefore.
const RenewalPoll = 24 * time.Hour

// clockPoll is how often a running server looks whether its certificate fits its clock.
const clockPoll = 10 * time.Second

// outdated: a certificate was made here, and the clock has been set since so that no client takes it.
func (s *Server) outdated() bool {
	pair := s.pair.Load()
	return pair != nil && s.o.CertFile == "" && s.o.Certificate == nil && certs.CheckServer(*pair, time.Now()) != nil
}

// serverCertificate finds or makes the certificate and refuses one that no client would accept now.
func (o Options) serverCertificate(now time.Time) (tls.Certificate, error) {
	if o.Certificate != nil {
		if err := certs.CheckServer(*o.Certificate, now); err != nil {
			return tls.Certificate{}, fmt.Errorf("use server certificate: %w", err)
		}
		return *o.Certificate, nil
	}
	if o.CertFile != "" {
		return certs.LoadServer(o.CertFile, o.KeyFile, now)
	}
	ca, err := o.authority()
	if err != nil {
		return tls.Certificate{}, err
	}
	hosts := o.hosts()
	crt, key := o.CertificateFiles()
	if pair, err := certs.LoadServer(crt, key, now.Add(renewBefore)); err == nil && certs.CheckServer(pair, now) == nil &&
		covers(pair, hosts) && pair.Leaf.CheckSignatureFrom(ca.Certificate()) == nil {
		return pair, nil
	}
	pair, err := ca.ServerCertificate(hosts, certs.ServerOptions{})
	if err != nil {
		return tls.Certificate{}, err
	}
	return pair, certs.WriteKeyPair(pair, crt, key)
}

func covers(pair tls.Certificate, hosts []string) bool {
	for _, h := range hosts {
		if pair.Leaf.VerifyHostname(h) != nil {
			return false
		}
	}
	return true
}

// hosts are the names of the certificate made here. A wildcard address stands for every address of the host.
func (o Options) hosts() []string {
	hosts := append([]string{}, o.Hosts...)
	host, _, err := net.SplitHostPort(o.Listen)
	ip := net.ParseIP(host)
	switch {
	case err != nil || host == "" || ip != nil && ip.IsUnspecified():
		addrs, err := net.InterfaceAddrs()
		if err != nil { // a certificate with fewer names still serves the clients that use those
			break
		}
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok && !n.IP.IsLinkLocalUnicast() {
				hosts = append(hosts, n.IP.String())
			}
		}
		if name, err := os.Hostname(); err == nil {
			hosts = append(hosts, name)
		}
	default:
		hosts = append(hosts, host)
	}
	return append(hosts, "localhost", "127.0.0.1", "::1")
}

// Addresses are the HOST:PORT forms under which clients reach the server, as its own certificate names them.
func (o Options) Addresses() []string {
	_, port, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return nil
	}
	var out []string
	for _, h := range o.hosts() {
		if a := net.JoinHostPort(h, port); !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}
