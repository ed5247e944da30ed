package installconfig

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"

	"dayone.dev/dayone/installconfig/report"
)

// Values of additionalTrustBundlePolicy.
const (
	trustProxyOnly = "Proxyonly" // the installer's default
	trustAlways    = "Always"
)

// trustBundle refuses a bundle with anything but certificates in it: a node's tools would skip it in silence.
func trustBundle(f installerFile, rep *report.Report) {
	if n := f.node("additionalTrustBundlePolicy"); n != nil && n.Value != "" && n.Value != trustProxyOnly &&
		n.Value != trustAlways {
		rep.Errorf(f.at(n, "additionalTrustBundlePolicy", "trust-bundle-policy", "write Always or Proxyonly"),
			"unknown policy %q", n.Value)
	}
	n := f.node("additionalTrustBundle")
	if n == nil || n.Value == "" {
		return
	}
	at := f.at(n, "additionalTrustBundle", "trust-bundle",
		"give certificates in PEM form, with a pipe (|) after the key and each line indented")
	if err := CheckCertificates([]byte(n.Value)); err != nil {
		rep.Errorf(at, "the bundle holds %v", err)
	}
}

// CheckCertificates says what a PEM bundle holds that is no certificate; nil where it holds certificates only.
func CheckCertificates(rest []byte) error {
	for len(bytes.TrimSpace(rest)) > 0 {
		block, after := pem.Decode(rest)
		if block == nil {
			return errors.New("text that is no PEM")
		}
		if block.Type != "CERTIFICATE" {
			return fmt.Errorf("a block of the type %s", block.Type)
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return fmt.Errorf("a block that is no certificate: %w", err)
		}
		rest = after
	}
	return nil
}

// trusts says whether the policy gives the bundle to the nodes.
func trusts(f installerFile) bool {
	return f.text("additionalTrustBundlePolicy") == trustAlways || f.text("proxy", "httpProxy") != "" ||
		f.text("proxy", "httpsProxy") != ""
}

// idleBundle warns of a bundle that reaches no node: the policy's default surprises.
func idleBundle(f installerFile, rep *report.Report) {
	if n := f.node("additionalTrustBundle"); n != nil && n.Value != "" && !trusts(f) {
		rep.Warnf(f.at(n, "additionalTrustBundle", "trust-bundle-unused",
			"write additionalTrustBundlePolicy: Always if nodes and builds are to trust it"),
			"no node trusts the bundle: the policy %s wants a proxy, and there is none", trustProxyOnly)
	}
}
