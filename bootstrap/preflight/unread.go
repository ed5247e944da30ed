package preflight

import (
	"strings"

	"dayone.dev/dayone/installconfig/report"
)

// unreadKinds warns of the objects that dayone does not read. In the standalone flow nobody applies them; in the
// openshift flow the installer's bootstrap does. Each file gets one warning: a program may have written many objects
// into it.
func unreadKinds(_ *directory, in *Input, rep *report.Report) {
	if in.openshift() {
		return
	}
	for items := in.Set.Skipped; len(items) > 0; {
		first, names := items[0], []string{}
		for len(items) > 0 && items[0].Origin.File == first.Origin.File {
			names = append(names, strings.TrimSpace(items[0].Object.Kind+" "+items[0].Object.Name))
			items = items[1:]
		}
		at := first.Origin.At("", "kind-not-read")
		at.Next = "apply it when the cluster runs: kubectl apply -f " + first.Origin.File
		rep.Warnf(at, "dayone neither reads nor applies %s", strings.Join(names, ", "))
	}
}
