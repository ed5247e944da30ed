package cli

import (
	"bytes"
	"io"
	"regexp"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// WriteTable aligns the columns of rows whose cells are separated by tabs. On a terminal that is too narrow for a row,
// the cells of the widest columns go on below themselves. They break between words, so that a name can be copied; where
// that is not enough, paths break after a slash, too. Programs that read a pipe find a line a row.
func WriteTable(w io.Writer, rows func(io.Writer)) error {
	if p, is := w.(prose); is { // it is for sentences
		w = p.Writer
	}
	var raw bytes.Buffer
	rows(&raw)
	text := raw.String()
	if width, _ := terminalSize(w); width > 0 {
		text = fitTable(text, width)
	}
	var aligned bytes.Buffer
	t := tabwriter.NewWriter(&aligned, 0, 4, columnGap, ' ', 0)
	if _, err := io.WriteString(t, text); err != nil {
		return err
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(w, blankEnds.ReplaceAllString(aligned.String(), ""))
	return err
}

// blankEnds matches the blanks that end a line: tabwriter pads cells with them, and a narrow terminal would wrap them.
var blankEnds = regexp.MustCompile(`(?m) +$`)

const (
	// columnGap is how many blanks are between two columns.
	columnGap = 2
	// leastColumn is how narrow a column becomes at most: with less, a few words make a high row.
	leastColumn = 16
)

// fitTable breaks cells of rows that are wider than a terminal: it makes more rows of one.
func fitTable(text string, width int) string {
	lines := strings.Split(text, "\n")
	rows := make([][]string, len(lines))
	for i, line := range lines {
		rows[i] = strings.Split(line, "\t")
	}
	parts := words
	widths, fits := columnWidths(rows, width, parts)
	if !fits {
		parts = pathParts
		widths, _ = columnWidths(rows, width, parts)
	}
	var out []string
	for _, row := range rows {
		if len(row) == 1 {
			out = append(out, wrap(row[0], width, parts)...)
			continue
		}
		pieces, height := make([][]string, len(row)), 0
		for c, cell := range row {
			pieces[c] = wrap(cell, widths[c], parts)
			height = max(height, len(pieces[c]))
		}
		for at := range height {
			cells := make([]string, len(row))
			for c, p := range pieces {
				if at < len(p) {
					cells[c] = p[at]
				}
			}
			out = append(out, strings.Join(cells, "\t"))
		}
	}
	return strings.Join(out, "\n")
}

var (
	// words is what a line is broken between, with the blanks that follow.
	words = regexp.MustCompile("[^ ]+ *")
	// pathParts are words that a slash ends, too.
	pathParts = regexp.MustCompile("[^ /]*[ /]*")
)

// columnWidths takes from the widest columns until a row fits, or until no column can be narrower. A row of one cell
// belongs to no column.
func columnWidths(rows [][]string, width int, parts *regexp.Regexp) (widths []int, fits bool) {
	var least []int
	for _, row := range rows {
		for c := 0; c < len(row) && len(row) > 1; c++ {
			if c == len(widths) {
				widths, least = append(widths, 0), append(least, 0)
			}
			widths[c] = max(widths[c], utf8.RuneCountInString(row[c]))
			least[c] = max(least[c], longest(row[c], parts))
		}
	}
	total := columnGap * (len(widths) - 1)
	for c := range widths {
		least[c] = max(least[c], min(widths[c], leastColumn))
		total += widths[c]
	}
	for ; total > width; total-- {
		widest := widestOf(widths, least)
		if widest < 0 {
			return widths, false
		}
		widths[widest]--
	}
	return widths, true
}

// widestOf is the widest column that may be narrower, -1 for none.
func widestOf(widths, least []int) int {
	widest := -1
	for c := range widths {
		if widths[c] > least[c] && (widest < 0 || widths[c] > widths[widest]) {
			widest = c
		}
	}
	return widest
}

// longest is how wide a cell is at least: its indent and its longest part.
func longest(cell string, parts *regexp.Regexp) (width int) {
	for _, part := range parts.FindAllString(cell, -1) {
		width = max(width, indentOf(cell)+utf8.RuneCountInString(strings.TrimRight(part, " ")))
	}
	return width
}

// wrap breaks a cell between parts. What goes on below has the cell's indent.
func wrap(cell string, width int, parts *regexp.Regexp) []string {
	return wrapBelow(cell, width, indentOf(cell), parts)
}

// wrapBelow breaks a text between parts; all lines but the first get an indent.
func wrapBelow(text string, width, below int, parts *regexp.Regexp) (lines []string) {
	indent := indentOf(text)
	line := text[:indent]
	for _, part := range parts.FindAllString(text[indent:], -1) {
		if utf8.RuneCountInString(line+strings.TrimRight(part, " ")) > width && strings.TrimSpace(line) != "" {
			lines = append(lines, strings.TrimRight(line, " "))
			line = strings.Repeat(" ", below)
		}
		line += part
	}
	return append(lines, line)
}

// indentOf is how many blanks a text begins with.
func indentOf(text string) int { return len(text) - len(strings.TrimLeft(text, " ")) }

// Prose is a writer for sentences. On a terminal a line that is too long goes on below, with a greater indent.
// Elsewhere a line stays one. Each Write has whole lines.
func Prose(w io.Writer) io.Writer {
	if width, _ := terminalSize(w); width > 0 {
		return prose{w, width}
	}
	return w
}

type prose struct {
	io.Writer
	width int
}

// proseIndent is by how many blanks more what goes on below is indented.
const proseIndent = 2

// Write is io.Writer's.
func (p prose) Write(text []byte) (int, error) {
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		lines[i] = strings.Join(wrapBelow(line, p.width, indentOf(line)+proseIndent, words), "\n")
	}
	if _, err := io.WriteString(p.Writer, strings.Join(lines, "\n")); err != nil {
		return 0, err
	}
	return len(text), nil
}
