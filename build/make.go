package build

import (
	"context"
	"maps"
	"path"
	"slices"

	"github.com/google/go-containerregistry/pkg/v1/types"

	"dayone.dev/dayone/build/appendengine"
	"dayone.dev/dayone/build/basetree"
	"dayone.dev/dayone/build/configlayer"
	"dayone.dev/dayone/build/containerfile"
	"dayone.dev/dayone/build/scrub"
	"dayone.dev/dayone/installconfig/report"
)

// createdByConfig is the history text of the rendered config's layer.
const createdByConfig = "dayone: rendered config"

// BaseLayers is how many of an image's layers its base has: all of them if dayone did not build it. createdBy are the
// texts of the image's history for each layer, lowest first.
func BaseLayers(createdBy []string, layers int) int {
	if at := slices.Index(createdBy, createdByConfig); at >= 0 && at < layers {
		return at
	}
	return layers
}

// built is what an engine reports beside the image. The append engine has nothing to report.
type built struct {
	ContainerImage
	findings []report.Finding
}

// choose gives the append engine's plan, or nil for the container engine, and the reason.
func choose(src source) (*containerfile.Append, string) {
	if src.needsExtensions() {
		return nil, "the config asks for extensions or another kernel"
	}
	plan, reason := &containerfile.Append{}, "there is no Containerfile"
	if src.file != nil {
		plan, reason = src.file.PlanAppend(src.base.image.Config.Config.Env)
	}
	if plan != nil && src.Options.Engine == EngineBuildah {
		return nil, "the request asks for it"
	}
	return plan, reason
}

// make builds the image with the engine that choose picked and pushes it by digest.
func (b *Builder) make(ctx context.Context, client *appendengine.Client, src source, plan *containerfile.Append,
	reason string, t *timeline) (*appendengine.Image, built, error) {
	switch {
	case plan != nil:
		layers, err := copied(plan.Files, src.configured(), src)
		if err != nil {
			return nil, built{}, err
		}
		change := src.change(append(src.configLayers(), layers...))
		change.Env, change.Empty, change.Labels = plan.Env, plan.Empty, maps.Clone(plan.Labels)
		if change.Labels == nil {
			change.Labels = map[string]string{}
		}
		maps.Copy(change.Labels, src.labels()) // ours win: a node trusts them
		t.enter("push")
		image, err := push(ctx, client, "push", src.base.image, src.Target, change)
		return image, built{}, err
	case src.Options.Engine == EngineAppend:
		return nil, built{}, &Failure{Class: ClassUser, Step: "request",
			Message: "the append engine cannot build this: " + reason,
			Next:    "let dayone choose the engine, or remove the instruction"}
	case b.o.Engine == nil:
		return nil, built{}, &Failure{Class: ClassInfrastructure, Step: "containerfile",
			Message: "this program has no engine that runs containers",
			Next:    "use a Containerfile with LABEL, ENV and COPY of inline files only"}
	}
	return contain(ctx, client, src, b.o, t)
}

func push(ctx context.Context, client *appendengine.Client, step string, image *appendengine.Image, target string,
	change appendengine.Change) (*appendengine.Image, error) {
	pushed, err := client.Append(ctx, image, target, "", change)
	if err != nil {
		return nil, registryFailure(step, err)
	}
	return pushed, nil
}

func (s source) labels() map[string]string {
	return map[string]string{
		LabelAddress: s.address, LabelRenderedConfig: s.Config.Name, LabelConfigHash: s.configHash, LabelPool: s.Pool,
		LabelBaseDigest: s.baseDigest,
	}
}

// change is what becomes of an image that is built on the base.
func (s source) change(layers []appendengine.Layer) appendengine.Change {
	return appendengine.Change{Layers: layers, Created: s.base.created, Base: s.baseDigest,
		BaseLayers: len(s.base.image.Manifest.Layers)}
}

func (s source) configLayers() []appendengine.Layer {
	if s.layer.Empty() {
		return nil
	}
	return []appendengine.Layer{{Blob: s.layer.Gzip(), DiffID: s.layer.DiffID, CreatedBy: createdByConfig}}
}

