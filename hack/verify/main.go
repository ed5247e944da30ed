// Command verify checks what the compiler does not: import direction, sizes, package comments, forbidden names, what
// the node agent links, and that the documentation's commands and links exist.
//
//	source tree -> one list of faults -> exit status 1 when there is any
package main

import (
	"fmt"
	"os"
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
		{"package comments", packageComments},
		{"forbidden declarations", forbidden},
		{"node agent's dependencies", agentDependencies},
		{"documentation", documentation},
	}
}

func main() {
	t, err := loadTree(".")
	if err != nil {
		fmt.Fprintln(os.Stderr, "verify:", err)
		os.Exit(2)
	}
	bad := 0
	for _, c := range checks() {
		faults, err := c.run(t)
		if err != nil {
			faults = append(faults, err.Error())
		}
		for _, f := range faults {
			fmt.Printf("verify: %s: %s\n", c.name, f)
		}
		bad += len(faults)
	}
	if bad > 0 {
		fmt.Printf("verify: %d faults\n", bad)
		os.Exit(1)
	}
	fmt.Printf("verify: %d packages, %d files: no fault\n", len(t.packages), len(t.files))
}
