package school

import "testing"

func TestAdmits(t *testing.T) {
	if !Admits(17) || Admits(18) {
		t.Error("it takes children only")
	}
}
