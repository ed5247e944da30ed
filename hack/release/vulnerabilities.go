package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"dayone.dev/dayone/hack/images"
)

const (
	// govulncheck looks for known vulnerabilities in what a program contains. It is a tool and no dependency.
	govulncheck = "golang.org/x/vuln/cmd/govulncheck@v1.9.0"
	// vulnsOff leaves the check out.
	vulnsOff = "off"
)

// finding is one line of govulncheck's JSON, as far as it is used (golang.org/x/vuln/internal/govulncheck, Message).
type finding struct {
	Finding *struct {
		OSV   string `json:"osv"`
		Fixed string `json:"fixed_version"`
		Trace []struct {
			Module  string `json:"module"`
			Version string `json:"version"`
			Package string `json:"package"`
		} `json:"trace"`
	} `json:"finding"`
}

// checkVulnerabilities refuses programs in the directory native that contain a package with a known vulnerability. A
// vulnerability in another package of a module is none of theirs.
func checkVulnerabilities(ctx context.Context, o options, native string, programs ...images.Program) error {
	if o.vulnDB == vulnsOff {
		fmt.Fprintln(os.Stderr, "release: known vulnerabilities are not looked for")
		return nil
	}
	var errs []error
	for _, p := range programs {
		found, err := vulnerabilitiesOf(ctx, o, p, filepath.Join(native, p.Name))
		if err != nil {
			return fmt.Errorf("look for vulnerabilities of %s: %w\nVULNDB=URL names another database, file:///DIR a "+
				"copy, and VULNDB=%s leaves this out", p.Name, err, vulnsOff)
		}
		for _, v := range found {
			errs = append(errs, fmt.Errorf("%s contains %s", p.Name, v))
		}
	}
	return errors.Join(errs...)
}

// vulnerabilitiesOf asks about the modules of a program. It is stripped, so that govulncheck takes every package of a
// module as contained: the sources say which are.
func vulnerabilitiesOf(ctx context.Context, o options, p images.Program, program string) ([]string, error) {
	contained, err := containedIn(ctx, o.source, p.Package)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "go", "run", govulncheck, "-db", o.vulnDB, "-mode", "binary", "-format", "json",
		program)
	cmd.Dir = o.source
	cmd.Env = append(os.Environ(), "GOFLAGS=-trimpath")
	var said bytes.Buffer
	cmd.Stderr = &said
	raw, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, bytes.TrimSpace(said.Bytes()))
	}
	var out []string
	for d := json.NewDecoder(bytes.NewReader(raw)); ; {
		var f finding
		if err := d.Decode(&f); errors.Is(err, io.EOF) {
			slices.Sort(out)
			return slices.Compact(out), nil
		} else if err != nil {
			return nil, fmt.Errorf("read what govulncheck says: %w", err)
		}
		if f.Finding == nil || len(f.Finding.Trace) == 0 || !contained[f.Finding.Trace[0].Package] {
			continue
		}
		at, cure := f.Finding.Trace[0], "no version mends it yet"
		if f.Finding.Fixed != "" {
			cure = "move the module to " + f.Finding.Fixed
		}
		out = append(out, fmt.Sprintf("%s in package %s (%s): %s", f.Finding.OSV, at.Package,
			strings.TrimSuffix(at.Module+"@"+at.Version, "@"), cure))
	}
}

// containedIn are the packages that a program is made of.
func containedIn(ctx context.Context, source, program string) (map[string]bool, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-deps", program)
	cmd.Dir = source
	raw, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list packages of %s: %w", program, err)
	}
	out := map[string]bool{}
	for line := range strings.Lines(string(raw)) {
		out[strings.TrimSpace(line)] = true
	}
	return out, nil
}
