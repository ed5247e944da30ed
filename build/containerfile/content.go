package containerfile

import (
	"path"
	"regexp"
	"strings"
)

// below reports whether p is dir or lies in it.
func below(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

// destination checks where files of the final stage go.
func (l *linter) destination(in Instruction) {
	dest := path.Clean("/" + in.Args[len(in.Args)-1])
	for _, dir := range []string{"/var", "/opt", "/home", "/root", "/srv", "/mnt", "/run", "/tmp", "/boot"} {
		if below(dest, dir) {
			l.refuse(in.Line, "machine-directory", "put the file below /usr or /etc; make files in /var with tmpfiles.d",
				"%s belongs to the machine: what an image has there does not reach a node", dest)
			return
		}
	}
	switch dest {
	case "/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow", "/etc/subuid", "/etc/subgid":
		l.refuse(in.Line, "account-file", "write a file in /usr/lib/sysusers.d",
			"%s is changed by every machine: an image's never arrives", dest)
	}
	if below(dest, "/etc/systemd/system-preset") || below(dest, "/usr/lib/systemd/system-preset") {
		l.warn(in.Line, "preset", "make the link in /etc/systemd/system/TARGET.wants (RUN systemctl enable)",
			"presets are applied on a machine's first boot only: a unit that a later image brings stays disabled")
	}
}

// Patterns of commands in RUN.
var (
	accountCommand = regexp.MustCompile(
		`(^|[\s;&|(])(useradd|usermod|userdel|adduser|groupadd|groupmod|addgroup|chpasswd|passwd)(\s|$)`)
	presetCommand  = regexp.MustCompile(`systemctl\s+(--\S+\s+)*preset`)
	packageCommand = regexp.MustCompile(
		`(^|[\s;&|(])(rpm-ostree\s+(install|override)|(micro)?dnf\s|yum\s|apt-get\s+(\S+\s+)*install|zypper\s)`)
	tidied = regexp.MustCompile(`ostree container commit|bootc container lint|rm\s+-\S*r\S*\s+[^;&|]*/var/`)
	// machineWrite finds commands that write below /var or /opt; what package managers and caches do there is left out.
	machineWrite = regexp.MustCompile(
		`(?:>\s*|\b(?:mkdir|cp|mv|install|touch|tee|tar|unzip|ln)\b[^;&|\n]*\s)(/(?:var|opt|home|root|srv)/[^\s;&|]*)`)
	throwAway = regexp.MustCompile(`^/var/(cache|tmp|log|lib/(apt|dnf|rpm|yum))(/|$)`)
)

// running gives advice about commands; it cannot know what they do, so it only warns.
func (l *linter) running(in Instruction) {
	text := strings.Join(append([]string{strings.Join(in.Args, " ")}, in.Heredocs...), "\n")
	if accountCommand.MatchString(text) {
		l.warn(in.Line, "account-command", "write a file in /usr/lib/sysusers.d",
			"the command changes account files, which every machine changes itself: the change never arrives")
	}
	if presetCommand.MatchString(text) {
		l.warn(in.Line, "preset", "use systemctl enable", "presets are applied on a machine's first boot only")
	}
	if packageCommand.MatchString(text) && !tidied.MatchString(text) {
		l.warn(in.Line, "container-commit", "end the RUN with && ostree container commit, or remove caches below /var",
			"package managers leave files in /var and /run, which do not belong into an image")
	}
	for _, m := range machineWrite.FindAllStringSubmatch(text, -1) {
		if !throwAway.MatchString(m[1]) {
			l.warn(in.Line, "machine-directory", "write below /usr, or use tmpfiles.d",
				"%s belongs to the machine: what an image has there does not reach a node", m[1])
		}
	}
}
