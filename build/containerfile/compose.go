package containerfile

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/openshift/imagebuilder/dockerfile/parser"

	"dayone.dev/dayone/installconfig/report"
)

// Extensions is the name of the image with extension packages in a composed Containerfile.
const Extensions = "dayone-extensions"

// configsImage is what a generated stage configs starts from; a stage and an image cannot have one name.
const configsImage = "dayone-configs"

// Additions are parts of a rendered config that packages carry out.
type Additions struct {
	Extensions []string
	// KernelType is default, realtime or 64k-pages; empty is default.
	KernelType string
}

// Composed is a Containerfile ready for an engine.
type Composed struct {
	Text string
	// Skip is how many lines stand before the user's first.
	Skip int
	// ConfigsContext is the name under which the image with the rendered config is passed.
	ConfigsContext string
}

// packages are what an extension installs. Source: the extension table of the machine config operator's daemon
// (pkg/controller/common, supported extensions of RHCOS 4.2x).
func packages(extension string) []string {
	switch extension {
	case "ipsec":
		return []string{"NetworkManager-libreswan", "libreswan"}
	case "kerberos":
		return []string{"krb5-workstation", "libkadm5"}
	case "kernel-devel":
		return []string{"kernel-devel", "kernel-headers"}
	case "sandboxed-containers":
		return []string{"kata-containers"}
	case "sysstat":
		return []string{"sysstat"}
	case "two-node-ha":
		return []string{"pacemaker", "pcs", "fence-agents-all"}
	case "usbguard":
		return []string{"usbguard"}
	}
	return nil
}

// kernels gives the packages that a kernel type brings and that take the place of the default kernel's.
func kernels(kind string) (install []string, ok bool) {
	switch kind {
	case "", "default":
		return nil, true
	case "realtime":
		return []string{"kernel-rt-core", "kernel-rt-modules", "kernel-rt-modules-core", "kernel-rt-modules-extra",
			"kernel-rt-kvm"}, true
	case "64k-pages":
		return []string{"kernel-64k-core", "kernel-64k-modules", "kernel-64k-modules-core", "kernel-64k-modules-extra"}, true
	}
	return nil, false
}

const (
	repositoryFile = "/etc/yum.repos.d/dayone-extensions.repo"
	mountedAt      = "/run/dayone-extensions"
	// packagesIn is where an extensions image keeps its repository.
	packagesIn = mountedAt + "/usr/share/rpm-ostree/extensions/"
)

// Compose puts what the rendered config asks for in packages before the user's text, as a stage named configs, so that
// the user's FROM configs finds them installed. An empty text means that this stage is the image. Without additions the
// text is untouched. A text that cannot be parsed is an error.
func Compose(text string, add Additions) (*Composed, error) {
	steps, err := add.steps()
	if err != nil {
		return nil, err
	}
	if len(steps) == 0 {
		if text == "" {
			text = "FROM " + Configs + "\n"
		}
		return &Composed{Text: text, ConfigsContext: Configs}, nil
	}
	file, err := Parse(text)
	if err != nil {
		return nil, err
	}
	heading, text := file.behind()
	lines := append(heading, "FROM "+configsImage+" AS "+Configs)
	lines = append(lines, steps...)
	return &Composed{Text: strings.Join(lines, "\n") + "\n" + text, Skip: len(lines), ConfigsContext: configsImage}, nil
}

// behind makes the text one that can stand behind another stage, with its lines where they were. What counts only
// before the first FROM is moved: the ARG instructions, in a line each, and the directive that names the escape
// character, which must be the first line of all. The stages' numbers become one more.
func (f *File) behind() (heading []string, rest string) {
	if f.escape != parser.DefaultEscapeToken {
		heading = append(heading, "# escape="+string(f.escape))
	}
	lines := strings.Split(strings.TrimPrefix(f.Text, byteOrderMark), "\n")
	for _, in := range f.Heading {
		if in.Keyword == "ARG" {
			heading = append(heading, in.Text)
			clear(lines[in.Line-1 : in.End])
		}
	}
	for i, s := range f.Stages {
		f.renumber(lines[s.Line-1:s.end], s.From, i)
		for _, in := range s.Instructions {
			for _, flag := range slices.Backward(in.Flags) { // a flag with its new number may look like one behind it
				f.renumber(lines[in.Line-1:in.End], flag, i)
			}
		}
	}
	return heading, strings.Join(lines, "\n")
}

