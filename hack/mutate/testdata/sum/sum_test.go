package sum

import "testing"

func TestRefuse(t *testing.T) {
	if Refuse() == nil {
		t.Error("it must fail")
	}
}
