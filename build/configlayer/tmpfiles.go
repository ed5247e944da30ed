package configlayer

import (
	"fmt"
	"sort"
	"strings"

	"dayone.dev/dayone/build/basetree"
)

const tmpfilesPath = "/usr/lib/tmpfiles.d/50-dayone-config.conf"

// tmpfilesLine quotes the path as tmpfiles.d(5) wants it: specifiers begin with %, C escapes are understood in quotes.
func tmpfilesLine(kind, path, rest string) string {
	return fmt.Sprintf("%s %s %s", kind, tmpfilesPathField(path), rest)
}

func tmpfilesPathField(path string) string {
	escaped := strings.ReplaceAll(path, "%", "%%")
	if !strings.ContainsAny(escaped, " \t\"'\\") {
		return escaped
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(escaped) + `"`
}

// tmpfilesArgument is the last field: it runs to the end of the line and is not unquoted, only specifiers count.
func tmpfilesArgument(s string) string { return strings.ReplaceAll(s, "%", "%%") }

func (c *compiler) writeTmpfiles() {
	if len(c.tmpfiles) == 0 {
		return
	}
	sort.Strings(c.tmpfiles)
	c.add("storage", tmpfilesPath, Entry{Path: tmpfilesPath, Kind: basetree.Regular, Mode: defaultFileMode,
		Content: []byte(strings.Join(c.tmpfiles, "\n") + "\n")})
}
