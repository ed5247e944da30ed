package build

import (
	"context"
	"fmt"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestDeadlineIsNoRegistryFailure: the error of a context that is over looks like one of the network.
func TestDeadlineIsNoRegistryFailure(t *testing.T) {
	f := registryFailure("base", fmt.Errorf("read files of base image: %w", context.DeadlineExceeded))
	assert.Equal(t, ClassPolicy, f.Class)
	assert.Equal(t, "raise the time limit", f.Next)
	f = registryFailure("base", &url.Error{Op: "Get", URL: "https://registry.example.com/v2/",
		Err: context.DeadlineExceeded})
	assert.Equal(t, ClassTransient, f.Class, "a registry that did not answer in time")
}
