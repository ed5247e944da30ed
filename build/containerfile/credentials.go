package containerfile

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// Patterns of secrets. Findings never quote them.
var (
	privateKey = regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----`)
	knownToken = regexp.MustCompile(
		`\b(AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{36,}|glpat-[A-Za-z0-9_-]{20,}|xox[abpr]-[A-Za-z0-9-]{10,}|` +
			`sha256~[A-Za-z0-9_-]{43})\b`)
	pullSecret = regexp.MustCompile(`"auth"\s*:\s*"[A-Za-z0-9+/=]{8,}"`)
	// urlPassword has user and password before the host; what a variable or command gives is no literal.
	urlPassword = regexp.MustCompile("(?i)\\b[a-z][a-z0-9+.-]*://([^/\\s:@$`\"']+):([^/\\s@$`\"']+)@")
	netrc       = regexp.MustCompile("\\bmachine\\s+\\S+\\s+login\\s+\\S+\\s+password\\s+([^\\s\"'$`]+)")
	// secretName is a variable or key with a literal value.
	secretName = regexp.MustCompile("(?i)([a-z0-9_.-]*(?:password|passwd|secret|token|api[_-]?key|access[_-]?key|" +
		"private[_-]?key)[a-z0-9_]*)\\s*=\\s*[\"']?([^\\s\"'$`]{4,})")
	// secretOption is an option whose value follows.
	secretOption = regexp.MustCompile(`(?i)^--?[a-z0-9-]*(?:password|passwd|secret|token|api-?key|access-?key)$`)
	// authorization is a header that carries a credential.
	authorization = regexp.MustCompile(
		`(?i)^(authorization|proxy-authorization|x-[a-z-]*(?:token|key)|private-token)\s*:\s*` +
			`(?:(?:basic|bearer|token)\s+)?(\S+)`)
	placeholder = regexp.MustCompile(`(?i)^(x+|\*+|redacted|true|false|none|null|required|optional)$`)
)

// credentials refuses what is surely a secret and warns of what looks like one: everything in a Containerfile is in the
// image's history for whoever can pull it. Values that come from a variable, a command or a file are none: that is how
// a secret is used that RUN --mount=type=secret gives.
func (l *linter) credentials(in Instruction) {
	text := plain(in)
	for _, rule := range []struct {
		pattern *regexp.Regexp
		what    string
	}{{privateKey, "a private key in plain text"}, {knownToken, "an access token in plain text"},
		{pullSecret, "a pull secret in plain text"}, {netrc, "a .netrc with a password"}} {
		if m := rule.pattern.FindString(text); m != "" {
			l.secret(in, true, m, rule.what)
			return
		}
	}
	for _, m := range urlPassword.FindAllStringSubmatch(text, -1) {
		if !anonymous(m[1]) && !placeholder.MatchString(m[2]) {
			l.secret(in, true, m[0], "a URL with a password")
			return
		}
	}
	if in.Keyword == "RUN" {
		all := commands(in)
		// What is surely a secret goes first: a guess about an earlier command must not take its place.
		for _, check := range []func(Instruction, []string) bool{l.passed, l.named} {
			if slices.ContainsFunc(all, func(c []string) bool { return check(in, c) }) {
				return
			}
		}
	}
	for _, m := range secretName.FindAllStringSubmatch(text, -1) {
		if harmless(m[1], m[2]) {
			continue
		}
		l.secret(in, false, m[2], strings.TrimLeft(m[1], "-.")+" looks like a secret in plain text")
		return
	}
	if in.Keyword == "ENV" && len(in.Args) >= 2 &&
		secretOption.MatchString("--"+strings.ReplaceAll(in.Args[0], "_", "-")) && !strings.Contains(in.Args[1], "$") &&
		!harmless(in.Args[0], in.Args[1]) {
		l.secret(in, false, in.Args[1], in.Args[0]+" looks like a secret in plain text")
	}
}

// plain is the text in which secrets are looked for: without flags, whose ids are often named token or password.
func plain(in Instruction) string {
	text := in.Text
	if in.Keyword == "RUN" {
		text = strings.Join(in.Args, " ")
	}
	return strings.Join(append([]string{text}, in.Heredocs...), "\n")
}

// secret reports at the very line: an instruction can be long.
func (l *linter) secret(in Instruction, sure bool, found, what string) {
	const next = "use RUN --mount=type=secret, and rotate the secret: this one is written down in plain text"
	line := in.Line
	lines := strings.Split(l.file.Text, "\n")
	for n := in.Line; n <= min(in.End, len(lines)); n++ {
		if strings.Contains(lines[n-1], firstLine(found)) {
			line = n
			break
		}
	}
	if sure {
		l.refuse(line, "credentials", next, "%s", what)
		return
	}
	l.warn(line, "credentials", next, "%s", what)
}

func firstLine(text string) string { before, _, _ := strings.Cut(text, "\n"); return before }

// anonymous are users whose password is no secret by custom (RFC 1635).
func anonymous(user string) bool { return user == "anonymous" || user == "ftp" }

