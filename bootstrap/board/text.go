package board

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mitchellh/go-wordwrap"
)

const (
	// leastText is how many columns are left for the text of a row; on a narrower terminal it goes below the name.
	leastText = 24
	// below indents what follows a row, in characters.
	below = "    "
)

// Lines are the board for people. With a width, in columns, they break between words to fit. With 0 a row is a line,
// and what it says or needs next is a line of its own.
func (b Board) Lines(width int) []string { return b.lines(b.lists(), width) }

func (b Board) lines(lists []list, width int) (out []string) {
	for _, text := range b.Head {
		out = append(out, fit("", text, width)...)
	}
	for _, l := range lists {
		out = append(append(out, l.name+":"), rowLines(l.rows, width, b.colour)...)
	}
	for _, text := range b.Notes {
		out = append(out, fit("", text, width)...)
	}
	return out
}

// Screen are the lines that fit a terminal of so many columns and rows. When not all do, what is done is only counted;
// when that is not enough, the last lines are left out.
func (b Board) Screen(width, height int) []string {
	lines := b.Lines(width)
	if Height(lines, width) <= height {
		return lines
	}
	short := b.lists()
	for i, l := range short {
		short[i].rows = slices.DeleteFunc(slices.Clone(l.rows), func(r Row) bool { return r.Progress == Done })
		if done := len(l.rows) - len(short[i].rows); done > 0 {
			short[i].name = fmt.Sprintf("%s (%d done)", l.name, done)
		}
	}
	lines = b.lines(short, width)
	if Height(lines, width) <= height {
		return lines
	}
	for len(lines) > 0 && Height(lines, width) >= height {
		lines = lines[:len(lines)-1]
	}
	return append(lines, "...")
}

// Height is how many rows of a terminal lines take.
func Height(lines []string, width int) (rows int) {
	for _, line := range lines {
		rows += 1 + max(visible(line)-1, 0)/width
	}
	return rows
}

// Lines are rows in columns: state, pool, name, time, text.
func Lines(rows []Row, width int) []string { return rowLines(rows, width, false) }

func rowLines(rows []Row, width int, colour bool) (out []string) {
	var wide [4]int
	for _, r := range rows {
		for i, cell := range r.cells() {
			wide[i] = max(wide[i], utf8.RuneCountInString(cell))
		}
	}
	for _, r := range rows {
		head := ""
		for i, cell := range r.cells() {
			if wide[i] > 0 {
				head += cell + strings.Repeat(" ", wide[i]-utf8.RuneCountInString(cell)+2)
			}
		}
		lines := fit(head, r.Text, width)
		if colour { // after breaking, which counts characters
			lines[0] = r.paint(lines[0])
		}
		out = append(out, lines...)
		if r.Says != "" {
			out = append(out, fit(below, r.Says, width)...)
		}
		if r.Next != "" {
			out = append(out, fit(below, "next: "+r.Next, width)...)
		}
	}
	return out
}

// cells are all columns but the text.
func (r Row) cells() []string {
	took := ""
	if r.Seconds > 0 {
		took = Took(r.Seconds)
	}
	return []string{Clean(r.State), Clean(r.Pool), Clean(r.Name), took}
}

// fit puts a text beside its head, and below it where that leaves too few columns.
func fit(head, text string, width int) []string {
	text = Clean(text)
	words := strings.Join(strings.Fields(head), " ")
	switch {
	case width <= 0:
		return []string{strings.TrimRight(head+text, " ")}
	case words == "" || width-utf8.RuneCountInString(head) >= leastText:
		return hang(head, text, width)
	case text == "":
		return hang("", words, width)
	}
	return append(hang("", words, width), hang(below, text, width)...)
}

// hang breaks a text between words, every line but the first as far to the right as the head of the first.
func hang(head, text string, width int) []string {
	columns := utf8.RuneCountInString(head)
	lines := strings.Split(wordwrap.WrapString(text, uint(max(width-columns, 1))), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(head+lines[i], " ")
		head = strings.Repeat(" ", columns)
	}
	return lines
}

// Clean keeps what builds and nodes say from moving a terminal's cursor: control characters become blanks.
func Clean(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}

// Took is a time span for people, in seconds with one digit below a minute.
func Took(seconds float64) string {
	if seconds < time.Minute.Seconds() {
		return fmt.Sprintf("%.1fs", seconds)
	}
	return (time.Duration(seconds) * time.Second).String()
}

// Changes are a line for each row that is new, gone or different since an earlier look, for pipes and logs.
func (b Board) Changes(was Board) (out []string) {
	old := map[string]string{}
	for _, l := range was.lists() {
		for _, r := range l.rows {
			old[l.key(r)] = r.steadyLine()
		}
	}
	for _, l := range b.lists() {
		for _, r := range l.rows {
			if old[l.key(r)] != r.steadyLine() {
				out = append(out, l.name+": "+r.line())
			}
			delete(old, l.key(r))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(old)) {
		out = append(out, key+" is gone")
	}
	for _, text := range slices.Concat(b.Head, b.Notes) {
		if !slices.Contains(was.Head, text) && !slices.Contains(was.Notes, text) {
			out = append(out, Clean(text))
		}
	}
	return out
}

// key names a row among all.
func (l list) key(r Row) string {
	return l.name + ": " + Clean(strings.TrimLeft(r.Pool+" "+r.Name, " "))
}

// steadyLine is the row without what changes by itself.
func (r Row) steadyLine() string {
	r.Text, r.Seconds = cmp.Or(r.steady, r.Text), 0
	return r.line()
}

// line is the row on one line.
func (r Row) line() string {
	out := strings.Join(strings.Fields(strings.Join(r.cells(), " ")), " ")
	for _, part := range []string{r.Text, r.Says} {
		if part != "" {
			out += "  " + Clean(part)
		}
	}
	if r.Next != "" {
		out += "; next: " + Clean(r.Next)
	}
	return out
}
