// Package sum has one place to change, and the change does not compile.
package sum

import "fmt"

// Refuse always fails.
func Refuse() error {
	return fmt.Errorf("refused")
}
