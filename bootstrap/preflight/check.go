package preflight

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"

	"dayone.dev/dayone/build/containerfile"
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/registry/credentials"
)

// mosc is shorter than its type.
type mosc = manifests.Item[*mcfgv1.MachineOSConfig]

// checker adds a finding for everything in the input that cannot work.
type checker struct {
	in       *Input
	rep      *report.Report
	dir      string
	platform string
}

func (c *checker) run() {
	c.installDirectory()
	c.pools()
	c.streams()
	c.layeredPools()
	c.baseImage()
	c.signaturePolicy()
	c.registryCA()
	c.logSpool()
	c.names()
	c.machineConfigs()
	c.unselected()
	if c.rep.Err() == nil {
		c.render()
	}
}

// layeredPools finds or generates the MachineOSConfig of every pool to layer, and checks it.
func (c *checker) layeredPools() {
	c.dropGenerated()
	byPool := c.machineOSConfigs()
	for _, p := range c.in.Sidecar.Config.Pools {
		item, ok := byPool[p.Name]
		if !ok {
			if item, ok = c.generate(p); !ok {
				continue
			}
		} else if p.Generated() {
			c.rep.Errorf(item.Origin.At("metadata.name", "generated-and-given"),
				"pool %q has a Containerfile in %s and a MachineOSConfig here; keep one of them", p.Name, installconfig.FileName)
			continue
		}
		c.pool(p, item)
	}
}

// machineOSConfigs maps pools to their MachineOSConfig and refuses those that no pool can use.
func (c *checker) machineOSConfigs() map[string]mosc {
	wanted := map[string]bool{}
	for _, p := range c.in.Sidecar.Config.Pools {
		wanted[p.Name] = true
	}
	byPool := map[string]mosc{}
	for _, item := range c.in.Set.MachineOSConfigs {
		o := item.Object
		pool := o.Spec.MachineConfigPool.Name
		if !strings.HasPrefix(item.Origin.File, c.in.Sidecar.Config.LayeringDir+"/") {
			if c.preBuilt(item, wanted[pool]) {
				continue
			}
		}
		if o.Name != pool {
			at := item.Origin.At("metadata.name", "mosc-name")
			at.Next = "give both the pool's name, as the API demands"
			c.rep.Errorf(at, "MachineOSConfig %q is for pool %q", o.Name, pool)
		}
		if first, twice := byPool[pool]; twice {
			at := item.Origin.At("spec.machineConfigPool.name", "mosc-twice")
			at.Next = "keep one"
			c.rep.Errorf(at, "pool %q has another MachineOSConfig in %s", pool, first.Origin.File)
			continue
		}
		byPool[pool] = item
		if !wanted[pool] {
			at := item.Origin.At("spec.machineConfigPool.name", "mosc-pool-not-named")
			at.Next = "add it to " + installconfig.Field + ".pools or remove the MachineOSConfig"
			c.rep.Errorf(at, "pool %q is not among the pools to layer", pool)
		}
	}
	return byPool
}

// preBuilt judges a MachineOSConfig in one of the installer's directories. It is the installer's own way of layering,
// with an image that exists already; without that image MCO's bootstrap stops before any master gets its config.
func (c *checker) preBuilt(item mosc, wanted bool) bool {
	image := item.Object.Annotations[manifests.AnnotationPreBuiltImage]
	at := item.Origin.At("metadata.annotations["+manifests.AnnotationPreBuiltImage+"]", "mosc-place")
	repository, digest, _ := strings.Cut(image, "@")
	switch {
	case image == "":
		at.Path, at.Next = "", "move it to "+c.in.Sidecar.Config.LayeringDir+"/"
		c.rep.Errorf(at,
			"MachineOSConfig %q lies where the installer's own bootstrap would read it before its image is built",
			item.Object.Name)
	case wanted:
		at.Next = "remove the pool from " + installconfig.Field +
			".pools, or move the MachineOSConfig without its annotation to " + c.in.Sidecar.Config.LayeringDir + "/"
		c.rep.Errorf(at, "pool %q is to be built here and has a pre-built image: which is meant?", item.Object.Name)
	case !digestForm.MatchString(repository) || !referenceEnd.MatchString("@"+digest):
		at.Rule, at.Next = "pre-built-image", "write host[:port][/namespace]/name@sha256:DIGEST"
		c.rep.Errorf(at, "%q is no image by digest: MCO's bootstrap would stop before any node gets its config", image)
	default:
		return true
	}
	return false
}

