package build

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"dayone.dev/dayone/build/appendengine"
	"dayone.dev/dayone/build/basetree"
	"dayone.dev/dayone/build/configlayer"
	"dayone.dev/dayone/build/containerfile"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests/machineconfig"
)

// input is a request with its texts parsed: what a build knows before it asks a registry.
type input struct {
	Request
	address, baseDigest, configHash string
	ignition                        types.Config
	// file is the parsed Containerfile, nil without one; lint are the warnings about it, refusal is why it cannot be
	// built.
	file    *containerfile.File
	lint    []report.Finding
	refusal error
}

// base is the base image with its file tree. Image and new files get the time created.
type base struct {
	image   *appendengine.Image
	tree    *basetree.Tree
	created time.Time
}

// source is all that an engine builds from: input, base and the layer of the rendered config.
type source struct {
	input
	base  base
	layer *configlayer.Layer
}

// normalise parses what the request holds.
func normalise(r Request, id identity) (input, error) {
	in := input{Request: r, address: id.hash(), baseDigest: id.Base, configHash: id.Config}
	in.file, in.lint, in.refusal = lint(r)
	var err error
	raw := r.Config.Spec.Config.Raw
	if len(raw) == 0 {
		raw = []byte(`{"ignition":{"version":"3.5.0"}}`)
	}
	if in.ignition, err = machineconfig.ParseRendered(raw); err != nil {
		return in, &Failure{Class: ClassUser, Step: "config", Message: err.Error(),
			Next: "fix the Ignition config of the MachineConfigs", Cause: err}
	}
	return in, nil
}

// containerfileName is the file that findings about the Containerfile name.
func (r Request) containerfileName() string { return cmp.Or(r.ContainerfileName, "Containerfile") }

// lint parses the Containerfile and checks it before anything is read or started. Warnings come also with an error.
func lint(r Request) (file *containerfile.File, warnings []report.Finding, err error) {
	if r.Containerfile == "" {
		return nil, nil, nil
	}
	file, findings := containerfile.Lint(r.Containerfile, containerfile.LintOptions{
		Place:    report.Finding{File: r.containerfileName()},
		Contexts: slices.Collect(maps.Keys(r.Options.Contexts))})
	all := report.Report{Findings: findings}
	if err := all.Err(); err != nil {
		return nil, all.Warnings(), refused("containerfile", err, "fix the Containerfile")
	}
	return file, all.Warnings(), nil
}

// compile makes the layer of the rendered config for this base.
func compile(in input, from base) (source, []report.Finding, error) {
	_, architecture, _ := strings.Cut(in.platform(), "/")
	_, bootc := from.image.Labels()["containers.bootc"]
	layer, findings, err := configlayer.Compile(in.ignition, configlayer.Options{
		Tree: from.tree, Created: from.created, Place: report.Finding{File: in.Config.Name, Path: "spec.config"},
		KernelArguments: configlayer.KernelArguments{List: in.Config.Spec.KernelArguments, Bootc: bootc,
			Architecture: architecture},
	})
	if len(report.Of(err)) > 0 {
		err = refused("config", err, "fix the MachineConfigs")
	}
	return source{input: in, base: from, layer: layer}, findings, err
}

// configured is the file tree of the image configs: what the instructions of the Containerfile see.
func (s source) configured() *basetree.Tree {
	tree := &basetree.Tree{Entries: maps.Clone(s.base.tree.Entries), Contents: maps.Clone(s.base.tree.Contents)}
	if tree.Entries == nil {
		tree.Entries = map[string]basetree.Entry{}
	}
	if tree.Contents == nil {
		tree.Contents = map[string][]byte{}
	}
	for _, e := range s.layer.Entries {
		delete(tree.Entries, e.Path)
		delete(tree.Contents, e.Path)
		if e.Whiteout {
			continue
		}
		tree.Entries[e.Path] = e.InTree()
		if e.Kind == basetree.Regular {
			tree.Contents[e.Path] = e.Content
		}
	}
	return tree
}
