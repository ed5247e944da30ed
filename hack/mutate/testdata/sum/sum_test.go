package sum

import "testing"

func TestJoin(t *testing.T) {
	if Join("a", "b") != "ab" {
		t.Error("it must join")
	}
}
