package trustfiles

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"path"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/nodedisk"
)

// Set is what a cluster wants on each of its nodes.
type Set struct {
	// Certificates by path.
	Certificates map[string][]byte
	// PullSecret is for the cluster's own registry, in the form of containers-auth.json or of .dockercfg; empty: there is
	// none.
	PullSecret []byte
	// Refused says what was left out, and why.
	Refused []string
}

// Of reads a ControllerConfig. What holds no certificate never replaces one that a node has.
func Of(c *mcfgv1.ControllerConfig) Set {
	s := Set{Certificates: map[string][]byte{}, PullSecret: c.Spec.InternalRegistryPullSecret}
	_, standalone := c.Annotations[manifests.AnnotationStandalone]
	add := func(field, at string, data []byte) {
		switch {
		case len(data) == 0:
		case hasCertificate(data):
			s.Certificates[at] = data
		case !standalone: // there the required fields hold a remark
			s.Refused = append(s.Refused, fmt.Sprintf("%s holds no certificate: what the node has stays", field))
		}
	}
	add("kubeAPIServerServingCAData", nodedisk.KubeletCA, c.Spec.KubeAPIServerServingCAData)
	add("cloudProviderCAData", nodedisk.CloudCA, c.Spec.CloudProviderCAData)
	// The user's come last and count where both name a registry.
	s.registries("imageRegistryBundleData", c.Spec.ImageRegistryBundleData, add)
	s.registries("imageRegistryBundleUserData", c.Spec.ImageRegistryBundleUserData, add)
	return s
}

func (s *Set) registries(field string, bundles []mcfgv1.ImageRegistryBundle, add func(field, at string, data []byte)) {
	for _, b := range bundles {
		// The key is a host; ".." stands for the colon before its port.
		host := strings.ReplaceAll(b.File, "..", ":")
		if host == "" || host == "." || strings.ContainsAny(host, "/\x00") {
			s.Refused = append(s.Refused, fmt.Sprintf("%s: %q is no registry's host", field, b.File))
			continue
		}
		add(field+" "+b.File, path.Join(nodedisk.RegistryCerts, host, "ca.crt"), b.Data)
	}
}

// hasCertificate tells whether there is one in a bundle.
func hasCertificate(bundle []byte) bool {
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		if _, err := x509.ParseCertificate(block.Bytes); block.Type == "CERTIFICATE" && err == nil {
			return true
		}
	}
	return false
}
