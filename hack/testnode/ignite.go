package testnode

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"

	"golang.org/x/sys/unix"

	"dayone.dev/dayone/hack/statefile"
)

// ignitionBinary is Ignition's program: distributions keep it in dracut's directory, out of PATH. "" when it is not
// installed.
func ignitionBinary() string {
	const path = "/usr/lib/dracut/modules.d/30ignition/ignition"
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// ignitionRoot is where Ignition sees the deployment, in mounts of its own. Every system has this directory.
const ignitionRoot = "/mnt"

// ignition is what the stage must know.
type ignition struct {
	Program string `json:"program"`
	Root    string `json:"root"` // the deployment
	Var     string `json:"var"`  // the stateroot's /var
	Scratch string `json:"scratch"`
}

// Ignite applies an Ignition config to the node before its first boot, as the initramfs of a new machine does: the real
// program fetches what pointer refers to over the node's network and writes the result to the first deployment.
// pointer's spec version must be one that the installed Ignition knows (3.3.0 for Debian's). A server that does not
// answer is asked until ctx ends. What Ignition printed goes to the node's log.
func (n *Node) Ignite(ctx context.Context, pointer []byte) (err error) {
	if on, err := n.Running(); err != nil || on {
		return errors.Join(err, fmt.Errorf("ignite %s: only before the first boot", n.Name))
	}
	e, err := bootEntryOf(n.Sysroot, false)
	if err != nil {
		return err
	}
	root, err := e.deployment(n.Sysroot)
	if err != nil {
		return err
	}
	scratch := filepath.Join(n.dir, "ignition")
	if err := os.MkdirAll(scratch, 0o700); err != nil {
		return fmt.Errorf("ignite %s: %w", n.Name, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }() // the config holds secrets
	i := ignition{Program: ignitionBinary(), Root: root, Var: filepath.Join(root, "../../var"), Scratch: scratch}
	if err := errors.Join(os.WriteFile(filepath.Join(scratch, "pointer.ign"), pointer, 0o600),
		statefile.Write(filepath.Join(n.dir, igniteFile), i)); err != nil {
		return fmt.Errorf("ignite %s: %w", n.Name, err)
	}
	console, err := os.OpenFile(n.log, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("ignite %s: %w", n.Name, err)
	}
	defer console.Close()
	if err := n.runIgnition(ctx, console); err != nil {
		return fmt.Errorf("ignite %s: %w (see %s)", n.Name, err, n.log)
	}
	return nil
}

// runIgnition runs the stage in the node's network and in mounts of its own, and ends all of it with the context.
func (n *Node) runIgnition(ctx context.Context, console *os.File) error {
	cmd := again(n.lab.options.Program, stageIgnite, n.dir)
	cmd.Stdout, cmd.Stderr = console, console
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS, Setpgid: true, Pdeathsig: unix.SIGKILL}
	over, err := startIn(n.lab.Network.path(n.Name), cmd)
	if err != nil {
		return err
	}
	select {
	case err := <-over:
		return err
	case <-ctx.Done():
		err := unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
		<-over
		return errors.Join(ctx.Err(), ignore(err, unix.ESRCH))
	}
}

// ignite is the stage: fetch, then write the files onto the deployment.
func ignite(dir string) error {
	var i ignition
	if err := statefile.Read(filepath.Join(dir, igniteFile), &i); err != nil {
		return err
	}
	if i.Program == "" {
		return errors.New("ignition is not installed; run hack/setup/setup.sh")
	}
	if err := i.run("fetch"); err != nil {
		return err
	}
	made, err := i.mounts()
	if err != nil {
		return fmt.Errorf("mount for ignition: %w", err)
	}
	err = i.run("files")
	if made != "" {
		err = errors.Join(err, unix.Unmount(filepath.Join(ignitionRoot, "etc/selinux"), 0), os.Remove(made))
	}
	return err
}

// mounts gives the deployment its /var and, for Debian's Ignition, which relabels for SELinux whatever the system, a
// policy that says nothing. It gives the directory it had to make for that, if any.
func (i ignition) mounts() (made string, err error) {
	policy := filepath.Join(i.Scratch, "selinux")
	bin := filepath.Join(i.Scratch, "bin")
	selinux := filepath.Join(i.Root, "etc/selinux")
	contexts := filepath.Join(policy, "targeted/contexts/files")
	for _, d := range []string{contexts, bin, filepath.Join(i.Var, "home")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return "", err
		}
	}
	for name, text := range map[string]string{
		filepath.Join(policy, "config"):          "SELINUX=disabled\nSELINUXTYPE=targeted\n",
		filepath.Join(contexts, "file_contexts"): "",
		filepath.Join(bin, "setfiles"):           "#!/bin/sh\nexit 0\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
			return "", err
		}
	}
	if err := os.Mkdir(selinux, 0o755); err == nil {
		made = selinux
	} else if !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return made, err
	}
	// Ignition writes a user's files as that user, who may not pass root's directories above the deployment.
	m := &mounter{root: ignitionRoot}
	m.bind(i.Root, "")
	m.bind(i.Var, "var")
	m.bind(policy, "etc/selinux")
	return made, m.err
}

// ownLine is a message of Ignition's. It prints the config as well, secrets included, in lines that are none: those are
// dropped.
//
//nolint:gochecknoglobals // compiled once
var ownLine = regexp.MustCompile(`^(INFO|WARNING|ERROR|CRITICAL|EMERGENCY)\s*:`)

// run runs one of Ignition's stages.
func (i ignition) run(stage string) error {
	in := func(name string) string { return filepath.Join(i.Scratch, name) }
	args := []string{"--platform=file", "--stage=" + stage, "--config-cache=" + in("ignition.json"), "--state-file=" +
		in("state"), "--log-to-stdout"}
	if stage == "files" {
		args = append(args, "--root="+ignitionRoot)
	} else {
		args = append(args, "--neednet="+in("neednet"))
	}
	cmd := exec.Command(i.Program, args...)
	cmd.Env = []string{"IGNITION_CONFIG_FILE=" + in("pointer.ign"), "PATH=" + in("bin") + ":/usr/sbin:/usr/bin:/sbin:/bin"}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("run ignition: %w", err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if ownLine.MatchString(lines.Text()) {
			fmt.Println("ignition: " + lines.Text())
		}
	}
	err = errors.Join(lines.Err(), cmd.Wait())
	if err != nil {
		return fmt.Errorf("run ignition stage %s: %w", stage, err)
	}
	return nil
}
