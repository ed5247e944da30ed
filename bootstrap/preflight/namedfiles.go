package preflight

import (
	"crypto/x509"
	"fmt"
	"strings"

	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/registry/imagepolicy"
)

// signaturePolicy checks the policy here: a node would find its faults only when it is to boot its image.
func signaturePolicy(d *directory, in *Input, rep *report.Report) {
	name := in.Sidecar.Config.SignaturePolicyFile
	if name == "" {
		return
	}
	at := report.Finding{File: installconfig.FileName, Path: installconfig.Field + ".signaturePolicyFile",
		Rule: "unreadable", Next: "the path is relative to the install directory"}
	if raw, err := d.file(name); err != nil {
		rep.Errorf(at, "the signature policy cannot be read: %v", err)
	} else if err := imagepolicy.Check(raw); err != nil {
		at.Rule, at.Next = "signature-policy", "write it as containers-policy.json(5) says"
		rep.Errorf(at, "%s: %v", name, err)
	}
}

// registryCA checks the CA of the final registry: without it the hand-over would fail when the masters are up.
func registryCA(d *directory, in *Input, rep *report.Report) {
	name := in.Sidecar.Config.Registry.CAFile
	if name == "" {
		return
	}
	at := report.Finding{File: installconfig.FileName, Path: installconfig.Field + ".registry.caFile", Rule: "unreadable",
		Next: "the path is relative to the install directory"}
	if raw, err := d.file(name); err != nil {
		rep.Errorf(at, "the CA of the final registry cannot be read: %v", err)
	} else if !x509.NewCertPool().AppendCertsFromPEM(raw) {
		at.Rule, at.Next = "registry-ca", "give certificates in PEM form"
		rep.Errorf(at, "%s holds no certificate", name)
	}
}

// LogSpool is what the files say that installconfig.LogSpool names.
type LogSpool struct {
	// CA is PEM; nil: the host's CAs.
	CA    []byte
	Token string
}

// maxToken bounds a token, in bytes: it goes into a header.
const maxToken = 4 << 10

// ReadLogSpool reads the files below an install directory; nil where no log spool is configured. Errors are findings.
func ReadLogSpool(dir string, s installconfig.LogSpool) (*LogSpool, error) {
	return parseLogSpool(s, func(name string) ([]byte, error) { return readInside(dir, name) })
}

// resolveLogSpool reports errors here: on the bootstrap host the files would be missed only when they are needed.
func resolveLogSpool(d *directory, rep *report.Report) *LogSpool {
	s, err := parseLogSpool(d.sidecar.Config.LogSpool, d.file)
	rep.Add(report.Of(err)...)
	return s
}

func parseLogSpool(s installconfig.LogSpool, read func(name string) ([]byte, error)) (*LogSpool, error) {
	if s.URL == "" {
		return nil, nil
	}
	out := &LogSpool{}
	bad := func(key, rule, next string, err error) error {
		return report.Finding{File: installconfig.FileName, Path: installconfig.Field + ".logSpool." + key, Rule: rule,
			Next: next, Message: err.Error()}
	}
	const where = "the path is relative to the install directory; dayone gather --receive makes the file"
	raw, err := read(s.TokenFile)
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
	if out.CA, err = read(s.CAFile); err != nil {
		return nil, bad("caFile", "unreadable", where, fmt.Errorf("the CA of the log spool cannot be read: %w", err))
	}
	if !x509.NewCertPool().AppendCertsFromPEM(out.CA) {
		return nil, bad("caFile", "log-spool-ca", "give certificates in PEM form",
			fmt.Errorf("%s holds no certificate", s.CAFile))
	}
	return out, nil
}
