package mcobuild

import (
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/build/scrub"
)

// maxText keeps a sentence on a screen, in bytes; the log has all of it.
const maxText = 600

func shorten(s string) string { return machineosbuild.Abbreviate(s, maxText) }

func clean(s string) string { return scrub.Unknown(s) }
