package configlayer

import (
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/BurntSushi/toml"

	"dayone.dev/dayone/build/basetree"
)

const (
	// kargsDir is where bootc, and no other program, reads an image's kernel arguments. Source: bootc documentation,
	// "Kernel arguments".
	kargsDir  = "/usr/lib/bootc/kargs.d"
	kargsPath = kargsDir + "/50-dayone-config.toml"
)

// KernelArguments are a rendered config's, which are not part of its Ignition config.
type KernelArguments struct {
	// List has one or more arguments in each string, as spec.kernelArguments has.
	List []string
	// Bootc means that the base is a bootc image: hosts that bootc manages take kernel arguments from the image and from
	// nowhere else.
	Bootc bool
	// Architecture is Go's name of the image's.
	Architecture string
}

// kernelArguments writes the file for bootc. Hosts with rpm-ostree or plain ostree do not read it: there the node's
// agent sets the arguments of the deployment, each only if it is not there yet, so that none has one twice.
func kernelArguments(s source, d *draft) {
	const in = "spec.kernelArguments"
	if len(s.kernel.List) == 0 {
		return
	}
	if !s.kernel.Bootc {
		d.placed(in, atDeployment, "the base is no bootc image: the agent sets them when it stages the image")
		return
	}
	inBase := baseArguments(s.tree, s.kernel.Architecture, d)
	var words []string
	for i, line := range s.kernel.List {
		if strings.Count(line, `"`)%2 != 0 || strings.ContainsFunc(line, unprintable) {
			f := d.place
			f.Path, f.Rule, f.Next = index(in, i), "kernel-argument", "write it as on the kernel's command line"
			d.report.Errorf(f,
				"a kernel argument has a quote without its other one, or a character that no command line can hold")
			return
		}
		for _, word := range splitArguments(line) {
			if !slices.Contains(words, word) && !slices.Contains(inBase, word) {
				words = append(words, word)
			}
		}
	}
	d.placed(in, inKargs,
		"bootc sets them from the image; elsewhere the agent sets them when it stages the image, and the file is not read")
	if len(words) == 0 {
		return
	}
	for i, word := range words {
		words[i] = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(word) + `"`
	}
	d.add(in, kargsPath, textFile(kargsPath, []string{"kargs = [" + strings.Join(words, ", ") + "]"}))
}

func unprintable(r rune) bool {
	return r == unicode.ReplacementChar || unicode.IsControl(r) && r != '\t' && r != '\n'
}

// baseArguments are what the base's own files give this architecture: bootc adds up all files and does not look for
// doubles.
func baseArguments(tree *basetree.Tree, goarch string, d *draft) []string {
	// Rust's names, which bootc uses
	machine, ok := map[string]string{"amd64": "x86_64", "arm64": "aarch64", "ppc64le": "powerpc64"}[goarch]
	if !ok {
		machine = goarch
	}
	var out []string
	for p, content := range tree.Contents {
		if path.Dir(p) != kargsDir || path.Ext(p) != ".toml" || p == kargsPath {
			continue
		}
		var file struct {
			Kargs         []string `toml:"kargs"`
			Architectures []string `toml:"match-architectures"`
		}
		if err := toml.Unmarshal(content, &file); err != nil {
			f := d.place
			f.Path, f.Rule, f.Next = p, "kernel-argument", "fix the file in the base image"
			d.report.Warnf(f, "the base image has kernel arguments that bootc cannot read: %v", err)
			continue
		}
		if len(file.Architectures) == 0 || slices.Contains(file.Architectures, machine) {
			out = append(out, splitArguments(strings.Join(file.Kargs, " "))...)
		}
	}
	return out
}

// splitArguments splits at blanks outside of double quotes. Source: Linux, admin-guide/kernel-parameters.rst.
func splitArguments(line string) []string {
	quoted := false
	return strings.FieldsFunc(line, func(r rune) bool {
		if r == '"' {
			quoted = !quoted
		}
		return !quoted && (r == ' ' || r == '\t' || r == '\n')
	})
}
