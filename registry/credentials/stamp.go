package credentials

import (
	"fmt"
	"os"
	"strings"
)

// Stamp changes when one of the files does: a program that runs then reads its accounts or certificates again.
func Stamp(files ...string) string {
	var out strings.Builder
	for _, name := range files {
		if fi, err := os.Stat(name); err == nil {
			fmt.Fprintln(&out, fi.ModTime().UnixNano(), fi.Size())
		} else {
			fmt.Fprintln(&out, err)
		}
	}
	return out.String()
}
