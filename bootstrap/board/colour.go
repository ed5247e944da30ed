package board

import (
	"io"
	"os"
	"regexp"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// paint and unpaint begin and end a colour: "select graphic rendition" of ECMA-48. Only the three below are used, so
// that every terminal with colours has them, in the shade that its user chose.
const (
	red     = "31"
	green   = "32"
	cyan    = "36"
	paint   = "\x1b["
	unpaint = "\x1b[m"
)

// painted finds what Paint adds.
var painted = regexp.MustCompile("\x1b\\[[0-9]*m")

// Paint gives a word the colour of a progress. What has not begun has none.
func (p Progress) Paint(word string) string {
	code := ""
	switch p {
	case Done:
		code = green
	case Running:
		code = cyan
	case Failed:
		code = red
	case Pending:
	}
	if code == "" || word == "" {
		return word
	}
	return paint + code + "m" + word + unpaint
}

// InColour is the board whose Lines and Screen have the words for states in colours.
func (b Board) InColour() Board {
	b.colour = true
	return b
}

// paint colours the state that begins a row's first line. On a narrow terminal the line may hold only a part of it.
func (r Row) paint(line string) string {
	state := Clean(r.State)
	rest, whole := strings.CutPrefix(line, state)
	switch {
	case whole:
		return r.Progress.Paint(state) + rest
	case strings.HasPrefix(state, line):
		return r.Progress.Paint(line)
	}
	return line
}

// visible is how many characters of a line a terminal shows.
func visible(line string) int { return utf8.RuneCountInString(painted.ReplaceAllString(line, "")) }

// Live tells whether out is a terminal that can go back and draw again; kind is the environment's TERM. Without one
// nothing is known of the terminal.
func Live(out io.Writer, kind string) bool {
	f, ok := out.(*os.File)
	return ok && kind != "" && kind != "dumb" && term.IsTerminal(int(f.Fd()))
}

// Coloured tells whether out is a terminal with colours, and its user wants them; kind and no are the environment's
// TERM and NO_COLOR (no-color.org).
func Coloured(out io.Writer, kind, no string) bool { return no == "" && Live(out, kind) }