// copied makes a layer of each COPY with inline files, as a container build does. It adds the files to the tree.
func copied(files []containerfile.CopiedFile, tree *basetree.Tree, src source) ([]appendengine.Layer, error) {
	var out []appendengine.Layer
	for len(files) > 0 {
		first := files[0]
		var entries []configlayer.Entry
		for ; len(files) > 0 && files[0].Line == first.Line; files = files[1:] {
			f := files[0]
			refuse := func(message, next string) error {
				return &Failure{Class: ClassUser, Step: "containerfile", Line: f.Line, Instruction: f.Instruction,
					Message: message, Next: next}
			}
			at, err := tree.Resolve(f.Path)
			if err != nil {
				return nil, refuse(err.Error(), "choose another path")
			}
			if known, ok := tree.Lookup(at); ok && known.Kind == basetree.Directory {
				return nil, refuse(f.Path+" is a directory", "end the destination with / to copy into it")
			}
			entries = append(entries, newParents(at, f, tree)...)
			entries = append(entries, configlayer.Entry{Path: at, Kind: basetree.Regular, Mode: f.Mode, UID: f.UID, GID: f.GID,
				Content: f.Content})
		}
		layer, err := configlayer.Pack(entries, tree, src.base.created)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			tree.Entries[e.Path] = e.InTree()
		}
		out = append(out, appendengine.Layer{Blob: layer.Gzip(), DiffID: layer.DiffID,
			CreatedBy: "/bin/sh -c #(nop) " + first.Instruction})
	}
	return out, nil
}

// newParents are the directories that a COPY makes: they get its owner, as in a container build.
func newParents(p string, f containerfile.CopiedFile, tree *basetree.Tree) []configlayer.Entry {
	var out []configlayer.Entry
	for dir := path.Dir(p); dir != "/"; dir = path.Dir(dir) {
		if _, ok := tree.Lookup(dir); ok {
			break
		}
		out = append(out, configlayer.Entry{Path: dir, Kind: basetree.Directory, Mode: 0o755, UID: f.UID, GID: f.GID})
	}
	return out
}

// contain pushes base and config as the image configs, lets the container engine build on it, and seals the outcome: it
// sets the labels and removes names of registries.
func contain(ctx context.Context, client *appendengine.Client, src source, o BuilderOptions,
	t *timeline) (*appendengine.Image, built, error) {
	var out built
	t.enter("images")
	if err := findImages(ctx, client, src.input); err != nil {
		return nil, out, err
	}
	t.enter("push")
	configs, err := push(ctx, client, "push", src.base.image, src.Target, src.change(src.configLayers()))
	if err != nil {
		return nil, out, err
	}
	job, err := containerJob(src, configs)
	if err != nil {
		return nil, out, err
	}
	job.Progress = o.Progress
	if len(src.TrustBundle) > 0 {
		mounts, findings, err := trustMounts(src, o.StateDir)
		if err != nil {
			return nil, out, err
		}
		job.Options.Mounts, out.findings = append(slices.Clone(job.Options.Mounts), mounts...), findings
	}
	t.enter("containerfile")
	if out.ContainerImage, err = o.Engine.BuildContainer(ctx, job); err != nil {
		return nil, out, whyNotGot(ctx, client, src.input, err)
	}
	t.steps = append(t.steps, out.Steps...)
	t.enter("seal")
	image, err := client.Read(ctx, src.Target+"@"+out.Digest, src.platform())
	if err != nil {
		return nil, out, registryFailure("seal", err)
	}
	seal := src.change(nil)
	seal.Labels = src.labels()
	image, err = push(ctx, client, "seal", image, src.Target, seal)
	return image, out, err
}

// containerJob composes the Containerfile and names the images that it may use.
func containerJob(src source, configs *appendengine.Image) (ContainerJob, error) {
	composed, err := containerfile.Compose(src.Containerfile, containerfile.Additions{
		Extensions: src.Config.Spec.Extensions, KernelType: src.Config.Spec.KernelType,
	})
	if len(report.Of(err)) > 0 {
		return ContainerJob{}, refused("config", err, "")
	}
	if err != nil {
		return ContainerJob{}, err
	}
	contexts := map[string]Image{}
	maps.Copy(contexts, src.Options.Contexts)
	contexts[containerfile.Base] = Image{Reference: src.base.image.Ref.String()}
	contexts[composed.ConfigsContext] = Image{Reference: configs.Ref.String()}
	if src.Extensions != nil && src.usesExtensions() {
		contexts[containerfile.Extensions] = *src.Extensions
	}
	layers := make([]BaseLayer, 0, len(src.base.image.Manifest.Layers))
	for i, l := range src.base.image.Manifest.Layers {
		diff := src.base.image.Config.RootFS.DiffIDs[i] // as many as layers: the client has seen to it
		layers = append(layers, BaseLayer{Digest: l.Digest.String(), DiffID: diff.String()})
	}
	return ContainerJob{
		Address: src.address, Contexts: contexts, Containerfile: composed.Text, Skip: composed.Skip, Target: src.Target,
		Platform: src.platform(), Docker: src.base.image.MediaType == types.DockerManifestSchema2,
		Created: src.base.created.Unix(), Registry: src.Registry, Options: src.Options,
		Hidden: scrub.Config(src.ignition), BaseLayers: layers,
	}, nil
}
