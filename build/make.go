package build

import (
	"context"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/types"

	"dayone.dev/dayone/build/appendengine"
	"dayone.dev/dayone/build/basetree"
	"dayone.dev/dayone/build/configlayer"
	"dayone.dev/dayone/build/containerfile"
	"dayone.dev/dayone/installconfig/report"
)

// createdByConfig is the history text of the layer that this program makes itself.
const createdByConfig = "dayone: rendered config"

// make builds the image with the engine that fits and pushes it by its digest.
func (w *work) make(ctx context.Context) (*appendengine.Pushed, error) {
	plan := w.choose()
	if plan == nil && w.r.Options.Engine == EngineAppend {
		return nil, &Failure{Class: ClassUser, Step: "request", Message: "the append engine cannot build this: " +
			w.result.Reason, Next: "let the engine be chosen, or take the instruction out"}
	}
	if plan != nil {
		return w.append(ctx, plan)
	}
	return w.contain(ctx)
}

// choose says in the result which engine fits and why; the plan is the append engine's, else nil.
func (w *work) choose() *containerfile.Append {
	plan, reason := w.plan()
	if plan != nil && w.r.Options.Engine == EngineBuildah {
		plan, reason = nil, "the request asks for it"
	}
	w.result.Engine, w.result.Reason = EngineBuildah, reason
	if plan != nil {
		w.result.Engine = EngineAppend
	}
	return plan
}

// plan says whether the image can be appended; a nil plan comes with the reason against it.
func (w *work) plan() (*containerfile.Append, string) {
	switch {
	case w.r.needsExtensions():
		return nil, "the config asks for extensions or another kernel"
	case w.file == nil:
		return &containerfile.Append{}, "there is no Containerfile"
	}
	return w.file.PlanAppend(w.base.Config.Config.Env)
}

func (w *work) labels() map[string]string {
	return map[string]string{
		LabelAddress: w.address, LabelRenderedConfig: w.r.Config.Name, LabelConfigHash: w.hash, LabelPool: w.r.Pool,
		LabelBaseDigest: w.result.Inputs.Base,
	}
}

func (w *work) configLayers() []appendengine.Layer {
	if w.layer.Empty() {
		return nil
	}
	return []appendengine.Layer{{Blob: w.layer.Gzip(), DiffID: w.layer.DiffID, CreatedBy: createdByConfig}}
}

// append makes the image without a container.
func (w *work) append(ctx context.Context, plan *containerfile.Append) (*appendengine.Pushed, error) {
	change := w.change()
	change.Layers = w.configLayers()
	change.Env, change.Empty = plan.Env, plan.Empty
	maps.Copy(change.Labels, plan.Labels)
	maps.Copy(change.Labels, w.labels()) // ours win: a node trusts them
	copied, err := w.copied(plan.Files)
	if err != nil {
		return nil, err
	}
	change.Layers = append(change.Layers, copied...)
	w.enter("push")
	pushed, err := w.client.Append(ctx, w.base, w.r.Target, "", change)
	if err != nil {
		return nil, registryFailure("push", err)
	}
	return pushed, nil
}

func (w *work) change() appendengine.Change {
	return appendengine.Change{Labels: w.labels(), Created: w.time, Base: w.result.Inputs.Base,
		BaseLayers: len(w.base.Manifest.Layers)}
}

