package render

import (
	"slices"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
)

// Versions are what the renderer takes for its own; MCO compares them with what the input carries.
type Versions struct {
	// Raw must equal the ControllerConfig's annotation generated-by-version, for example v4.20.0-1234-dirty.
	Raw string
	// Hash must equal the annotation generated-by-controller-version of components that carry it; it is set on the result.
	Hash string
	// Payload must be among the versions in the FeatureGate's status, for example 4.20.1.
	Payload string
}

// VersionsOf are the versions of a program of dayone, by its own version: all of one build render as one.
func VersionsOf(program string) Versions {
	return Versions{Raw: program, Hash: program, Payload: program}
}

// UnbuiltPolicy says what a MachineOSConfig without a pre-built image means.
type UnbuiltPolicy int

const (
	// RefuseUnbuilt is MCO's rule at install time: the annotation pre-built-image must be there, unless the object is
	// already seeded.
	RefuseUnbuilt UnbuiltPolicy = iota
	// IgnoreUnbuilt lets such an object contribute nothing: the first rendering of the standalone flow, before the image
	// is built.
	IgnoreUnbuilt
)

// Options tell how to render. The zero value renders as MCO does at install time, with empty versions.
type Options struct {
	Versions Versions
	Unbuilt  UnbuiltPolicy
	// ComponentsOnly takes the Set's MachineConfigs as complete: mirror sets, image config, KubeletConfigs and
	// ContainerRuntimeConfigs add nothing. Pre-built images always count.
	ComponentsOnly bool
	// NeedTemplates refuses the directory of an OpenShift cluster without the MachineConfigs of MCO's templates. Default:
	// such a ControllerConfig may be a standalone user's own.
	NeedTemplates bool
	// Strict refuses what MCO accepts in silence and what is surely wrong; without it the same findings are warnings. The
	// standalone flow sets it; which findings these are is listed in docs/users/rendering.md.
	Strict bool
	// OwnServer says that dayone reads and serves the result, not MCO: it can serve files that only append.
	OwnServer bool
	// Layered names pools that get an image of their own later. MCO will then read their rendered configs more closely,
	// and what it will refuse is refused now. Pools whose objects name such an image always are among them.
	Layered []string
	// Pools renders only the pools of these names; the others are known, but what is wrong with them refuses nothing.
	// Default: all.
	Pools []string
}

// wants says whether a pool is to be rendered.
func (o Options) wants(pool string) bool { return len(o.Pools) == 0 || slices.Contains(o.Pools, pool) }

// Result is what was rendered. Configs and Pools are in the order of pool names, pools of one name once.
type Result struct {
	// Configs holds one rendered MachineConfig a pool.
	Configs []*mcfgv1.MachineConfig
	// Pools are copies of the input's pools with spec.configuration and status.configuration set.
	Pools []*mcfgv1.MachineConfigPool
	// Components lists every MachineConfig that was read or made, in the order of reading and making.
	Components []manifests.Item[*mcfgv1.MachineConfig]
	// Controller is the ControllerConfig that counts; with an OSImageStream it names the default stream's images.
	Controller *mcfgv1.ControllerConfig
	// origins has what each of Configs was rendered of.
	origins []origin
	// Findings are warnings; errors refuse the rendering as a whole.
	Findings []report.Finding
}

// origin is what a pool's config was rendered of: its components in merge order, on a base.
type origin struct {
	selected []parsed
	on       osBase
}

// Config returns the rendered MachineConfig of a pool, nil if there is no such pool.
func (r *Result) Config(pool string) *mcfgv1.MachineConfig {
	for i, p := range r.Pools {
		if p.Name == pool {
			return r.Configs[i]
		}
	}
	return nil
}
