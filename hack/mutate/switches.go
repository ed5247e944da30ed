package main

import (
	"cmp"
	"fmt"
	"go/token"
	"slices"
)

// edit is a change of a file's text: size bytes from at on become text.
type edit struct {
	at, size int
	text     string
	side     side
}

// side tells which of the edits of one place comes first.
type side int

const (
	closing side = iota
	middle
	opening
)

func opens(at int, format string, args ...any) edit {
	return edit{at: at, text: fmt.Sprintf(format, args...), side: opening}
}

func closes(at int, format string, args ...any) edit {
	return edit{at: at, text: fmt.Sprintf(format, args...), side: closing}
}

func replaces(at, size int, text string) edit {
	return edit{at: at, size: size, text: text, side: middle}
}

// withSwitches puts the switches of mutants into the source of their file. No line moves. The mutants are in the order
// of sites: what is inside comes after what is around it.
func withSwitches(source []byte, mutants []mutant) []byte {
	var before, after []edit
	for _, m := range mutants {
		for _, e := range m.edits(m.ID) {
			if e.side == closing {
				after = append(after, e)
			} else {
				before = append(before, e)
			}
		}
	}
	slices.Reverse(after) // what is inside is closed first
	edits := append(after, before...)
	slices.SortStableFunc(edits, func(a, b edit) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.side, b.side))
	})
	var out []byte
	done := 0
	for _, e := range edits {
		out = append(append(out, source[done:e.at]...), e.text...)
		done = e.at + e.size
	}
	return append(out, source[done:]...)
}

// switchOf names the function of the switches that stands for an operator.
func switchOf(operator token.Token) string {
	return map[token.Token]string{token.LAND: "mutantAnd", token.LOR: "mutantOr",
		token.ADD: "mutantAdd", token.SUB: "mutantSub"}[operator]
}

// The variables of the environment by which a program is told which mutant it is, and where it writes, a line each, the
// numbers of the switches that it comes across.
const (
	mutantEnv  = "DAYONE_MUTANT"
	reachedEnv = "DAYONE_MUTANTS_REACHED"
)

// switches is the source of the functions that the edits call, with the package's name and the two variables.
const switches = `package %s

import (
	"fmt"
	"os"
	"strconv"
	"sync"
)

var (
	mutantNow, _  = strconv.Atoi(os.Getenv(%q))
	mutantReached = os.Getenv(%q)
	mutantsSeen   sync.Map
)

func mutantMade(id int) bool {
	if mutantReached != "" {
		if _, seen := mutantsSeen.LoadOrStore(id, true); !seen {
			f, err := os.OpenFile(mutantReached, os.O_APPEND|os.O_WRONLY, 0)
			if err == nil {
				fmt.Fprintln(f, id)
				f.Close()
			}
		}
	}
	return id == mutantNow
}

func mutantAnd(id int, a, b func() bool) bool {
	if mutantMade(id) {
		return a() || b()
	}
	return a() && b()
}

func mutantOr(id int, a, b func() bool) bool {
	if mutantMade(id) {
		return a() && b()
	}
	return a() || b()
}

type mutantNumber interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float32 | ~float64
}

func mutantAdd[T mutantNumber](id int, a, b T) T {
	if mutantMade(id) {
		return a - b
	}
	return a + b
}

func mutantSub[T mutantNumber](id int, a, b T) T {
	if mutantMade(id) {
		return a + b
	}
	return a - b
}

func mutantError(id int, err func() error) error {
	if mutantMade(id) {
		return nil
	}
	return err()
}
`
