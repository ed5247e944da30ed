// Package waits is for the tests of mutate: its test never ends.
package waits

func positive(n int) bool { return n > 0 }
