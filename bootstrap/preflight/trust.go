package preflight

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
)

// Where a cluster keeps the CAs that its users bring (openshift/api config/v1, Image and Proxy).
const (
	userNamespace = "openshift-config"
	userBundle    = "user-ca-bundle"
	bundleKey     = "ca-bundle.crt"
)

// trust refuses ConfigMaps of CAs that hold anything but certificates: nodes and builds would skip it in silence.
func trust(_ *directory, in *Input, rep *report.Report) {
	for _, c := range in.Set.ConfigMaps {
		all := c.Object.Namespace == userNamespace && (c.Object.Name == userBundle || trustedByImages(in.Set, c.Object.Name))
		for _, key := range slices.Sorted(maps.Keys(c.Object.Data)) {
			if !all && key != bundleKey {
				continue
			}
			text := c.Object.Data[key]
			err := installconfig.CheckCertificates([]byte(text))
			if err == nil && text == "" {
				err = errors.New("nothing")
			}
			if err != nil {
				at := c.Origin.At("data["+key+"]", "trust-bundle")
				at.Next = "give certificates in PEM form, with a pipe (|) after the key and each line indented"
				rep.Errorf(at, "ConfigMap %q is for CAs and holds %v", c.Object.Name, err)
			}
		}
	}
	missingTrust(in, rep)
}

// missingTrust warns of a ConfigMap of CAs that the cluster's image settings name and the install directory lacks.
func missingTrust(in *Input, rep *report.Report) {
	for _, image := range in.Set.Images {
		name := image.Object.Spec.AdditionalTrustedCA.Name
		if name != "" && !slices.ContainsFunc(in.Set.ConfigMaps, func(c manifests.Item[*corev1.ConfigMap]) bool {
			return c.Object.Name == name && c.Object.Namespace == userNamespace
		}) {
			at := image.Origin.At("spec.additionalTrustedCA.name", "trust-bundle-missing")
			at.Next = "add the ConfigMap to openshift/, in the namespace " + userNamespace
			rep.Warnf(at, "no ConfigMap %q is in the install directory: nodes trust no CA of it", name)
		}
	}
}

// trustedByImages says that the cluster's image settings name a ConfigMap of CAs.
func trustedByImages(set *manifests.Set, name string) bool {
	for _, image := range set.Images {
		if image.Object.Spec.AdditionalTrustedCA.Name == name {
			return true
		}
	}
	return false
}

// sshKeys warns of keys in MachineConfigs with which nobody can log in. It is no refusal: a node's SSH server may know
// types of keys that this program does not.
func sshKeys(d *directory, in *Input, rep *report.Report) {
	for _, item := range in.Set.MachineConfigs {
		config, err := d.ignition(item)
		if err != nil {
			continue // invalidIgnition refuses it
		}
		for i, user := range config.Passwd.Users {
			for j, key := range user.SSHAuthorizedKeys {
				if _, err := installconfig.SSHKey(string(key)); err != nil {
					at := item.Origin.At(fmt.Sprintf("spec.config.passwd.users[%d].sshAuthorizedKeys[%d]", i, j), "ssh-key")
					at.Next = "write the content of a public key file, for example ~/.ssh/id_ed25519.pub"
					rep.Warnf(at, "the value is no public SSH key: %v", err)
				}
			}
		}
	}
}
