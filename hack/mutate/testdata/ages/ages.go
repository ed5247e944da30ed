// Package ages is a small package with a test that misses something: what mutate must find.
package ages

import "errors"

// ErrNegative is the error of an age below zero.
var ErrNegative = errors.New("negative age")

// Adult reports whether somebody of this age may sign.
func Adult(age int) (bool, error) {
	if age < 0 {
		return false, ErrNegative
	}
	return age >= 18, nil
}

// Child is the opposite of Adult; no test calls it.
func Child(age int) bool {
	return age < 18
}
