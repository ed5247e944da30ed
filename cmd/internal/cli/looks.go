package cli

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"dayone.dev/dayone/bootstrap/board"
)

// Looks prints what a command with --watch sees each time it looks, and without it the one look. A terminal shows the
// board as it is now. A pipe, or a terminal that cannot go back, gets the first look and then a line for each change.
type Looks struct {
	// Watch: more looks follow.
	Watch bool

	shown *board.Board
	// drawn are the lines that a terminal shows.
	drawn []string
}

// Print writes a look: the board for people, and for programs data, which has the board, too.
func (l *Looks) Print(cmd *cobra.Command, kind string, data any, b board.Board) error {
	text := func(w io.Writer) error { return l.write(w, b, time.Now()) }
	if l.Watch {
		return printOneOfMany(cmd, kind, data, text)
	}
	return Print(cmd, kind, data, text)
}

func (l *Looks) write(w io.Writer, b board.Board, now time.Time) error {
	width, height := terminalSize(w)
	if coloured(w) {
		b = b.InColour()
	}
	var lines []string
	switch {
	case l.Watch && board.Live(plain(w), os.Getenv("TERM")):
		return l.draw(w, b, cmp.Or(width, helpWidth), cmp.Or(height, helpHeight))
	case l.shown == nil:
		lines = b.Lines(width)
	default:
		for _, line := range b.Changes(*l.shown) {
			lines = append(lines, now.UTC().Format("15:04:05Z ")+line)
		}
	}
	l.shown = &b
	_, err := io.WriteString(w, ended(lines))
	return err
}

const (
	// helpHeight is how many rows a terminal without a size has.
	helpHeight = 24
	// Control sequences of ECMA-48: cursor up, and erase from the cursor to the end of the screen.
	cursorUp  = "\x1b[%dA"
	eraseDown = "\r\x1b[J"
)

// draw replaces what the terminal shows. A line that has left the screen could not be replaced.
func (l *Looks) draw(w io.Writer, b board.Board, width, height int) error {
	lines := b.Screen(width, height-1)
	text := eraseDown + ended(lines)
	if up := board.Height(l.drawn, width); up > 0 {
		text = fmt.Sprintf(cursorUp, up) + text
	}
	l.drawn = lines
	_, err := io.WriteString(w, text)
	return err
}

// ended is lines as text.
func ended(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return strings.Join(lines, "\n") + "\n"
}

// plain is the writer below what Run and Prose put over it.
func plain(w io.Writer) io.Writer {
	switch over := w.(type) {
	case *tracked:
		return over.Writer
	case prose:
		return plain(over.Writer)
	}
	return w
}

// coloured tells whether what is written shows colours, and the user wants them.
func coloured(w io.Writer) bool {
	return board.Coloured(plain(w), os.Getenv("TERM"), os.Getenv("NO_COLOR"))
}

// alarming is the first word of an error: red where there are colours.
func alarming(w io.Writer, word string) string {
	if coloured(w) {
		return board.Failed.Paint(word)
	}
	return word
}

// terminalSize is how many columns and rows a terminal has; 0 is no terminal, or one that does not say.
func terminalSize(w io.Writer) (width, height int) {
	if f, is := plain(w).(*os.File); is {
		if width, height, err := term.GetSize(int(f.Fd())); err == nil {
			return width, height
		}
	}
	return 0, 0
}
