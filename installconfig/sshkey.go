package installconfig

import (
	"regexp"

	"golang.org/x/crypto/ssh"

	"dayone.dev/dayone/installconfig/report"
)

// fipsKey are the types of SSH keys that a node in FIPS mode accepts (openshift/installer, pkg/types/validation).
var fipsKey = regexp.MustCompile(`^(ssh-rsa|ecdsa-sha2-nistp[0-9]{3})$`)

// SSHKey reads a line of authorized_keys.
func SSHKey(line string) (ssh.PublicKey, error) {
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line))
	return key, err
}

// sshKey refuses a key that openshift-install would refuse, too, which parses the field as lines of authorized_keys.
// Nobody could log in to a node whose key is none.
func sshKey(f installerFile, rep *report.Report) {
	at := f.at(f.node("sshKey"), "sshKey", "ssh-key",
		"write the content of a public key file, for example ~/.ssh/id_ed25519.pub")
	for _, line := range lines(f.text("sshKey")) {
		key, err := SSHKey(line)
		if err != nil {
			rep.Errorf(at, "the value is no public SSH key: %v", err)
			return
		}
		if f.text("fips") == "true" && !fipsKey.MatchString(key.Type()) {
			at.Next = "write an RSA or ECDSA key, or remove fips: true"
			rep.Errorf(at, "a node in FIPS mode takes no key of the type %s", key.Type())
			return
		}
	}
}
