// Package preview says before anything runs what an installation will do, and what another version of its directory
// would change.
//
//	checked install directory -> Plan (generated objects, images, boots, files and units with their origin)
//	two Plans + policies -> effect on the nodes of the first
package preview

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/build/containerfile"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/manifests/render"
	"dayone.dev/dayone/rebase/disruption"
	"dayone.dev/dayone/rebase/target"
)

// Plan is what an installation from one install directory will do.
type Plan struct {
	// Cluster is the cluster's name and base domain.
	Cluster string `json:"cluster"`
	// Flow is standalone or openshift.
	Flow string `json:"flow"`
	// BaseImage is the OS image that images are built from; empty where the release decides.
	BaseImage string `json:"baseImage,omitempty"`
	// Partial: a release's own templates add files and units to every pool, which are not known here.
	Partial bool `json:"partial,omitempty"`
	// Generated are the objects that dayone manifests writes because the user gave none.
	Generated []Object `json:"generated"`
	// Pools are all pools, by name.
	Pools []Pool `json:"pools"`
	// Warnings are probable mistakes.
	Warnings []string `json:"warnings"`
}

// Object is one generated object.
type Object struct {
	// File is where it is written, relative to the install directory.
	File string `json:"file"`
	// Kind is the object's.
	Kind string `json:"kind"`
}

// Pool is what becomes of one pool's nodes.
type Pool struct {
	// Name is the pool's.
	Name string `json:"name"`
	// Nodes is how many install-config.yaml names; 0: it does not say.
	Nodes int `json:"nodes"`
	// Image is the pool's own; absent: its nodes run the base image.
	Image *Image `json:"image,omitempty"`
	// Boots is how often a node boots at most until it is part of the cluster, its disk's own image included.
	Boots int `json:"boots"`
	// Reboot is how the last of them comes about, as far as it can be known before: "soft (likely)" with its condition, or
	// "hard: REASON".
	Reboot string `json:"reboot,omitempty"`
	// JoinsAs is the pool whose config the nodes boot first, because openshift-install gives machines of other pools than
	// its own the worker's user data; absent where it is this pool's config.
	JoinsAs string `json:"joinsAs,omitempty"`
	// Later are the steps that follow once the cluster has built the image; absent where nodes have it from the start.
	Later []disruption.Action `json:"later,omitempty"`
	// Content is every file, unit and setting of the rendered config, with the object that it comes from.
	Content []render.Entry `json:"content"`

	config *mcfgv1.MachineConfig
	state  target.Target
	build  mcfgv1.MachineOSBuild
}

// Image is what gets built for a pool.
type Image struct {
	// Repository is where the image ends up.
	Repository string `json:"repository"`
	// BuildAt is bootstrap or cluster.
	BuildAt string `json:"buildAt"`
	// MachineOSConfig is the file of the object that asks for it.
	MachineOSConfig string `json:"machineOSConfig"`
	// Instructions is how many instructions the user's Containerfile has for the nodes' platform; 0: the image is the base
	// with the config.
	Instructions int `json:"instructions"`
	// Engine is append when no container has to run, else buildah; Reason says why.
	Engine string `json:"engine"`
	// Reason says in words why this engine.
	Reason string `json:"reason"`
}

// Of plans an installation.
func Of(in *preflight.Input, versions render.Versions) (*Plan, error) {
	c := in.Sidecar.Config
	p := &Plan{Cluster: in.Sidecar.Cluster.FullName(), Flow: string(c.Flow),
		BaseImage: c.BaseImage,
		Partial:   c.Flow == installconfig.FlowOpenShift, Generated: []Object{}, Pools: []Pool{}, Warnings: []string{}}
	for _, g := range in.Generated {
		p.Generated = append(p.Generated, Object{File: g.File, Kind: reflect.Indirect(reflect.ValueOf(g.Object)).Type().
			Name()})
	}
	for _, w := range in.Warnings {
		p.Warnings = append(p.Warnings, w.Error())
	}
	base := c.BaseImage
	if p.Partial {
		base = byDigest(preflight.UnknownBase)
	}
	set, o := in.Inputs(base, versions), in.Options(versions)
	result, err := render.Render(set, o)
	if err != nil {
		return nil, err
	}
	explained, err := render.Explain(set, o)
	if err != nil {
		return nil, err
	}
	for i, e := range explained {
		pool := Pool{Name: e.Pool, Boots: bootsOfBase, Content: e.Entries,
			config: resolved(result.Configs[i], base),
			state:  target.Target{Config: e.Config}}
		if e.Pool == "master" {
			pool.Nodes = in.Sidecar.Cluster.ControlPlane
		}
		pool.nameBase(in, p.Partial)
		if err := pool.layer(in, base); err != nil {
			return nil, fmt.Errorf("plan image of pool %s: %w", e.Pool, err)
		}
		if p.Partial {
			pool.join()
		}
		pool.Reboot = firstReboot(p.Partial, pool.config)
		p.Pools = append(p.Pools, pool)
	}
	return p, nil
}

