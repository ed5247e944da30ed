package scrub

import "regexp"

// secretNames are fields, options and variables whose value is a secret wherever they stand.
const secretNames = `(?i)((?:auth|password|passwd|passwordHash|identitytoken|registrytoken|token|secret|` +
	`client-key-data|private[-_]?key|access[-_]?key|api[-_]?key)`

// Forms are forms of text that are secret wherever they stand. What the groups 1 and 2 hold is no part of the secret
// and can stay, so that JSON can still be read.
func Forms() []*regexp.Regexp {
	return []*regexp.Regexp{
		regexp.MustCompile(`(?s)(-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----).*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)`),
		regexp.MustCompile(secretNames + `"?[ \t]*[:=][ \t]*")(?:[^"\\]|\\.)+(")`),
		regexp.MustCompile(secretNames + `\\+"[ \t]*[:=][ \t]*\\+")[^"\\]+`), // JSON within JSON
		regexp.MustCompile(secretNames + `"?[ \t]*[:=][ \t]*')[^']+(')`),
		regexp.MustCompile(secretNames + `"?[ \t]*[:=][ \t]*)[^\s"'{\[,;&\\]+`),
		regexp.MustCompile(`(?i)(authorization:[ \t]*(?:basic|bearer)\s+)[^\s"']+`),
		regexp.MustCompile(`(?i)(\b(?:bearer)\s+)[A-Za-z0-9._~+/-]{16,}=*`),
		regexp.MustCompile(`()\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`),
		regexp.MustCompile(`(\b[a-z][a-z0-9+.-]*://)[^\s/@:"']+:[^\s/@"']+@`),
		regexp.MustCompile(`(\bdata:[a-z0-9/+.;=-]*,)[^\s"'\\]{8,}`),
		regexp.MustCompile(`()\$(?:1|2[aby]|5|6|y|gy)\$[A-Za-z0-9./$=,]{16,}`),
	}
}

// Unknown takes out of a text what has the form of a secret, for texts of which no secret is known. The text begins
// with a line and ends with one: what is left of a private key whose beginning is cut off goes, too.
func Unknown(text string) string {
	if end := keyEnd.FindStringIndex(text); end != nil && !keyBegin.MatchString(text[:end[0]]) {
		text = mark + text[end[0]:]
	}
	for _, form := range Forms() {
		text = form.ReplaceAllString(text, "${1}"+mark+"${2}")
	}
	return text
}

// keyBegin and keyEnd are the first and last line of a private key.
var (
	keyBegin = regexp.MustCompile(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----`)
	keyEnd   = regexp.MustCompile(`-----END [A-Z0-9 ]*PRIVATE KEY-----`)
)
