package ostreerepo

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Repository is an ostree repository of mode "bare", where files are kept as they are, with owner and mode.
type Repository struct {
	path string
	sync bool
}

// errMode says that the repository is of another mode; hosts' repositories are ostreerepo.
var errMode = errors.New("not a bare ostree repository")

// Open reads the repository's configuration.
func Open(path string) (*Repository, error) {
	raw, err := os.ReadFile(filepath.Join(path, "config"))
	if err != nil {
		return nil, fmt.Errorf("open ostree repository: %w", err)
	}
	r := &Repository{path: path, sync: true}
	isBare := false
	for _, line := range strings.Split(string(raw), "\n") {
		key, value, _ := strings.Cut(line, "=")
		switch strings.TrimSpace(key) {
		case "mode":
			isBare = strings.TrimSpace(value) == "bare"
		case "fsync":
			r.sync = strings.TrimSpace(value) != "false"
		}
	}
	if !isBare {
		return nil, fmt.Errorf("open ostree repository %s: %w", path, errMode)
	}
	return r, nil
}

// objectPath is below the repository or a transaction's directory.
func objectPath(sum Checksum, kind string) string {
	hex := sum.String()
	return filepath.Join("objects", hex[:2], hex[2:]+"."+kind)
}

func (r *Repository) has(sum Checksum, kind string) bool {
	_, err := os.Lstat(filepath.Join(r.path, objectPath(sum, kind)))
	return err == nil
}

// read reads an object that is no file and checks that it is what its name says.
func (r *Repository) read(sum Checksum, kind string) ([]byte, error) {
	raw, err := os.ReadFile(filepath.Join(r.path, objectPath(sum, kind)))
	if err != nil {
		return nil, fmt.Errorf("read ostree object: %w", err)
	}
	if Checksum(sha256.Sum256(raw)) != sum {
		return nil, fmt.Errorf("read ostree object %s.%s: its content has another checksum; run ostree fsck", sum, kind)
	}
	return raw, nil
}

// Commit reads a commit.
func (r *Repository) Commit(sum Checksum) (Commit, error) {
	raw, err := r.read(sum, kindCommit)
	if err != nil {
		return Commit{}, err
	}
	return parseCommit(raw)
}

// Tree gives the root directory of a commit; directories are read when they are looked at.
func (r *Repository) Tree(c Commit) *Tree {
	return &Tree{repo: r, sum: c.Tree, meta: c.Meta}
}
