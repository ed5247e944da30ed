// Command mutate makes small faults in one package's code, one at a time, and lists those that its tests, and those of
// further packages that are named, do not notice.
//
//	package files -> mutants (a flipped condition, a dropped error, a dropped call) -> one test program -> survivors
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	flags := flag.NewFlagSet("mutate", flag.ContinueOnError)
	count := flags.Int("count", 100, "how many mutants to try; 0 tries all")
	seed := flags.Int64("seed", time.Now().UnixNano(), "which mutants: the same seed chooses the same ones")
	limit := flags.Duration("limit", 0, "time of one test run; a mutant that takes longer counts as noticed "+
		"(default: several times as long as the run without a change)")
	memory := flags.Uint64("memory", 4, "GiB of address space of one test run; a mutant that wants more "+
		"counts as noticed")
	full := flags.Bool("full", false, "run the package's long tests too (go test without -short)")
	skip := flags.String("skip", "", "leave out tests whose names match this regular expression, as go test -skip does")
	most := flags.Int("most", 100, "end with status 1 when more than this percentage survives")
	format := flags.String("o", "text", "what to print: text or json")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() == 0 || *format != "text" && *format != "json" {
		return fmt.Errorf("want a package, and further ones whose tests run, too, as in: " +
			"go run ./hack/mutate ./registry/storage ./registry")
	}
	var packages []goPackage
	for _, pattern := range flags.Args() {
		p, err := load(ctx, pattern)
		if err != nil {
			return err
		}
		packages = append(packages, p)
	}
	pkg := packages[0]
	all, err := pkg.mutants()
	if err != nil {
		return err
	}
	fmt.Fprintf(progress, "mutate: %s has %d places; trying %s with -seed %d\n", pkg.ImportPath, len(all),
		amount(*count, len(all)), *seed)
	t := tester{short: !*full, skip: *skip, limit: *limit, memory: *memory << 30}
	r, err := t.try(ctx, pkg, packages[1:], choose(all, *count, *seed), progress)
	if err != nil {
		return err
	}
	r.Seed, r.Tests = *seed, t.tests(packages)
	if err := r.print(out, *format); err != nil {
		return err
	}
	if r.percent() > *most {
		return fmt.Errorf("%d %% of the mutants survive, at most %d %% may", r.percent(), *most)
	}
	return nil
}

func amount(count, all int) string {
	if count == 0 || count >= all {
		return "all of them"
	}
	return fmt.Sprint(count)
}

// report is what a run found.
type report struct {
	Package string `json:"package"`
	Seed    int64  `json:"seed"`
	// Tests says whose tests ran, and which of them.
	Tests string `json:"tests"`
	// Tried counts the mutants that compile.
	Tried int `json:"tried"`
	// Unreached counts the survivors that no test of the package even executes.
	Unreached int        `json:"unreached"`
	Survivors []survivor `json:"survivors"`
}

// survivor is a mutant that no test of the package noticed.
type survivor struct {
	Place   string `json:"place"`
	Change  string `json:"change"`
	Reached bool   `json:"reached"`
}

func (r report) percent() int {
	return 100 * len(r.Survivors) / r.Tried
}

func (r report) print(out io.Writer, format string) error {
	if format == "json" {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	for _, s := range r.Survivors {
		note := ""
		if !s.Reached {
			note = " (no test runs this line)"
		}
		fmt.Fprintf(out, "%s: %s%s\n", s.Place, s.Change, note)
	}
	_, err := fmt.Fprintf(out,
		"%s: %d of %d mutants survive (%d %%) %s, %d of them on lines that no test runs; -seed %d\n",
		r.Package, len(r.Survivors), r.Tried, r.percent(), r.Tests, r.Unreached, r.Seed)
	return err
}
