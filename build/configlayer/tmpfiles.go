package configlayer

import (
	"slices"
	"strings"
)

const tmpfilesPath = "/usr/lib/tmpfiles.d/50-dayone-config.conf"

// tmpfilesLine quotes the path as tmpfiles.d(5) wants it: specifiers begin with %, C escapes are understood in quotes.
func tmpfilesLine(kind, path, rest string) string {
	path = strings.ReplaceAll(path, "%", "%%")
	if strings.ContainsAny(path, " \t\"'\\") {
		path = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(path) + `"`
	}
	return kind + " " + path + " " + rest
}

// tmpfilesArgument is the last field: it runs to the end of the line and is not unquoted, only specifiers count.
func tmpfilesArgument(s string) string { return strings.ReplaceAll(s, "%", "%%") }

// tmpfiles writes the lines that directories and links left.
func tmpfiles(_ source, d *draft) {
	if len(d.tmpfiles) == 0 {
		return
	}
	slices.Sort(d.tmpfiles)
	d.add("storage", tmpfilesPath, textFile(tmpfilesPath, d.tmpfiles))
}
