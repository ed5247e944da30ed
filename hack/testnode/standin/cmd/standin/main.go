// Command standin is a STAND-IN for rpm-ostree and bootc on test nodes; it plays the one that it is called as.
//
//	name and arguments -> standin -> output and exit code of rpm-ostree or bootc
package main

import (
	"context"
	"os"

	"dayone.dev/dayone/hack/testnode/standin"
)

func main() {
	os.Exit(standin.Main(context.Background(), os.Args, os.Stdout, os.Stderr))
}
