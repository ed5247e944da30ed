package pages

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/codeblocks"
)

const root = "../../.."

// act is one thing that a reader does: he types the examples of a command's help page, or a block of a page.
type act struct {
	// command is that of the help page, without the program's name.
	command string
	// page has the block with a command that begins so; of a command they are the examples that begin so, all without it.
	page, begins string
	// before gives the reader what he has before.
	before func(w *world)
	// hows say of lines how they end; those of which none is said end with 0.
	hows  []how
	after func(w *world)
}

// how says of lines that begin so how they run.
type how struct {
	begins string
	// code is the exit code.
	code int
	// fill are pairs: what the reader writes in the place of words that stand for something, such as DIGEST.
	fill func(w *world) []string
	// says is a pattern of what the line prints.
	says string
	// serves is for a line that goes on: it sees that the server answers. The server is told to end then, or at the end of
	// the block if it stays.
	serves func(w *world, s *server)
	stays  bool
	// ends makes a line that stays end by itself. Without it the test sends the server SIGTERM.
	ends func(w *world, s *server)
	// terminal: it asks before it goes on, and somebody says yes.
	terminal bool
	// dry: make only says what it would do, and named: go is not called; what they would test or run is there.
	dry, named bool
	// elsewhere is the test that runs the line: "folder TestName".
	elsewhere string
}

func (a act) name() string {
	if a.page != "" {
		return a.page + ": " + a.begins
	}
	return strings.TrimSpace("dayone "+a.command) + " --help"
}

// helpLines are the command lines of a help page's examples.
func helpLines(page string) (out []string) {
	_, examples, _ := strings.Cut(page, "\nExamples:\n")
	examples, _, _ = strings.Cut(examples, "\n\n")
	for line := range strings.Lines(strings.ReplaceAll(examples, "\\\n", " ")) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			out = append(out, line)
		}
	}
	return out
}

// commandsOf are those of a help page that lie below it.
func commandsOf(page string) (out []string) {
	_, list, _ := strings.Cut(page, "\nAvailable Commands:\n")
	list, _, _ = strings.Cut(list, "\n\n")
	for _, m := range regexp.MustCompile(`(?m)^  (\S+)`).FindAllStringSubmatch(list, -1) { // texts go on further right
		if name := m[1]; name != "help" && name != "completion" {
			out = append(out, name)
		}
	}
	return out
}

// examples are all help pages' of a program, by their commands.
func (w *world) examples(program string) map[string][]string {
	out := map[string][]string{}
	var look func(command string)
	look = func(command string) {
		page := w.must(program + " " + command + " --help")
		if lines := helpLines(page); len(lines) > 0 {
			out[command] = lines
		}
		for _, name := range commandsOf(page) {
			look(strings.TrimSpace(command + " " + name))
		}
	}
	look("")
	return out
}

// placed is a block of commands and where it is.
type placed struct {
	page string
	codeblocks.Block
}

// pages are all of the documentation.
func pages(t *testing.T) []string {
	t.Helper()
	names := []string{"README.md", "CONTRIBUTING.md", "SECURITY.md"}
	for _, pattern := range []string{"docs/*.md", "docs/*/*.md", "docs/*/*/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		for _, f := range found {
			name, err := filepath.Rel(root, f)
			require.NoError(t, err)
			names = append(names, name)
		}
	}
	require.Greater(t, len(names), 50)
	return names
}

// blocks are those of all pages that are for a shell, transcripts among them.
func blocks(t *testing.T) (out []placed) {
	t.Helper()
	for _, page := range pages(t) {
		all, err := codeblocks.Of(filepath.Join(root, page))
		require.NoError(t, err)
		for _, b := range all {
			if slices.Contains([]string{"sh", "bash", "shell", "console"}, b.Language) {
				out = append(out, placed{page, b})
			}
		}
	}
	return out
}

// is says whether it is the page's block with a command that begins so, or the transcript with such a first line. A $
// ends a line.
func (b placed) is(page, begins string) bool {
	so := func(line string) bool { return strings.HasPrefix(line+"$", begins) }
	return b.page == page && slices.ContainsFunc(b.lines(), so)
}

// lines are its commands, or a transcript as a whole.
func (b placed) lines() []string {
	if lines := b.Commands(); len(lines) > 0 {
		return lines
	}
	return []string{b.Text}
}

// run carries out an act's lines.
func (w *world) run(a act, lines []string, shown string) {
	w.Helper()
	w.at = a.name()
	if a.before != nil {
		a.before(w)
	}
	used := make([]bool, len(a.hows))
	var stay []func()
	for _, line := range lines {
		i := slices.IndexFunc(a.hows, func(h how) bool { return strings.HasPrefix(line, h.begins) })
		h := how{}
		if i >= 0 {
			h, used[i] = a.hows[i], true
		}
		if h.dry {
			w.dry(line)
			continue
		}
		if h.named {
			assert.Positive(w, isThere(w.T, line), line)
			continue
		}
		if h.elsewhere != "" {
			continue
		}
		if h.fill != nil {
			filled := strings.NewReplacer(h.fill(w)...).Replace(line)
			assert.NotEqual(w, line, filled, "%s: %s: nothing to fill in", w.at, line)
			line = filled
		}
		if h.serves != nil {
			s := w.start(line)
			h.serves(w, s)
			end := func() { s.ends(h.code) }
			if h.ends != nil {
				end = func() {
					h.ends(w, s)
					s.ended(h.code)
				}
			}
			if h.stays {
				stay = append(stay, end)
			} else {
				end()
			}
			continue
		}
		w.line(line, h, shown)
		if strings.HasPrefix(line, "export ") {
			w.exports = append(w.exports, line)
		}
	}
	for _, end := range slices.Backward(stay) {
		end()
	}
	if a.after != nil {
		a.after(w)
	}
	for i, is := range used {
		assert.True(w, is, "%s: no line begins with %s", w.at, a.hows[i].begins)
	}
}

// line runs one that ends. What a console shows below it is what it prints; … stands for anything.
func (w *world) line(line string, h how, shown string) {
	w.Helper()
	typed := line
	if h.terminal {
		typed = "echo y | script --quiet --return --command '" + line + "' /dev/null"
	}
	stdout, stderr, code := w.sh(typed)
	w.Logf("$ %s\n%.2000s%.2000s", line, stdout, stderr)
	require.Equal(w, h.code, code, "%s: %s: %s%s", w.at, line, stdout, stderr[max(0, len(stderr)-2000):])
	if h.says != "" {
		assert.Regexp(w, h.says, stdout+stderr, "%s: %s", w.at, line)
	}
	if shown != "" {
		assert.Regexp(w, "^"+strings.ReplaceAll(regexp.QuoteMeta(shown), "…", ".*")+"$", stdout, "%s: %s", w.at, line)
	}
}
