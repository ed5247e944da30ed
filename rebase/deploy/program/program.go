package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"dayone.dev/dayone/rebase/deploy"
)

// Runner runs a host program and gives its standard output; tests put their own in its place.
type Runner func(ctx context.Context, name string, args ...string) ([]byte, error)

// Run runs it for real. Its last words on standard error are in the error.
func Run(ctx context.Context, name string, args ...string) ([]byte, error) {
	out, text, err := run(ctx, "C", name, args)
	if err != nil {
		return nil, programFault(name+" "+strings.Join(args[:min(1, len(args))], " "), text, err)
	}
	return out, nil
}

// OSTree runs the ostree program and gives its output. In plain C its libarchive refuses names that are not ASCII.
func OSTree(ctx context.Context, args ...string) (string, error) {
	out, text, err := run(ctx, "C.UTF-8", "ostree", args)
	if err != nil {
		return "", fault("ostree "+strings.Join(args[:min(2, len(args))], " "), text, text, ostreeReported[:], err)
	}
	return strings.TrimRight(string(out), "\n"), nil // leading blanks mean something in `admin status`
}

func run(ctx context.Context, locale, name string, args []string) (out []byte, text string, err error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL="+locale)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	return stdout.Bytes(), stderr.String(), err
}

// phrase is the class of a failure by what a program said.
type phrase struct {
	words []string
	class deploy.Class
	next  string
}

// ostreeReported is what ostree says; its text is the only thing that tells.
var ostreeReported = [...]phrase{ //nolint:gochecknoglobals // a constant in all but type
	{[]string{"No space left on device", "min-free-space"}, deploy.ClassDiskFull,
		"free space on the file systems of /sysroot and /boot"},
	{[]string{"Failed to find kernel"}, deploy.ClassNoKernel,
		"build the image from a bootable OS image (usr/lib/modules/VERSION/vmlinuz)"},
	{[]string{"/etc merge"}, deploy.ClassEtcConflict, "move the local file out of the way"},
}

// reported is what rpm-ostree and bootc say, and the class of it. Both hand on the words of the same programs: the
// image proxy (containers/image), ostree-ext and libostree. The first line that matches counts.
var reported = [...]phrase{ //nolint:gochecknoglobals // a constant in all but type
	{[]string{"Updates and deployments are driven by"}, deploy.ClassConfig,
		"stop the updates driver (Fedora CoreOS: zincati.service), or use an rpm-ostree that knows --bypass-driver"},
	{[]string{"Transaction in progress"}, deploy.ClassInternal, "wait until the other transaction has ended"},
	{[]string{"certificate has expired"}, deploy.ClassExpired,
		"set this node's clock, or renew the registry's certificate"},
	{[]string{"x509:"}, deploy.ClassUntrusted,
		"put the registry's CA, world-readable, into /etc/containers/certs.d/HOST:PORT/ca.crt"},
	{[]string{"permission denied"}, deploy.ClassConfig,
		"make /etc/containers and all in it world-readable: the program that fetches is not root"},
	{[]string{"corrupted blob", "bytes in blob, got"}, deploy.ClassCorrupted,
		"push the image again; nothing of the damaged copy was used"},
	{[]string{"unauthorized", "authentication required", "StatusCode: 401"}, deploy.ClassUnauthorized,
		"check the pull credential in /run/ostree/auth.json or /etc/ostree/auth.json (the first one that exists counts)"},
	{[]string{"denied", "403 Forbidden", "403 (Forbidden)", "StatusCode: 403"}, deploy.ClassForbidden,
		"allow this node's registry user to pull from that repository"},
	{[]string{"manifest unknown", "name unknown", "StatusCode: 404"}, deploy.ClassNotFound,
		"check that the image was pushed to that repository, and that its digest is right"},
	{[]string{"unexpected HTTP status: 5", "StatusCode: 5", "toomanyrequests"}, deploy.ClassRegistry,
		"look at the registry's log"},
	{[]string{"Invalid path: ", "Can't replace file with directory: "}, deploy.ClassHostile,
		"rebuild the image without that entry"},
	{[]string{"does not have ostree.bootable label"}, deploy.ClassNotBootable, "build it from a bootable OS image"},
	{[]string{"has architecture", "for architecture"}, deploy.ClassArchitecture,
		"build the image for this node's architecture"},
	{[]string{"Failed to find kernel"}, deploy.ClassNoKernel,
		"build the image from a bootable OS image (usr/lib/modules/VERSION/vmlinuz)"},
	{[]string{"No space left on device", "min-free-space"}, deploy.ClassDiskFull,
		"free space on the file systems of /sysroot and /boot"},
	{[]string{"connection refused", "no such host", "no route to host", "i/o timeout", "network is unreachable",
		"unexpected EOF", `": EOF`, "connection reset"}, deploy.ClassUnreachable,
		"check that the registry runs and that this node reaches it (address, DNS, firewall)"},
}

// programFault classifies what rpm-ostree or bootc said before it failed.
func programFault(op, text string, err error) error {
	return fault(op, text, ofMirrors(text), reported[:], err)
}

// fault classifies a failure by the first phrase of which a word is in the decisive part of a program's text.
func fault(op, text, decisive string, phrases []phrase, err error) error {
	f := &deploy.Fault{Class: deploy.ClassInternal, Op: "run " + op,
		Err: fmt.Errorf("%w: %s", err, strings.TrimSpace(tail(text, 2000)))}
	for _, p := range phrases {
		if slices.ContainsFunc(p.words, func(word string) bool { return strings.Contains(decisive, word) }) {
			f.Class, f.Next = p.class, p.next
			return f
		}
	}
	if errors.Is(err, exec.ErrNotFound) {
		f.Class, f.Next = deploy.ClassNotOSTree, "install it, or choose another deployer"
	}
	return f
}

func tail(s string, n int) string {
	if len(s) > n {
		return "…" + s[len(s)-n:]
	}
	return s
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