// copied makes a layer of each COPY with inline files, as a container build does.
func (w *work) copied(files []containerfile.CopiedFile) ([]appendengine.Layer, error) {
	tree, err := w.withConfig()
	if err != nil {
		return nil, err
	}
	var out []appendengine.Layer
	for start := 0; start < len(files); {
		end := start
		var entries []configlayer.Entry
		for ; end < len(files) && files[end].Line == files[start].Line; end++ {
			f := files[end]
			at, err := tree.Resolve(f.Path)
			if err != nil {
				return nil, &Failure{Class: ClassUser, Step: "containerfile", Line: f.Line, Instruction: f.Instruction,
					Message: err.Error(), Next: "choose another path"}
			}
			if known, ok := tree.Lookup(at); ok && known.Kind == basetree.Directory {
				return nil, &Failure{Class: ClassUser, Step: "containerfile", Line: f.Line, Instruction: f.Instruction,
					Message: f.Path + " is a directory", Next: "end the destination with / to copy into it"}
			}
			entries = append(entries, newParents(at, f, tree)...)
			entries = append(entries, configlayer.Entry{Path: at, Kind: basetree.Regular, Mode: f.Mode, UID: f.UID, GID: f.GID,
				Content: f.Content})
		}
		layer, err := configlayer.Pack(entries, tree, w.time)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			tree.Entries[e.Path] = basetree.Entry{Kind: e.Kind, Mode: e.Mode, UID: e.UID, GID: e.GID}
		}
		out = append(out, appendengine.Layer{Blob: layer.Gzip(), DiffID: layer.DiffID, CreatedBy: "/bin/sh -c #(nop) " +
			files[start].Instruction})
		start = end
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

// withConfig is the tree that the user's instructions see.
func (w *work) withConfig() (*basetree.Tree, error) {
	tree := &basetree.Tree{Entries: maps.Clone(w.tree.Entries), Contents: w.tree.Contents}
	if tree.Entries == nil {
		tree.Entries = map[string]basetree.Entry{}
	}
	for _, e := range w.layer.Entries {
		if e.Whiteout {
			delete(tree.Entries, e.Path)
			continue
		}
		tree.Entries[e.Path] = basetree.Entry{Kind: e.Kind, Mode: e.Mode, UID: e.UID, GID: e.GID, Link: e.Link}
	}
	return tree, nil
}

// contain pushes base and config as the image configs, lets the container engine build on it, and seals the outcome:
// labels set, names of registries taken out.
func (w *work) contain(ctx context.Context) (*appendengine.Pushed, error) {
	if w.b.o.Engine == nil {
		return nil, &Failure{Class: ClassInfrastructure, Step: "containerfile",
			Message: "this program has no engine that runs containers",
			Next:    "use a Containerfile with LABEL, ENV and COPY of inline files only"}
	}
	w.enter("images")
	if err := w.findImages(ctx); err != nil {
		return nil, err
	}
	w.enter("push")
	configs, err := w.client.Append(ctx, w.base, w.r.Target, "", appendengine.Change{
		Layers: w.configLayers(), Created: w.time, Base: w.result.Inputs.Base, BaseLayers: len(w.base.Manifest.Layers)})
	if err != nil {
		return nil, registryFailure("push", err)
	}
	job, err := w.job(configs)
	if err != nil {
		return nil, err
	}
	w.enter("containerfile")
	built, err := w.b.o.Engine.BuildContainer(ctx, job)
	w.result.Log, w.result.CacheHits, w.result.Isolation, w.result.IsolationReason = built.Log, built.CacheHits,
		built.Isolation, built.IsolationReason
	if err != nil {
		return nil, err
	}
	w.result.Steps = append(w.result.Steps, built.Steps...)
	w.enter("seal")
	image, err := w.client.Read(ctx, w.r.Target+"@"+built.Digest, w.r.platform())
	if err != nil {
		return nil, registryFailure("seal", err)
	}
	pushed, err := w.client.Append(ctx, image, w.r.Target, "", w.change())
	if err != nil {
		return nil, registryFailure("seal", err)
	}
	return pushed, nil
}

// findImages asks for the images that the Containerfile names itself: the container engine would not say why it has not
// got one. With mirrors it is left to the engine, which knows how to use them.
func (w *work) findImages(ctx context.Context) error {
	if w.file == nil || w.r.Options.RegistriesConf != "" {
		return nil
	}
	for _, use := range w.file.Images() {
		if !strings.Contains(use.Name, "/") || strings.Contains(use.Name, "$") {
			continue // a given image, scratch, or a name that is put together later
		}
		if _, given := w.r.Options.Contexts[use.Name]; given {
			continue
		}
		if err := w.client.Exists(ctx, use.Name); err != nil {
			f := registryFailure("containerfile", err)
			f.Line, f.Instruction = use.Line, use.Name
			if appendengine.StatusOf(err) == http.StatusNotFound {
				f.Class, f.Next = ClassUser, "check the name of the image, and that it exists for this architecture"
			}
			return f
		}
	}
	return nil
}

func (w *work) job(configs *appendengine.Pushed) (ContainerJob, error) {
	composed, err := containerfile.Compose(w.r.Containerfile, containerfile.Additions{
		Extensions: w.r.Config.Spec.Extensions, KernelType: w.r.Config.Spec.KernelType,
	})
	if err != nil {
		if len(report.Of(err)) > 0 {
			return ContainerJob{}, refused("config", err, "")
		}
		return ContainerJob{}, err
	}
	contexts := map[string]Image{}
	maps.Copy(contexts, w.r.Options.Contexts)
	contexts[containerfile.Base] = Image{Reference: w.base.Ref.String()}
	contexts[composed.ConfigsContext] = Image{Reference: configs.Image.Ref.String()}
	if w.r.usesExtensions() && w.r.Extensions != nil {
		contexts[containerfile.Extensions] = *w.r.Extensions
	}
	job := ContainerJob{
		Address: w.address, Contexts: contexts, Containerfile: composed.Text, Skip: composed.Skip, Target: w.r.Target,
		Platform: w.r.platform(), Docker: w.base.MediaType == types.DockerManifestSchema2, Created: w.time.Unix(),
		Registry: w.r.Registry, Options: w.r.Options, Progress: w.b.o.Progress,
	}
	if len(w.r.TrustBundle) > 0 {
		mounts, err := w.trust()
		if err != nil {
			return ContainerJob{}, err
		}
		job.Options.Mounts = append(slices.Clone(job.Options.Mounts), mounts...)
	}
	return job, nil
}
