package testnode

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"dayone.dev/dayone/hack/statefile"
)

// Runs lists the runs of a state directory ("" for the default one), living or dead.
func Runs(stateDir string) ([]string, error) {
	if stateDir == "" {
		stateDir = defaultStateDir
	}
	found, err := filepath.Glob(filepath.Join(stateDir, "*", recordFile))
	for i, f := range found {
		found[i] = filepath.Base(filepath.Dir(f))
	}
	return found, err
}

// Attach gives a run that another process made, for instance one that kept its nodes. Its nodes can be entered,
// rebooted and switched off, but not switched on again; Close ends the run.
func Attach(stateDir, id string) (*Lab, error) {
	runs, err := Runs(stateDir)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(runs, id) {
		return nil, fmt.Errorf("attach to run %q: there is none; there are: %v", id, runs)
	}
	o, err := Options{StateDir: stateDir, ID: id}.withDefaults()
	if err != nil {
		return nil, err
	}
	l := &Lab{ID: id, options: o, dir: filepath.Join(o.StateDir, id)}
	var r runRecord
	if err := statefile.Read(filepath.Join(l.dir, recordFile), &r); err != nil {
		return nil, fmt.Errorf("attach to run %s: %w", id, err)
	}
	l.work = r.Work
	l.Network = &Network{id: id, prefix: o.Prefix}
	entries, err := os.ReadDir(filepath.Join(l.dir, "nodes"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("attach to run %s: %w", id, err)
	}
	for _, e := range entries {
		n := &Node{Name: e.Name(), lab: l, dir: filepath.Join(l.dir, "nodes", e.Name())}
		var c config
		err := statefile.Read(filepath.Join(n.dir, configFile), &c)
		if errors.Is(err, fs.ErrNotExist) {
			continue // being made
		}
		if err != nil {
			return nil, fmt.Errorf("attach to run %s: %w", id, err)
		}
		n.Sysroot, n.log, n.Addr = c.Sysroot, c.Console, c.Addr
		l.nodes = append(l.nodes, n)
	}
	return l, nil
}

// Node gives the run's node of a name, nil when there is none.
func (l *Lab) Node(name string) *Node {
	for _, n := range l.Nodes() {
		if n.Name == name {
			return n
		}
	}
	return nil
}
