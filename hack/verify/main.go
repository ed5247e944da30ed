// Command verify checks what the compiler does not: import direction, sizes, dead code, package comments, forbidden
// names, what the node agent links, that the documentation's commands and links exist, that each dependency has a
// reason, that tests prove the threat model, and that TLS has a minimum.
//
//	source tree -> checks -> list of faults less the exceptions -> exit status 1 when there is any
package main

import (
	"fmt"
	"os"
	"strings"
)

// check is one rule over the whole tree.
type check struct {
	name string
	run  func(t *tree) ([]string, error)
}

func checks() []check {
	return []check{
		{"import direction", importDirection},
		{"sizes", sizes},
		{"types", types},
		{"dead code", deadCode},
		{"unused exports", unusedExports},
		{"package comments", packageComments},
		{"forbidden declarations", forbidden},
		{"test tables", testTables},
		{"node agent's dependencies", agentDependencies},
		{"documentation", documentation},
		{"dependencies", dependencies},
		{"threat model", threats},
		{"TLS", transport},
	}
}

// exception is a fault that stays, with its reason. The list holds ten at the most: more means that a rule is wrong.
type exception struct{ fault, reason string }

func exceptions() []exception {
	return []exception{
		{"no program calls Bundle.Names", "tests list what a log bundle holds"},
	}
}

const maxExceptions = 10

func main() {
	root, err := os.Getwd()
	if err != nil {
		fmt.Fprintln(os.Stderr, "verify:", err)
		os.Exit(2)
	}
	t, err := loadTree(root)
	if err != nil {
		fmt.Fprintln(os.Stderr, "verify:", err)
		os.Exit(2)
	}
	bad := faults(t, checks(), exceptions())
	for _, f := range bad {
		fmt.Println("verify: " + f)
	}
	if len(bad) > 0 {
		fmt.Printf("verify: %d faults\n", len(bad))
		os.Exit(1)
	}
	fmt.Printf("verify: %d packages, %d files: no fault\n", len(t.packages), len(t.files))
}

// faults runs the checks and leaves out what the exceptions name. An exception that matches nothing is a fault itself.
func faults(t *tree, checks []check, except []exception) []string {
	var out []string
	matched := make([]bool, len(except))
	for _, c := range checks {
		found, err := c.run(t)
		if err != nil {
			found = append(found, err.Error())
		}
		for _, f := range found {
			if !excepted(f, except, matched) {
				out = append(out, c.name+": "+f)
			}
		}
	}
	for i, e := range except {
		if !matched[i] {
			out = append(out, fmt.Sprintf("exceptions: nothing matches %q: remove it", e.fault))
		}
	}
	if len(except) > maxExceptions {
		out = append(out, fmt.Sprintf("exceptions: %d of them (limit %d)", len(except), maxExceptions))
	}
	return out
}

func excepted(fault string, except []exception, matched []bool) bool {
	for i, e := range except {
		if strings.Contains(fault, e.fault) {
			matched[i] = true
			return true
		}
	}
	return false
}