// renumber makes the number of an earlier stage one more, in the first word of these lines that is like this one:
// FROM's name or a flag.
func (f *File) renumber(lines []string, word string, stage int) {
	fields := strings.Split(word, ",")
	for i, field := range fields {
		key, name := "", field
		if strings.HasPrefix(word, "--") {
			before, after, ok := strings.Cut(field, "from=")
			if !ok || !slices.Contains([]string{"", "--", "--mount="}, before) {
				continue
			}
			key, name = before+"from=", after
		}
		if at := f.stageIndex(name, stage); at >= 0 && strconv.Itoa(at) == name {
			fields[i] = key + strconv.Itoa(at+1)
		}
	}
	if next := strings.Join(fields, ","); next != word {
		replaceWord(lines, word, next)
	}
}

// replaceWord changes a word between spaces where it stands first.
func replaceWord(lines []string, word, next string) {
	place := regexp.MustCompile(`(?:^|\s)(` + regexp.QuoteMeta(word) + `)(?:\s|$)`)
	for i, line := range lines {
		if at := place.FindStringSubmatchIndex(line); at != nil {
			lines[i] = line[:at[2]] + next + line[at[3]:]
			return
		}
	}
}

// byteOrderMark is passed over at the very beginning of a text only.
const byteOrderMark = "\ufeff"

// steps are the instructions, one line each: lines are counted.
func (a Additions) steps() ([]string, error) {
	var names []string
	for i, extension := range a.Extensions {
		list := packages(extension)
		if list == nil {
			return nil, invalid(fmt.Sprintf("spec.extensions[%d]", i), fmt.Sprintf("unknown extension %q", extension))
		}
		names = append(names, list...)
	}
	kernel, ok := kernels(a.KernelType)
	if !ok {
		return nil, invalid("spec.kernelType", fmt.Sprintf("unknown kernel type %q", a.KernelType))
	}
	if len(names) == 0 && len(kernel) == 0 {
		return nil, nil
	}
	repository := `printf '[dayone-extensions]\nname=extensions\nbaseurl=file://` + packagesIn +
		`\nenabled=1\ngpgcheck=0\n' >` + repositoryFile
	all := []string{"set -e", repository}
	if len(names) > 0 {
		list := strings.Join(names, " ")
		all = append(all,
			"if command -v rpm-ostree >/dev/null 2>&1; then rpm-ostree install "+list+"; else dnf -y install "+list+"; fi")
	}
	if len(kernel) > 0 {
		all = append(all, kernelSwap(kernel))
	}
	all = append(all, "rm "+repositoryFile, tidy)
	return []string{"RUN --mount=type=bind,from=" + Extensions + ",source=/,target=" + mountedAt + " " +
		strings.Join(all, "; ")}, nil
}

// defaultKernel are the packages of the default kernel; not every system has all of them.
const defaultKernel = "kernel kernel-core kernel-modules kernel-modules-core kernel-modules-extra"

// kernelSwap replaces the default kernel by the other in one transaction: there is never a system without a
// kernel, nor one with two. dnf does it where the base has it, else rpm-ostree. A base that has this kernel already is
// left alone. dnf's shell ends well whatever happened in it, so the outcome is looked at.
func kernelSwap(kernel []string) string {
	install := strings.Join(kernel, " ")
	dnf := "for p in " + defaultKernel + "; do if rpm -q $p >/dev/null 2>&1; then echo remove $p; fi; done >" +
		transaction +
		"; printf 'install " + install + "\\nrun\\n' >>" + transaction + "; dnf -y shell " + transaction + "; rm " +
		transaction + "; rpm -q " + install
	ostree := "rpm-ostree override remove " + defaultKernel + " --install " + strings.Join(kernel, " --install ")
	return "if rpm -q " + install +
		" >/dev/null 2>&1; then echo this kernel is installed; elif command -v dnf >/dev/null 2>&1; then " + dnf + "; else " +
		ostree + "; fi"
}

const (
	// transaction is the script for dnf's shell.
	transaction = "/run/dayone-kernel-swap"
	// tidy removes what package managers leave in directories of the machine.
	tidy = "rm -rf /var/cache/dnf /var/lib/dnf /var/log/dnf* /var/log/hawkey.log; " +
		"if command -v ostree >/dev/null 2>&1; then ostree container commit; fi"
)

func invalid(path, message string) error {
	return &report.Invalid{Findings: []report.Finding{{Severity: report.Error, Path: path, Rule: "extensions",
		Message: message, Next: "use one that the extensions image has"}}}
}
