package kubetest_test

import (
	"time"
)

// What another process does is looked at this often and this long: a limit for machines that are very busy.
const (
	waitLimit = time.Minute
	waitEvery = 20 * time.Millisecond
)