// pool checks one MachineOSConfig and adds the pool to the input.
func (c *checker) pool(p installconfig.Pool, item mosc) {
	spec := item.Object.Spec
	out := Pool{Pool: p, MachineOSConfig: item}
	if t := spec.ImageBuilder.ImageBuilderType; t != mcfgv1.JobBuilder {
		at := item.Origin.At("spec.imageBuilder.imageBuilderType", "mosc-builder")
		at.Next = "write Job"
		c.rep.Errorf(at, "unknown builder %q", t)
	}
	out.Repository = c.pushSpec(item)
	c.insideCluster(p, item, out.Repository)
	push := c.secret(item, "spec.renderedImagePushSecret.name", spec.RenderedImagePushSecret.Name)
	c.pushCredentials(item, push, out.Repository)
	out.PushAuth = push
	if ref := spec.BaseImagePullSecret; ref != nil {
		out.BasePull = c.secret(item, "spec.baseImagePullSecret.name", ref.Name)
	}
	c.nodesCanPull(&out)
	out.Containerfile = c.containerfile(item)
	c.in.Pools = append(c.in.Pools, out)
}

var (
	// tagForm is the API's ImageTagFormat (openshift/api machineconfiguration/v1), for other than .svc names.
	tagForm = regexp.MustCompile(
		`^([a-zA-Z0-9-]+\.)+[a-zA-Z0-9-]+(:[0-9]{2,5})?(/[a-zA-Z0-9-_]{1,61})*/[a-zA-Z0-9-_.]+:[a-zA-Z0-9._-]+$`)
	// digestForm is what ImageDigestFormat allows before the @: one namespace level at most. The image is known by digest
	// from its build on, so a push spec that has no digest form fails long after the masters are up.
	digestForm = regexp.MustCompile(
		`^([a-zA-Z0-9-]+\.)+[a-zA-Z0-9-]+(:[0-9]{2,5})?/([a-zA-Z0-9-_]{0,61}/)?[a-zA-Z0-9-_.]*$`)
	// lowerPath is the OCI distribution specification's form of a repository's path, which the API's form does not imply.
	lowerPath = regexp.MustCompile(`^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*$`)
	// tagOnly is that specification's form of a tag, referenceEnd what may follow a repository: a tag or a digest, not
	// both.
	tagOnly      = regexp.MustCompile(`^[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}$`)
	referenceEnd = regexp.MustCompile(`^(:[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}|@sha256:[0-9a-f]{64})?$`)
)

const exampleSpec = "registry.example.com/ocp/master-os:latest"

// pushSpec returns the repository part of renderedImagePushSpec.
func (c *checker) pushSpec(item mosc) string {
	spec := string(item.Object.Spec.RenderedImagePushSpec)
	at := item.Origin.At("spec.renderedImagePushSpec", "push-spec")
	at.Next = "write host[:port][/namespace]/name:tag, for example " + exampleSpec
	colon := strings.LastIndexByte(spec, ':')
	switch {
	case spec == "":
		c.rep.Errorf(at, "the push spec is missing")
	case strings.Contains(spec, "@"):
		at.Rule = "push-spec-digest"
		c.rep.Errorf(at, "%q holds a digest; only the build knows the digest", spec)
	case colon < strings.LastIndexByte(spec, '/') || colon < 0:
		at.Rule = "push-spec-tag"
		c.rep.Errorf(at, "%q has no tag", spec)
	case len(spec) > 447 || !tagForm.MatchString(spec):
		at.Rule = "push-spec-form"
		c.rep.Errorf(at, "%q is not of the API's form: the host needs a dot", spec)
	case !digestForm.MatchString(spec[:colon]):
		at.Rule = "push-spec-namespace"
		c.rep.Errorf(at, "%q has more than one namespace level; the API refuses the image once it is known by digest", spec)
	case !tagOnly.MatchString(spec[colon+1:]):
		at.Rule = "push-spec-tag"
		c.rep.Errorf(at, "%q is no tag: letters, digits, dots, dashes and underscores, a letter or digit first",
			spec[colon+1:])
	case !validPort(spec[:colon]):
		at.Rule = "push-spec-port"
		c.rep.Errorf(at, "%q has a port that is none: 65535 is the highest", spec)
	default:
		repository := spec[:colon]
		if _, path, _ := strings.Cut(repository, "/"); !lowerPath.MatchString(path) {
			at.Rule = "push-spec-repository"
			c.rep.Errorf(at, "%q is no repository name: only lower-case letters, digits and single separators", path)
		}
		return repository
	}
	return ""
}

// validPort says whether the port of a repository, if it has one, exists.
func validPort(repository string) bool {
	host, _, _ := strings.Cut(repository, "/")
	_, port, has := strings.Cut(host, ":")
	_, err := strconv.ParseUint(port, 10, 16)
	return !has || err == nil
}

