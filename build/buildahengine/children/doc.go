// Package children does early what the container libraries start the program again for: unpack a layer, copy files
// below a root, read a file there. They do it some thirty times in a build, and a program with Kubernetes' clients
// spends 28 ms before main. It does the same for process 1 of a build's namespaces.
//
//	names of such calls -> done here, before the other half of the packages is initialised -> exit
//
// By the language's specification packages are initialised in the order of their import paths, each when what it
// imports is. This one imports little, so that of 630 packages the 300 that come later are left out: 13 ms. Calls under
// other names, such as Worker, go on to main (buildahengine.Init).
package children

import (
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	_ "github.com/containers/buildah/copier"         // registers its name
	_ "github.com/containers/buildah/pkg/chrootuser" // as well
	_ "github.com/containers/storage/pkg/chrootarchive"
	"github.com/containers/storage/pkg/reexec"
)

var _ = end()

// end does the work of such a call and ends the program; in any other process it does nothing.
func end() struct{} {
	// A program may have put off the collection of garbage until main, which such a call never reaches.
	before := debug.SetGCPercent(100)
	if reexec.Init() {
		os.Exit(0)
	}
	if strings.TrimSuffix(os.Args[0], UserNamespaceTail) == ProcessOne {
		fmt.Fprintln(os.Stderr, processOne()) // it returns if there is no worker whose exit code would be this one's
		os.Exit(1)
	}
	debug.SetGCPercent(before)
	return struct{}{}
}
