package installconfig

import (
	"regexp"

	"go.yaml.in/yaml/v3"
	"golang.org/x/crypto/ssh"

	"dayone.dev/dayone/installconfig/report"
)

// fipsKey are the types of SSH keys that a node in FIPS mode accepts (openshift/installer, pkg/types/validation).
var fipsKey = regexp.MustCompile(`^(ssh-rsa|ecdsa-sha2-nistp[0-9]{3})$`)

// validateSSHKey refuses a key that openshift-install would refuse, too: it parses the field as one line of
// authorized_keys. Nobody could log in to a node whose key is none.
func validateSSHKey(root *yaml.Node, rep *report.Report) {
	n := child(root, "sshKey")
	if n == nil || n.Value == "" {
		return
	}
	at := report.Finding{File: FileName, Line: n.Line, Column: n.Column, Path: "sshKey", Rule: "ssh-key",
		Next: "write the content of a public key file, for example ~/.ssh/id_ed25519.pub"}
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(n.Value))
	if err != nil {
		rep.Errorf(at, "the value is no public SSH key: %v", err)
		return
	}
	if fips := child(root, "fips"); fips != nil && fips.Value == "true" && !fipsKey.MatchString(key.Type()) {
		at.Next = "write an RSA or ECDSA key, or remove fips: true"
		rep.Errorf(at, "a node in FIPS mode takes no key of the type %s", key.Type())
	}
}