// secret returns the docker configuration of a named Secret.
func (c *checker) secret(item mosc, path, name string) []byte {
	at := item.Origin.At(path, "secret-missing")
	if name == "" {
		at.Next = "name a Secret of type " + string(corev1.SecretTypeDockerConfigJson)
		c.rep.Errorf(at, "no Secret is named")
		return nil
	}
	var found *corev1.Secret
	var origin manifests.Origin
	for _, s := range c.in.Set.Secrets {
		if s.Object.Name == name {
			found, origin = s.Object, s.Origin
		}
	}
	if found == nil {
		at.Next = "put it into " + c.in.Sidecar.Config.LayeringDir + "/"
		c.rep.Errorf(at, "Secret %q is not in the install directory", name)
		return nil
	}
	if found.Type != corev1.SecretTypeDockerConfigJson {
		at := origin.At("type", "secret-type")
		at.Next = "make it with: kubectl create secret docker-registry --dry-run=client -o yaml"
		c.rep.Errorf(at, "Secret %q has type %q; registry credentials need %q", name, found.Type,
			corev1.SecretTypeDockerConfigJson)
		return nil
	}
	raw := found.Data[corev1.DockerConfigJsonKey]
	if len(raw) == 0 {
		raw = []byte(found.StringData[corev1.DockerConfigJsonKey])
	}
	if accounts, err := credentials.Parse(raw); err != nil || len(accounts) == 0 {
		at := origin.At("data["+corev1.DockerConfigJsonKey+"]", "secret-content")
		at.Next = "it must hold a JSON object with the key auths"
		c.rep.Errorf(at, "Secret %q holds no registry credentials", name)
		return nil
	}
	// What copies images reads one of the two forms that Kubernetes knows.
	plain, err := credentials.Normalize(raw)
	if err != nil || bytes.Equal(plain, raw) {
		return raw
	}
	found.Data, found.StringData = map[string][]byte{corev1.DockerConfigJsonKey: plain}, nil
	return plain
}

// architectures are the API's (openshift/api machineconfiguration/v1, ContainerfileArch).
var architectures = []string{"NoArch", "AMD64", "ARM64", "PPC64LE", "S390X"}

// containerfile picks the entry for the platform and lints it.
func (c *checker) containerfile(item mosc) string {
	entries := item.Object.Spec.Containerfile
	byArchitecture := map[string]string{}
	for i, f := range entries {
		at := item.Origin.At(fmt.Sprintf("spec.containerFile[%d].containerfileArch", i), "containerfile-arch")
		at.Next = "write one of " + strings.Join(architectures, ", ")
		name := string(f.ContainerfileArch)
		if _, twice := byArchitecture[name]; twice {
			at.Next = "keep one"
			c.rep.Errorf(at, "there are two Containerfiles for architecture %q", name)
		}
		if !slices.Contains(architectures, name) && name != "" {
			c.rep.Errorf(at, "unknown architecture %q", name)
		}
		byArchitecture[name] = f.Content
	}
	_, arch, _ := strings.Cut(c.platform, "/")
	text, ok := containerfile.Select(byArchitecture, arch)
	if !ok {
		if len(entries) > 0 {
			at := item.Origin.At("spec.containerFile", "containerfile-arch")
			at.Next = "add one with containerfileArch: NoArch, or give the nodes' platform"
			c.rep.Warnf(at, "no Containerfile is for %s: the image has the rendered config only", c.platform)
		}
		return ""
	}
	chosen := slices.IndexFunc(entries, func(f mcfgv1.MachineOSContainerfile) bool { return f.Content == text })
	c.lint(c.containerfilePlace(item, chosen), text)
	return text
}

// machineConfigs refuses every MachineConfig whose Ignition config is invalid, also those that no pool selects: MCO
// looks at them only when a pool does, long after the installation.
func (c *checker) machineConfigs() {
	for _, item := range c.in.Set.MachineConfigs {
		if raw := item.Object.Spec.Config.Raw; len(raw) > 0 {
			if _, err := machineconfig.Parse(raw); err != nil {
				c.rep.Errorf(ignitionPlace(item.Origin, err), "MachineConfig %q: %s", item.Object.Name, ignitionMessage(err))
			}
		}
	}
}

// ignitionPlace leads to the field of the Ignition config that the parser names.
func ignitionPlace(origin manifests.Origin, err error) report.Finding {
	at := origin.At("spec.config", "ignition")
	if found := report.Of(err); len(found) == 1 {
		at.Next = found[0].Next
		if found[0].Path != "" {
			at.Path += "." + found[0].Path
		}
	}
	return at
}

func ignitionMessage(err error) string {
	if found := report.Of(err); len(found) == 1 {
		return found[0].Message
	}
	return err.Error()
}
