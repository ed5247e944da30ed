package handover_test

import (
	"os"
	"testing"
	"time"

	"dayone.dev/dayone/build/buildahengine"
	"dayone.dev/dayone/hack/kube/kubetest"
)

// What other goroutines and processes do is looked at this often and this long: limits for a machine that is very busy.
const (
	waitLimit = 3 * time.Minute
	waitEvery = 50 * time.Millisecond
)

var shared kubetest.Shared

func TestMain(m *testing.M) {
	if buildahengine.Init() {
		return
	}
	os.Exit(shared.Main(m, kubetest.Options{}))
}