// harmless tells values that only name where a secret is, and words that stand for none.
func harmless(name, value string) bool {
	name = strings.ToLower(name)
	for _, end := range []string{"_file", "_path", "_dir", "_name", "_id", "_url", "_env"} {
		if strings.HasSuffix(name, end) {
			return true
		}
	}
	return strings.ContainsAny(value[:1], "/-<@{[(") || placeholder.MatchString(value)
}

// passing says how a program takes credentials as arguments.
type passing struct {
	programs []string
	// pair are options with user and password in one word, divided by a colon or comma.
	pair []string
	// alone are options with nothing but a secret.
	alone []string
	// header are options with a line of HTTP.
	header []string
	// with is a word that must be among the arguments, for options that mean something else without it.
	with string
}

// passings are from the programs' own manuals.
func passings() []passing {
	registry := []string{"podman", "docker", "buildah", "skopeo", "oc", "kubectl", "helm", "oras", "crane", "nerdctl"}
	return []passing{
		{programs: []string{"curl"}, pair: []string{"-u", "--user", "-U", "--proxy-user"},
			alone:  []string{"--oauth2-bearer", "--pass", "--proxy-pass", "--tlspassword"},
			header: []string{"-H", "--header", "--proxy-header"}},
		{programs: []string{"wget"}, alone: []string{"--password", "--http-password", "--ftp-password", "--proxy-password"},
			header: []string{"--header"}},
		{programs: []string{"aria2c"}, alone: []string{"--http-passwd", "--ftp-passwd", "--all-proxy-passwd"},
			header: []string{"--header"}},
		{programs: []string{"http", "https"}, pair: []string{"-a", "--auth"}},
		{programs: []string{"lftp", "ncftpget"}, pair: []string{"-u"}},
		{programs: registry, pair: []string{"--creds", "--src-creds", "--dest-creds"},
			alone: []string{"--password", "--token", "--registry-token"}},
		{programs: registry, alone: []string{"-p"}, with: "login"},
		{programs: []string{"sshpass"}, alone: []string{"-p"}},
		{programs: []string{"subscription-manager", "rhc"}, alone: []string{"--password", "-p"}},
	}
}

// passed refuses a secret in the arguments of a program that is known to take it there; it reports at most one finding.
func (l *linter) passed(in Instruction, command []string) bool {
	for i, w := range command {
		for _, p := range passings() {
			if !slices.Contains(p.programs, path.Base(w)) || p.with != "" &&
				!slices.Contains(command[i:], p.with) {
				continue
			}
			if found, option := p.find(command[i+1:]); found != "" {
				l.secret(in, true, found, path.Base(w)+" gets a password in plain text with "+option)
				return true
			}
		}
	}
	return false
}

// named warns of an option whose name says that its value is a secret; it reports at most one finding.
func (l *linter) named(in Instruction, command []string) bool {
	for i, w := range command {
		if !secretOption.MatchString(w) || i+1 == len(command) {
			continue
		}
		if value := command[i+1]; len(value) >= 4 && !strings.Contains(value, unknown) && !harmless(w, value) {
			l.secret(in, false, value, strings.TrimLeft(w, "-")+" looks like a secret in plain text")
			return true
		}
	}
	return false
}

// find gives the first secret among the arguments and the option that it belongs to.
func (p passing) find(arguments []string) (secret, option string) {
	for i := range arguments {
		for _, kind := range []struct {
			options []string
			secret  func(value string) string
		}{{p.pair, passwordOf}, {p.alone, secretOf}, {p.header, credentialOf}} {
			for _, o := range kind.options {
				value, ok := valueOf(arguments, i, o)
				if found := kind.secret(value); ok && found != "" {
					return found, o
				}
			}
		}
	}
	return "", ""
}

// passwordOf is the password in user:password or user,password, empty when it is none.
func passwordOf(pair string) string {
	at := strings.IndexAny(pair, ":,")
	if at < 0 || !literal(pair[at+1:]) || anonymous(pair[:at]) {
		return ""
	}
	return pair[at+1:]
}

// secretOf is a value that is nothing but a secret.
func secretOf(value string) string {
	if !literal(value) || harmless("", value) {
		return ""
	}
	return value
}

// credentialOf is the credential in a line of HTTP.
func credentialOf(header string) string {
	m := authorization.FindStringSubmatch(header)
	if m == nil || !literal(m[2]) {
		return ""
	}
	return m[2]
}

// valueOf gives the value of the option at that place: the next word, behind =, or behind a single letter.
func valueOf(arguments []string, i int, option string) (string, bool) {
	text := arguments[i]
	switch {
	case text == option && i+1 < len(arguments):
		return arguments[i+1], true
	case strings.HasPrefix(option, "--"):
		return strings.CutPrefix(text, option+"=")
	case len(text) > 2 && strings.HasPrefix(text, option):
		return text[2:], true
	case len(text) > 2 && text[0] == '-' && text[1] != '-' && strings.HasSuffix(text, option[1:]) && i+1 < len(arguments):
		return arguments[i+1], true // letters in one word: curl -fsSu
	}
	return "", false
}

func literal(value string) bool {
	return value != "" && !strings.Contains(value, unknown) && !placeholder.MatchString(value)
}
