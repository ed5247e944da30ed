package buildahengine

import (
	"bytes"
	"os"
	"strings"
	"sync"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/scrub"
	"dayone.dev/dayone/registry/credentials"
)

// maxLine bounds a line of output, in bytes: a program that writes no newline must not fill the memory.
const maxLine = 64 << 10

// secretValues collects what must not appear in output: passwords of the auth file and the contents of secret
// files, in each form that they take. Files that cannot be read are left to the one who uses them, who reports it.
func secretValues(access build.Access, secrets []build.Secret) []string {
	var out []string
	add := func(v string) {
		if v = strings.TrimSpace(v); len(v) >= scrub.MinSecret {
			out = append(out, v)
		}
	}
	if raw, err := os.ReadFile(access.AuthFile); err == nil {
		for _, v := range credentials.Sensitive(raw) {
			add(v)
		}
	}
	for _, s := range secrets {
		raw, err := os.ReadFile(s.File)
		if err != nil {
			continue
		}
		for _, form := range scrub.Value(string(raw)) {
			add(form)
		}
	}
	return out
}

// lines is a writer that hands on whole lines, scrubbed.
type lines struct {
	mu      sync.Mutex
	buffer  bytes.Buffer
	scrub   scrub.Scrubber
	deliver func(string)
}

func newLines(secrets []string, deliver func(string)) *lines {
	return &lines{scrub: scrub.New(secrets), deliver: deliver}
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for rest := p; len(rest) > 0; {
		end := bytes.IndexAny(rest, "\n\r")
		if end < 0 {
			l.buffer.Write(rest)
			if l.buffer.Len() > maxLine {
				l.flush()
			}
			break
		}
		l.buffer.Write(rest[:end])
		l.flush()
		rest = rest[end+1:]
	}
	return len(p), nil
}

// Close hands on what has no newline yet.
func (l *lines) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flush()
	return nil
}

func (l *lines) flush() {
	if l.buffer.Len() == 0 {
		return
	}
	text := strings.ToValidUTF8(l.buffer.String(), "?")
	l.buffer.Reset()
	l.deliver(l.scrub.Replace(text))
}
