package deploy

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
)

// bootEntry is a boot loader entry. Source: UAPI group, Boot Loader Specification, type 1.
type bootEntry struct {
	file       string
	lines      []string
	version    int    // highest boots
	options    string // kernel command line
	deployment string // directory that ostree= leads to, links resolved; "" when it leads nowhere
}

// bootEntries reads /boot/loader/entries, the default entry first.
func (d *OSTree) bootEntries() ([]bootEntry, error) {
	files, err := filepath.Glob(filepath.Join(d.root, "boot/loader/entries/ostree-*.conf"))
	if err != nil {
		return nil, fmt.Errorf("list boot entries: %w", err)
	}
	var all []bootEntry
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a deployment is being written
		}
		if err != nil {
			return nil, fmt.Errorf("read boot entry: %w", err)
		}
		b := bootEntry{file: file, lines: strings.Split(strings.TrimRight(string(raw), "\n"), "\n")}
		for _, line := range b.lines {
			key, value, _ := strings.Cut(line, " ")
			switch key {
			case "version":
				if b.version, err = strconv.Atoi(strings.TrimSpace(value)); err != nil {
					return nil, fmt.Errorf("read version of boot entry %s: %w", file, err)
				}
			case "options":
				b.options = strings.TrimSpace(value)
			}
		}
		for _, word := range splitArguments(b.options) {
			if target, ok := strings.CutPrefix(word, "ostree="); ok {
				if real, err := filepath.EvalSymlinks(filepath.Join(d.root, target)); err == nil {
					b.deployment = real
				}
			}
		}
		all = append(all, b)
	}
	sort.SliceStable(all, func(i, j int) bool { return all[i].version > all[j].version })
	return all, nil
}

// kernelArguments gives the options without the one that ostree adds itself.
func (b bootEntry) kernelArguments() []string {
	arguments := []string{}
	for _, word := range splitArguments(b.options) {
		if !strings.HasPrefix(word, "ostree=") {
			arguments = append(arguments, word)
		}
	}
	return arguments
}

// splitArguments splits a kernel command line at blanks outside of double quotes. Source: Linux, kernel-parameters.rst.
func splitArguments(line string) []string {
	var words []string
	var word strings.Builder
	quoted := false
	for _, c := range line {
		switch {
		case c == '"':
			quoted = !quoted
			word.WriteRune(c)
		case !quoted && (c == ' ' || c == '\t' || c == '\n'):
			if word.Len() > 0 {
				words = append(words, word.String())
				word.Reset()
			}
		default:
			word.WriteRune(c)
		}
	}
	if word.Len() > 0 {
		words = append(words, word.String())
	}
	return words
}
