package main

import "github.com/spf13/cobra"

// isolations: nothing is built here.
var isolations []string

// worked: there are no workers.
func worked() bool { return false }

// program is kubectl dayone, whatever its name: what dayone does beside it needs Linux.
func program([]string) *cobra.Command { return newPlugin() }
