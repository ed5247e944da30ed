package nodes

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// File is the table's name in a state directory and in a bundle. analyze and dayone status read it.
const File = "nodes.json"

// maxNodes bounds the rows: more than any cluster has while its bootstrap host lives.
const maxNodes = 2000

// Table are all rows by address.
type Table struct {
	rows map[string]Row
	// left counts what was heard of nodes for which there is no room.
	left int
}

// change applies to the row of an address; false: there is no room for it.
func (t *Table) change(address string, at time.Time, apply func(Row) Row) bool {
	r, ok := t.rows[address]
	if !ok {
		if len(t.rows) >= maxNodes {
			t.left++
			return false
		}
		r = Row{Address: address, Since: at}
	}
	r = apply(r)
	r.Seen = at
	if r.Stage == "" {
		return false
	}
	if t.rows == nil {
		t.rows = map[string]Row{}
	}
	t.rows[address] = r
	return true
}

// move gives a row another key. A row that has that key already stays, and the other one goes.
func (t *Table) move(from, to string) {
	r, ok := t.rows[from]
	if !ok || from == to {
		return
	}
	delete(t.rows, from)
	if _, taken := t.rows[to]; !taken {
		r.Address = to
		t.rows[to] = r
	}
}

// Rows are sorted by pool, then by name or address.
func (t *Table) Rows() []Row {
	return slices.SortedFunc(maps.Values(t.rows), func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Who(), b.Who()), cmp.Compare(a.Address, b.Address))
	})
}

// stored is the file's form.
type stored struct {
	Version int   `json:"version"`
	Nodes   []Row `json:"nodes"`
	// Left counts what was heard of further nodes.
	Left int `json:"left,omitempty"`
}

// Parse reads the content of File.
func Parse(raw []byte) ([]Row, error) {
	var s stored
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, fmt.Errorf("read %s: %w", File, err)
	}
	return s.Nodes[:min(len(s.Nodes), maxNodes)], nil
}

// Read gives the rows of a state directory; none where no node has come yet.
func Read(stateDir string) ([]Row, error) {
	raw, err := os.ReadFile(filepath.Join(stateDir, File))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read nodes: %w", err)
	}
	return Parse(raw)
}
