package disruption

import (
	"path"

	"dayone.dev/dayone/manifests/nodesettings"
	"dayone.dev/dayone/rebase/nodedisk"
)

// sharedByRegistries is the directory of dayone-registry's accounts and CA on control-plane nodes.
const sharedByRegistries = "/etc/dayone/registry"

// keptByAgent says why a change of a certificate or of the pull secret disturbs nothing; empty: the file is none of
// those that the agent keeps.
func keptByAgent(file string) string {
	switch {
	case file == nodedisk.KubeletCA, file == nodedisk.CloudCA:
		return "the agent keeps this certificate as the ControllerConfig says, without a restart; it is read anew"
	case file == nodesettings.PullSecretPath:
		return "the agent merges the pull secret into what the next pull reads"
	case path.Base(file) == "ca.crt" && path.Dir(path.Dir(file)) == nodedisk.RegistryCerts:
		return "a registry's certificate: every pull reads it anew"
	case path.Dir(file) == sharedByRegistries:
		return "dayone-registry reads accounts and certificates anew by itself"
	}
	return ""
}
