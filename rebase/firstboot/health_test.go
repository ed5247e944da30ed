package firstboot

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestKubeletIsWaitedForWhereSomethingWantsItAndNothingHoldsItBack(t *testing.T) {
	for _, c := range []struct {
		name string
		want bool
	}{
		{"LoadState=loaded\nWantedBy=kubelet.service\nRequiredBy=\nAfter=network.target\n", true},
		{"LoadState=loaded\nWantedBy=\nRequiredBy=crio.service\nAfter=\n", true},
		{"LoadState=loaded\nWantedBy=\nRequiredBy=\nAfter=\n", false},
		{"LoadState=loaded\nWantedBy=kubelet.service\nAfter=network.target dayone-firstboot.service\n", false},
		{"LoadState=not-found\nWantedBy=kubelet.service\nRequiredBy=\nAfter=\n", false},
		{"LoadState=masked\n", false},
	} {
		assert.Equal(t, c.want, waitsForKubelet(c.name), c.name)
	}
}
