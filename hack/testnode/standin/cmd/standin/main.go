// Command standin is a STAND-IN for rpm-ostree and bootc on test nodes; it plays the one that it is called as.
//
//	name and arguments -> standin -> output and exit code of rpm-ostree or bootc
package main

import (
	"context"
	"fmt"
	"os"

	"dayone.dev/dayone/hack/testnode/standin"
	"dayone.dev/dayone/rebase/deploy"
)

func main() {
	// Both real programs work in a mount namespace of their own, too.
	if err := deploy.MakeSysrootWritable(); err != nil {
		fmt.Fprintln(os.Stderr, "stand-in:", err)
		os.Exit(1)
	}
	os.Exit(standin.Main(context.Background(), os.Args, os.Stdout, os.Stderr))
}
