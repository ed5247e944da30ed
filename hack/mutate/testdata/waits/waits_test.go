package waits

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// TestWaits writes the numbers of its process and of its child's into the file that it is told, and waits for the child.
func TestWaits(t *testing.T) {
	if !positive(1) {
		t.Fatal("1 is positive")
	}
	child := exec.Command("sleep", "3600")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	numbers := fmt.Sprintln(os.Getpid(), child.Process.Pid)
	if err := os.WriteFile(os.Getenv("DAYONE_TEST_WAITS"), []byte(numbers), 0o600); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
}