// resolved is a config whose base image has a digest, as the bootstrap host gives it one: nodes refuse tags.
func resolved(config *mcfgv1.MachineConfig, base string) *mcfgv1.MachineConfig {
	if config.Spec.OSImageURL != base {
		return config
	}
	out := config.DeepCopy()
	out.Spec.OSImageURL = byDigest(base)
	return out
}

const (
	// bootsOfBase: the boot image, and the base image where the disk brings another.
	bootsOfBase = 2
	// bootsOfImage: the boot image, and the pool's own.
	bootsOfImage = 2
)

// firstReboot foresees the reboot of a node's first boot. The plan does not know the disk's image; the disk's own
// deployment has the config's kernel arguments in rare cases only.
func firstReboot(byMCO bool, config *mcfgv1.MachineConfig) string {
	switch {
	case byMCO:
		return "hard: MCO's daemon reboots the node"
	case len(config.Spec.KernelArguments) > 0:
		return "hard (likely): the config has kernel arguments"
	}
	return "soft (likely) where the disk has the base image and its OS can, else hard"
}

// nameBase says who sets the OS image where a made-up object does, and leaves out fields that are not set.
func (p *Pool) nameBase(in *preflight.Input, release bool) {
	p.Content = slices.DeleteFunc(p.Content, func(e render.Entry) bool { return e.Kind == "field" && e.Value == "" })
	for i := range p.Content {
		e := &p.Content[i]
		switch {
		case e.Name != "osImageURL" || len(in.Set.ControllerConfigs) > 0 || e.From.MachineConfig != "the ControllerConfig":
		case release:
			e.Value, e.From = "", render.Source{MachineConfig: "the release"}
		default:
			e.From = render.Source{MachineConfig: installconfig.Field + ".baseImage", File: installconfig.FileName}
		}
	}
}

// layer fills in what is built for the pool, if it is layered.
func (p *Pool) layer(in *preflight.Input, base string) error {
	for _, l := range in.Pools {
		if l.Name != p.Name {
			continue
		}
		p.Image = &Image{Repository: l.Repository, BuildAt: string(l.BuildAt), MachineOSConfig: l.MachineOSConfig.Origin.File,
			Engine: "append", Reason: "there is no Containerfile"}
		if strings.TrimSpace(l.Containerfile) != "" {
			file, err := containerfile.Parse(l.Containerfile)
			if err != nil {
				return err
			}
			for _, s := range file.Stages {
				p.Image.Instructions += len(s.Instructions)
			}
			var plan *containerfile.Append
			if plan, p.Image.Reason = file.PlanAppend(nil); plan == nil {
				p.Image.Engine = "buildah"
			}
		}
		p.Boots = bootsOfImage
		if l.BuildAt == installconfig.BuildAtCluster {
			p.Boots, p.Later = bootsOfBase, []disruption.Action{{Type: disruption.Drain}, {Type: disruption.Reboot}}
		}
		return p.identify(in, l, base)
	}
	return nil
}

// join says as what a node joins that openshift-install's user data lead to the config server: the server on the
// bootstrap node and the installer know master, worker and arbiter only.
func (p *Pool) join() {
	if slices.Contains([]string{"master", "worker", "arbiter"}, p.Name) {
		return
	}
	p.JoinsAs = "worker"
	if p.Image != nil && p.Image.BuildAt == string(installconfig.BuildAtBootstrap) {
		p.Boots = bootsOfBase + 1 // the worker's image, then this pool's
	}
}

// Pool gives a pool by its name.
func (p *Plan) Pool(name string) (*Pool, bool) {
	for i := range p.Pools {
		if p.Pools[i].Name == name {
			return &p.Pools[i], true
		}
	}
	return nil, false
}

// Target is what the pool's nodes are to have. An image that is not built yet is known by what it is built of.
func (p *Pool) Target() target.Target { return p.state }
