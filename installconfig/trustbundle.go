package installconfig

import (
	"crypto/x509"
	"encoding/pem"
	"strings"

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
	rest := []byte(n.Value)
	for len(strings.TrimSpace(string(rest))) > 0 {
		block, after := pem.Decode(rest)
		if block == nil {
			rep.Errorf(at, "the bundle holds text that is no PEM")
			return
		}
		if block.Type != "CERTIFICATE" {
			rep.Errorf(at, "the bundle holds a block of the type %s", block.Type)
			return
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			rep.Errorf(at, "the bundle holds a block that is no certificate: %v", err)
			return
		}
		rest = after
	}
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
