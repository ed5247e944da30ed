package pages

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// insideEnv tells this program that it is on the machine of its own.
const insideEnv = "DAYONE_TEST_PAGES"

func TestMain(m *testing.M) {
	flag.Parse() // for testing.Short
	if os.Getenv(insideEnv) != "" || testing.Short() || os.Geteuid() != 0 {
		os.Exit(m.Run())
	}
	os.Exit(enter())
}

// enter runs this program again with mounts, processes, a name and a network of its own: the pages' paths and addresses
// can be there, and nothing of them stays.
func enter() int {
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	cmd := exec.Command("unshare", append([]string{"--mount", "--net", "--uts", "--ipc", "--pid", "--fork",
		"--kill-child", "--mount-proc", self}, os.Args[1:]...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return exit.ExitCode()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "make a machine of its own:", err)
		return 1
	}
	return 0
}
