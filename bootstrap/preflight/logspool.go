package preflight

import (
	"crypto/x509"
	"fmt"
	"strings"

	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
)

// LogSpool is what the files say that installconfig.LogSpool names.
type LogSpool struct {
	// CA is PEM; nil: the host's authorities.
	CA    []byte
	Token string
}

// maxToken bounds a token, in bytes: it goes into a header.
const maxToken = 4 << 10

// ReadLogSpool reads the files below an install directory; nil where nothing is to be kept elsewhere. Errors are
// findings.
func ReadLogSpool(dir string, s installconfig.LogSpool) (*LogSpool, error) {
	if s.URL == "" {
		return nil, nil
	}
	out := &LogSpool{}
	bad := func(key, rule, next string, err error) error {
		return report.Finding{File: installconfig.FileName, Path: installconfig.Field + ".logSpool." + key, Rule: rule,
			Next: next, Message: err.Error()}
	}
	const where = "the path is relative to the install directory; dayone gather --receive makes the file"
	raw, err := readInside(dir, s.TokenFile)
	if err != nil {
		return nil, bad("tokenFile", "unreadable", where, fmt.Errorf("the token cannot be read: %w", err))
	}
	out.Token = strings.TrimSpace(string(raw))
	if out.Token == "" || len(out.Token) > maxToken ||
		strings.ContainsFunc(out.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, bad("tokenFile", "log-spool-token", "give one line of at most 4096 letters, digits and signs",
			fmt.Errorf("%s holds no token", s.TokenFile))
	}
	if s.CAFile == "" {
		return out, nil
	}
	if out.CA, err = readInside(dir, s.CAFile); err != nil {
		return nil, bad("caFile", "unreadable", where, fmt.Errorf("the authority of the log spool cannot be read: %w", err))
	}
	if !x509.NewCertPool().AppendCertsFromPEM(out.CA) {
		return nil, bad("caFile", "log-spool-ca", "give certificates in PEM form",
			fmt.Errorf("%s holds no certificate", s.CAFile))
	}
	return out, nil
}

// logSpool reads the files here: on the bootstrap host nobody would see that they are missing until they are needed.
func (c *checker) logSpool() {
	s, err := ReadLogSpool(c.dir, c.in.Sidecar.Config.LogSpool)
	c.rep.Add(report.Of(err)...)
	c.in.LogSpool = s
}
