package buildahengine

import (
	"fmt"
	"os"
	"strings"

	"github.com/containers/buildah"

	"dayone.dev/dayone/build/buildahengine/children"
)

// Init must be the first call in main and in TestMain of every program that builds: buildah and this package run the
// program again under other names. Most of these calls end before main, in package children. When it returns true the
// work of such a call is done and main must return.
func Init() bool {
	if buildah.InitReexec() {
		return true
	}
	if strings.TrimSuffix(os.Args[0], children.UserNamespaceTail) != children.Worker {
		return false
	}
	if err := runWorker(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}
