package analyze

import (
	"regexp"
	"strings"
)

// cause is a kind of fault with what to do about it. Errors in a bundle are texts: the forms match what our own
// programs, the registries' protocol and the kernel say, which is stable.
type cause struct {
	id, summary, next string
	// says are the forms of the text; the first cause of which one is found counts.
	says *regexp.Regexp
}

// causes in the order in which they are looked for: what explains most comes first. A full disk also breaks connections
// and builds.
func causes() []cause {
	return []cause{
		{"disk-full", "a disk of the bootstrap host is full",
			"make room or give the host a larger disk (three times the OS image and 8 GiB more), then run dayone bootstrap " +
				"again: it continues where it ended",
			regexp.MustCompile(
				`(?i)no space left on device|507 insufficient storage|free space on the registry|disk quota exceeded|` +
					`file too large|bundle is full on disk`)},
		{"port-taken", "another program on the bootstrap host has a port that dayone needs",
			"stop that program (bootstrap/network/listening.txt names it), or choose another port in install-config.yaml",
			regexp.MustCompile(`\[port-taken\]|address already in use|cannot listen on`)},
		{causeMemory, "the kernel killed a process because memory ran out",
			"give the bootstrap host more memory, then run dayone bootstrap again",
			regexp.MustCompile(`(?i)out of memory|oom-kill|oom_kill|cannot allocate memory`)},
		{"registry-credentials", "a registry refused the credentials",
			"correct the Secret or auth file for that registry; dayone prepare --check-registry tests it beforehand",
			regexp.MustCompile(
				`(?im)(^|[\s(:])40[13]([\s:;,)]|$)|unauthori[sz]ed|authentication required|access denied|\bdenied:|forbidden|` +
					`invalid username/password`)},
		{"registry-certificate", "a registry's certificate is not trusted",
			"name the CA that signs it: --base-ca for the base image, registry.caFile for the final registry",
			regexp.MustCompile(`(?i)x509:|certificate signed by unknown authority|tls: failed to verify`)},
		{"base-image", "the base image cannot be used",
			"name an OS image that exists in the registry and boots (bootc or rpm-ostree) on the nodes' architecture",
			regexp.MustCompile(
				`\[base-not-bootable\]|\[base-platform\]|(?i)manifest[ _]unknown|name[ _]unknown|` +
					`repository name not known|reading manifest .*not found|read base image .*no such file or directory`)},
		{"mosc-without-image", "a MachineOSConfig without an image keeps the Machine Config Operator from rendering",
			"take it out of the file, which has other objects, too; dayone moves only files away that have nothing else",
			regexp.MustCompile(`has a MachineOSConfig without an image`)},
		{causeContainerfile, "a command of the Containerfile failed",
			"correct the instruction; dayone build runs the build on any machine",
			regexp.MustCompile(`build failed \(user\)|(?m)^class: user$`)},
		{"limit", "a build went over a limit", "raise onClusterLayering.build, or do less in the Containerfile",
			regexp.MustCompile(`build failed \(policy\)|(?m)^class: policy$`)},
		{"registry-unreachable", "a registry does not answer",
			"check that the registry runs and can be reached from the bootstrap host (name, port, proxy), then run dayone " +
				"bootstrap again",
			regexp.MustCompile(
				`(?i)\[registry-unreachable\]|connection refused|no such host|i/o timeout|connection reset|` +
					`network is unreachable|no route to host|tls handshake timeout|\bEOF\b|(^|[\s(:])50[234] `)},
		{"build", "an image build failed", "read the build's log below bootstrap/dayone/build-logs",
			regexp.MustCompile(`build failed \(|(?m)^class: `)},
	}
}

// causeUnknown is the cause of texts that no known cause explains.
const causeUnknown = "other"

// Causes to which rules pay attention.
const (
	causeMemory        = "out-of-memory"
	causeContainerfile = "containerfile"
)

// explained is the verdict that follows from a text alone. The text's own next step counts before the cause's.
func explained(status Status, phase, text string) Verdict {
	c := explain(text)
	v := Verdict{Status: status, Phase: shorten(phase), Cause: c.id, Summary: c.summary, Next: c.next}
	if next := nextOf(text); next != "" {
		v.Next = shorten(next)
	}
	return v
}

// explain finds the cause behind a text.
func explain(text string) cause {
	for _, c := range causes() {
		if c.says.MatchString(text) {
			return c
		}
	}
	return cause{id: causeUnknown, summary: "it failed for a reason that dayone does not know",
		next: "read the evidence and the lines around it in its file"}
}

// placed takes a refusal apart: PLACE: MESSAGE [RULE] (NEXT), as report.Finding prints it.
var placed = regexp.MustCompile(`\[([a-z0-9-]+)\](?: \((.+?)\))?$`)

// nextLine is how the condition of a build in the cluster says what to do (build/machineosbuild).
var nextLine = regexp.MustCompile(`(?m)^next: (.+)$`)

// nextOf is the next step that a message carries itself; it knows more than a cause's.
func nextOf(text string) string {
	if m := nextLine.FindStringSubmatch(text); m != nil {
		return m[1]
	}
	line, _, _ := strings.Cut(text, "\n")
	if m := placed.FindStringSubmatch(line); m != nil {
		return m[2]
	}
	// build.Failure: message; next; full log: path
	if strings.Contains(line, "build failed (") {
		parts := strings.Split(line, "; ")
		for i := len(parts) - 1; i > 0; i-- {
			if !strings.HasPrefix(parts[i], "full log: ") {
				return parts[i]
			}
		}
	}
	return ""
}
