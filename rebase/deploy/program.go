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

// told is what rpm-ostree and bootc say, and the class of it. Both hand on the words of the same programs: the image
// proxy (containers/image), ostree-ext and libostree. The first line that matches counts.
var told = [...]struct { //nolint:gochecknoglobals // a constant in all but type
	words []string
	class Class
	next  string
}{
	{[]string{"Transaction in progress"}, ClassInternal, "wait until the other transaction has ended"},
	{[]string{"certificate has expired"}, ClassExpired, "set this node's clock, or renew the registry's certificate"},
	{[]string{"x509:"}, ClassUntrusted,
		"put the registry's CA, world-readable, into /etc/containers/certs.d/HOST:PORT/ca.crt"},
	{[]string{"permission denied"}, ClassConfig,
		"make /etc/containers and all in it world-readable: the program that fetches is not root"},
	{[]string{"corrupted blob", "bytes in blob, got"}, ClassCorrupted,
		"push the image again; nothing of the damaged copy was used"},
	{[]string{"unauthorized", "authentication required", "StatusCode: 401"}, ClassUnauthorized,
		"check the pull credential in /run/ostree/auth.json or /etc/ostree/auth.json (the first one that exists counts)"},
	{[]string{"denied", "403 Forbidden", "403 (Forbidden)", "StatusCode: 403"}, ClassForbidden,
		"allow this node's registry user to pull from that repository"},
	{[]string{"manifest unknown", "name unknown", "StatusCode: 404"}, ClassNotFound,
		"check that the image was pushed to that repository, and that its digest is right"},
	{[]string{"unexpected HTTP status: 5", "StatusCode: 5", "toomanyrequests"}, ClassRegistry,
		"look at the registry's log"},
	{[]string{"Invalid path: ", "Can't replace file with directory: "}, ClassHostile,
		"rebuild the image without that entry"},
	{[]string{"does not have ostree.bootable label"}, ClassNotBootable, "build it from a bootable OS image"},
	{[]string{"has architecture", "for architecture"}, ClassArchitecture, "build the image for this node's architecture"},
	{[]string{"Failed to find kernel"}, ClassNoKernel,
		"build the image from a bootable OS image (usr/lib/modules/VERSION/vmlinuz)"},
	{[]string{"No space left on device", "min-free-space"}, ClassDiskFull,
		"free space on the file systems of /sysroot and /boot"},
	{[]string{"connection refused", "no such host", "no route to host", "i/o timeout", "network is unreachable",
		"unexpected EOF", `": EOF`, "connection reset"}, ClassUnreachable,
		"check that the registry runs and that this node reaches it (address, DNS, firewall)"},
}

// programFault classifies what a program said before it failed.
func programFault(op, text string, err error) error {
	f := &Fault{Class: ClassInternal, Op: "run " + op, Err: fmt.Errorf("%w: %s", err, strings.TrimSpace(tail(text, 2000)))}
	decisive := ofMirrors(text)
	for _, c := range told {
		for _, word := range c.words {
			if strings.Contains(decisive, word) {
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

// ofMirrors gives what is said of the mirrors, where there are some: the registry behind them may not exist yet, and
// its failure says nothing. Source of the words: containers/image, docker/docker_image_src.go.
func ofMirrors(text string) string {
	if _, rest, ok := strings.Cut(text, "(Mirrors also failed: ["); ok {
		if mirrors, _, ok := strings.Cut(rest, "]): "); ok {
			return mirrors
		}
	}
	return text
}

// bootArguments reads the running kernel's command line, without what ostree adds itself.
func bootArguments(root string) ([]string, error) {
	raw, err := os.ReadFile(root + "/proc/cmdline")
	if err != nil {
		return nil, fmt.Errorf("read kernel command line: %w", err)
	}
	return bootEntry{options: string(raw)}.kernelArguments(), nil
}
