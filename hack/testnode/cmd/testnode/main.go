// Command testnode looks after ostree test hosts: start some by hand, enter those that a run has kept, end runs.
//
//	command line -> testnode.Lab, new or attached -> its nodes started, entered, rebooted, ended
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"dayone.dev/dayone/hack/testnode"
)

func main() {
	testnode.Init()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	code, err := run(ctx, os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "testnode:", err)
		code = 1
	}
	stop()
	os.Exit(code)
}
