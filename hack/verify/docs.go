package main

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

var (
	// link is a Markdown link to a file of the tree.
	link = regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	// command is a line of a shell block that runs one of our programs or make.
	command = regexp.MustCompile(`^(?:sudo )?(?:bin/)?(dayone|make)((?: [a-z][a-z-]*)*)`)
	// target is a rule of the Makefile.
	target = regexp.MustCompile(`(?m)^([a-z][a-z-]*):`)
	// use is the first word of a cobra command.
	use = regexp.MustCompile(`(?:Use:\s+|NewGroup\()"([a-z-]+)`)
)

// documentation checks that every link leads to a file and every command in a shell block exists.
func documentation(t *tree) ([]string, error) {
	verbs, targets, err := t.vocabulary()
	if err != nil {
		return nil, err
	}
	var bad []string
	err = filepath.WalkDir(t.root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && p != t.root {
			return filepath.SkipDir
		}
		if filepath.Ext(p) != ".md" {
			return nil
		}
		raw, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		bad = append(bad, brokenLinks(p, string(raw))...)
		bad = append(bad, unknownCommands(p, string(raw), verbs, targets)...)
		return nil
	})
	return bad, err
}

func brokenLinks(path, text string) []string {
	var bad []string
	for _, m := range link.FindAllStringSubmatch(text, -1) {
		if _, err := os.Stat(filepath.Join(filepath.Dir(path), m[1])); err != nil {
			bad = append(bad, fmt.Sprintf("%s: link to %s, which does not exist", path, m[1]))
		}
	}
	return bad
}

func unknownCommands(path, text string, verbs, targets map[string]bool) []string {
	var bad []string
	inside := false
	for n, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "```") {
			inside = !inside && (line == "```sh" || line == "```bash" || line == "```console")
			continue
		}
		m := command.FindStringSubmatch(strings.TrimPrefix(strings.TrimSpace(line), "$ "))
		if !inside || m == nil || m[2] == "" {
			continue
		}
		word := strings.Fields(m[2])[0]
		if (m[1] == "make" && !targets[word]) || (m[1] == "dayone" && !verbs[word]) {
			bad = append(bad, fmt.Sprintf("%s:%d: %s %s does not exist", path, n+1, m[1], word))
		}
	}
	return bad
}

// vocabulary collects dayone's sub-commands from the sources and make's targets from the Makefile.
func (t *tree) vocabulary() (verbs, targets map[string]bool, err error) {
	verbs, targets = map[string]bool{"help": true, "completion": true}, map[string]bool{}
	makefile, err := os.ReadFile(filepath.Join(t.root, "Makefile"))
	if err != nil {
		return nil, nil, fmt.Errorf("read Makefile: %w", err)
	}
	for _, m := range target.FindAllStringSubmatch(string(makefile), -1) {
		targets[m[1]] = true
	}
	for _, f := range t.files {
		if f.pkg != "cmd/dayone" && !strings.HasPrefix(f.pkg, "cmd/dayone/") {
			continue
		}
		raw, err := os.ReadFile(filepath.Join(t.root, f.path))
		if err != nil {
			return nil, nil, fmt.Errorf("read %s: %w", f.path, err)
		}
		for _, m := range use.FindAllStringSubmatch(string(raw), -1) {
			verbs[m[1]] = true
		}
	}
	return verbs, targets, nil
}

// dependenciesPage says of each direct dependency what it is for.
const dependenciesPage = "docs/developers/dependencies.md"

// dependencies compares go.mod with the first table of that page.
func dependencies(t *tree) ([]string, error) {
	mod, err := os.ReadFile(filepath.Join(t.root, "go.mod"))
	if err != nil {
		return nil, err
	}
	page, err := os.ReadFile(filepath.Join(t.root, dependenciesPage))
	if err != nil {
		return nil, err
	}
	return unexplained(string(mod), string(page)), nil
}

var (
	// required is a line of go.mod that requires a module, with the remark behind it.
	required = regexp.MustCompile(`(?m)^(?:require)?\s+([\w.-]+\.[a-z]+/\S+) v\S+(.*)$`)
	// explained is the first cell of a row, and named a module in it.
	explained = regexp.MustCompile("(?m)^\\| (`[^|]+`) \\|")
	named     = regexp.MustCompile("`([^`]+)`")
)

// unexplained lists direct dependencies without a row, and rows without a dependency.
func unexplained(mod, page string) []string {
	rows := map[string]bool{}
	for _, row := range explained.FindAllStringSubmatch(page, -1) {
		for _, m := range named.FindAllStringSubmatch(row[1], -1) {
			rows[m[1]] = true
		}
	}
	var bad []string
	for _, m := range required.FindAllStringSubmatch(mod, -1) {
		if strings.Contains(m[2], "// indirect") {
			continue
		}
		if !rows[m[1]] {
			bad = append(bad, fmt.Sprintf("%s: no row says what %s is for", dependenciesPage, m[1]))
		}
		delete(rows, m[1])
	}
	for _, m := range slices.Sorted(maps.Keys(rows)) {
		bad = append(bad, fmt.Sprintf("%s: go.mod does not require %s", dependenciesPage, m))
	}
	return bad
}
