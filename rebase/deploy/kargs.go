package deploy

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// StageOptions change what the next boot takes, beside the image.
type StageOptions struct {
	// AppendKernelArguments are added unless the booted deployment has them already, word for word.
	AppendKernelArguments []string
	// DeleteKernelArguments are removed where they are there; what is to be appended as well stays.
	DeleteKernelArguments []string
	// Transfer counts what arrives of the image; nil: no count.
	Transfer *Transfer
	// Source is the mirror or registry that had the image a moment ago; it is asked first, so that nobody waits twice for
	// one that is away. Deployers whose programs choose themselves do not look at it. "" is none.
	Source string
}

// KernelArguments gives the single arguments that o removes and adds. What is in both stays.
func (o StageOptions) KernelArguments() (remove, add []string) {
	add = words(o.AppendKernelArguments)
	return slices.DeleteFunc(words(o.DeleteKernelArguments), func(word string) bool { return slices.Contains(add, word) }),
		add
}

// ChangesKernelArguments tells whether o asks for something else than the arguments now.
func ChangesKernelArguments(now []string, o StageOptions) bool {
	remove, add := o.KernelArguments()
	return slices.ContainsFunc(remove, func(word string) bool { return slices.Contains(now, word) }) ||
		slices.ContainsFunc(add, func(word string) bool { return !slices.Contains(now, word) })
}

// LacksKernelArguments gives the words of want that are not among the arguments now; none when those are not known.
func LacksKernelArguments(now, want []string) (missing []string) {
	if now == nil {
		return nil
	}
	return slices.DeleteFunc(words(want), func(word string) bool { return slices.Contains(now, word) })
}

// ComposefsBooted tells whether the running kernel's command line names a composefs image: bootc booted it without
// ostree. Source: bootc, composefs_booted.
func ComposefsBooted(root string) bool {
	raw, err := os.ReadFile(filepath.Join(root, "proc/cmdline"))
	return err == nil && slices.ContainsFunc(SplitArguments(string(raw)), isComposefs)
}

func isComposefs(word string) bool { return strings.HasPrefix(word, "composefs=") }

// BootArguments reads the running kernel's command line, without what ostree or bootc add themselves.
func BootArguments(root string) ([]string, error) {
	raw, err := os.ReadFile(filepath.Join(root, "proc/cmdline"))
	if err != nil {
		return nil, fmt.Errorf("read kernel command line: %w", err)
	}
	return WithoutOSTree(string(raw)), nil
}

// WithoutOSTree splits a kernel command line and leaves out the argument that names the deployment.
func WithoutOSTree(line string) []string {
	return slices.DeleteFunc(SplitArguments(line), func(word string) bool {
		return strings.HasPrefix(word, "ostree=") || isComposefs(word)
	})
}

// words splits lines of kernel arguments.
func words(lines []string) []string { return SplitArguments(strings.Join(lines, " ")) }

// SplitArguments splits a kernel command line at blanks outside of double quotes. Source: Linux, kernel-parameters.rst.
func SplitArguments(line string) []string {
	words := []string{}
	var word strings.Builder
	quoted := false
	for _, c := range line {
		switch {
		case c == '"':
			quoted = !quoted
			word.WriteRune(c)
		case !quoted && (c == ' ' || c == '\t' || c == '\n'):
			if word.Len() > 0 {
				words = append(words, word.String())
				word.Reset()
			}
		default:
			word.WriteRune(c)
		}
	}
	if word.Len() > 0 {
		words = append(words, word.String())
	}
	return words
}
