// Package school uses package ages.
package school

import "dayone.dev/dayone/hack/mutate/testdata/ages"

// Admits reports whether the school takes somebody of this age.
func Admits(age int) bool { return ages.Child(age) }
