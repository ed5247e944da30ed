package deploy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// program runs a host program and gives its standard output; tests put their own in its place.
type program func(ctx context.Context, name string, args ...string) ([]byte, error)

// runProgram runs it for real. Its last words on standard error are in the error.
func runProgram(ctx context.Context, name string, args ...string) ([]byte, error) {
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return nil, programFault(name+" "+strings.Join(args[:min(1, len(args))], " "), errs.String(), err)
	}
	return out.Bytes(), nil
}

// programFault classifies what rpm-ostree and bootc say; both hand on the words of the same libraries (containers-image-proxy, libostree).
func programFault(op, text string, err error) error {
	f := &Fault{Class: ClassInternal, Op: "run " + op, Err: fmt.Errorf("%w: %s", err, strings.TrimSpace(tail(text, 2000)))}
	for _, c := range []struct {
		words []string
		class Class
		next  string
	}{
		{[]string{"certificate has expired"}, ClassExpired, "set this node's clock, or renew the registry's certificate"},
		{[]string{"x509:"}, ClassUntrusted, "put the registry's CA, world-readable, into /etc/containers/certs.d/HOST:PORT/ca.crt"},
		{[]string{"unauthorized", "authentication required"}, ClassUnauthorized, "check the pull credential in /run/ostree/auth.json or /etc/ostree/auth.json (the first one that exists counts)"},
		{[]string{"denied", "403 Forbidden"}, ClassForbidden, "allow this node's registry user to pull from that repository"},
		{[]string{"manifest unknown", "name unknown"}, ClassNotFound, "check that the image was pushed to that repository, and that its digest is right"},
		{[]string{"does not have ostree.bootable label"}, ClassNotBootable, "build it from a bootable OS image"},
		{[]string{"No space left on device", "min-free-space"}, ClassDiskFull, "free space on the file systems of /sysroot and /boot"},
		{[]string{"connection refused", "no such host", "no route to host", "i/o timeout", "network is unreachable"}, ClassUnreachable, "check that the registry runs and that this node reaches it (address, DNS, firewall)"},
	} {
		for _, word := range c.words {
			if strings.Contains(text, word) {
				f.Class, f.Next = c.class, c.next
				return f
			}
		}
	}
	if errors.Is(err, exec.ErrNotFound) {
		f.Class, f.Next = ClassNotOSTree, "install it, or choose another deployer"
	}
	return f
}

// bootArguments reads the running kernel's command line, without what ostree adds itself.
func bootArguments(root string) ([]string, error) {
	raw, err := os.ReadFile(root + "/proc/cmdline")
	if err != nil {
		return nil, fmt.Errorf("read kernel command line: %w", err)
	}
	return bootEntry{options: string(raw)}.kernelArguments(), nil
}
