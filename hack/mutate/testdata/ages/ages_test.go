package ages

import "testing"

func TestAdult(t *testing.T) {
	for age, want := range map[int]bool{17: false, 18: true, 19: true} {
		if got, _ := Adult(age); got != want {
			t.Errorf("Adult(%d) = %v", age, got)
		}
	}
	if adult, _ := Adult(-1); adult {
		t.Error("a negative age is no adult")
	}
}
