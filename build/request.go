package build

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/build/containerfile"
	"dayone.dev/dayone/build/sign"
)

// Image names an image by digest in a registry.
type Image struct {
	// Reference has the form host:port/repository@sha256:….
	Reference string `json:"reference"`
}

// Digest is the part behind the @ of the reference; it fails for a reference without a digest.
func (i Image) Digest() (string, error) {
	d, err := name.NewDigest(i.Reference, name.StrictValidation)
	if err != nil {
		return "", fmt.Errorf("read image reference %q: %w", i.Reference, err)
	}
	return d.DigestStr(), nil
}

// digest is that of an image which Validate has passed.
func (i Image) digest() string {
	d, _ := i.Digest()
	return d
}

// Access says how to reach the registry that holds the base and takes the result. The zero value is a registry with a
// certificate that the host trusts and no authentication.
type Access struct {
	// CAFile is a PEM file of CAs to trust in addition to the host's; empty means none.
	CAFile string `json:"caFile,omitempty"`
	// AuthFile is a pull secret in containers' auth.json form (key auths); empty means anonymous.
	AuthFile string `json:"authFile,omitempty"`
}

// Secret is for RUN --mount=type=secret,id=ID. Its content never reaches a layer, the history or a log.
type Secret struct {
	ID   string `json:"id"`
	File string `json:"file"`
}

// Mount is a directory or file of the host that every RUN sees, read only, and that no layer contains: entitlement
// certificates, package repositories.
type Mount struct {
	Source string `json:"source"`
	Target string `json:"target"`
}

// Engine selects how an image is made.
type Engine string

const (
	// EngineAuto appends when the Containerfile needs no container and runs one otherwise. It is the zero value's meaning.
	EngineAuto Engine = ""
	// EngineAppend only adds layers to the base's manifest.
	EngineAppend Engine = "append"
	// EngineBuildah runs the Containerfile with the buildah library.
	EngineBuildah Engine = "buildah"
)

// Options change how a request is carried out. The zero value is right for a bootstrap host. The fields under "bytes"
// take part in the content address; the others do not change the image.
type Options struct {
	// Engine forces an engine (bytes: the engines number layers differently); default EngineAuto.
	Engine Engine `json:"engine,omitempty"`
	// Created is the time of the image and clamps every file time in new layers (bytes); default is the base image's
	// own creation time, so that it needs no clock.
	Created *time.Time `json:"created,omitempty"`
	// BuildArgs are values for ARG (bytes).
	BuildArgs map[string]string `json:"buildArgs,omitempty"`
	// Contexts are more images a Containerfile may name in FROM and --from (bytes, by digest).
	Contexts map[string]Image `json:"contexts,omitempty"`

	// NoCache runs every instruction again; default is to reuse layers of earlier builds on this host.
	NoCache bool `json:"noCache,omitempty"`
	// Rebuild builds although the registry has an image with the same address; default is to reuse it.
	Rebuild bool `json:"rebuild,omitempty"`
	// Keys are public keys. An image that the registry has counts only if one of them has signed it, or one of the
	// builder's own keys; default: every image counts.
	Keys []sign.PublicKey `json:"keys,omitempty"`
	// BasePolicy is a containers-policy.json that the base image must satisfy under its own name; default: any base will
	// do. A policy.json in Config counts as well, as far as it demands signatures of the base by keys that it contains.
	BasePolicy []byte `json:"basePolicy,omitempty"`
	// Secrets for RUN --mount=type=secret.
	Secrets []Secret `json:"secrets,omitempty"`
	// Mounts that every RUN sees.
	Mounts []Mount `json:"mounts,omitempty"`
	// RegistriesConf is a registries.conf with mirrors for images that the Containerfile names itself; default none.
	RegistriesConf string `json:"registriesConf,omitempty"`
	// ProxyEnvironment holds HTTP_PROXY and its like for RUN and for the engine's pulls (Proxies); default none. It never
	// reaches the image, and passwords in it do not reach the log.
	ProxyEnvironment map[string]string `json:"proxyEnvironment,omitempty"`
	// Offline asks for RUN without network. Only isolation by an OCI runtime can do that; the build fails where it cannot.
	Offline bool `json:"offline,omitempty"`
	// Timeout ends a build; default DefaultTimeout.
	Timeout time.Duration `json:"timeout,omitempty"`
	// DiskLimit is how many bytes new layers may take on this host while they are built; default DefaultDiskLimit,
	// negative none.
	DiskLimit int64 `json:"diskLimit,omitempty"`
	// LogLimit is how many bytes of output are kept in the log; default DefaultLogLimit. The build goes on beyond it.
	LogLimit int64 `json:"logLimit,omitempty"`
	// Attempts bounds how often a transient failure is tried; default DefaultAttempts.
	Attempts int `json:"attempts,omitempty"`
}

const (
	// DefaultTimeout leaves room for an update of every package over a slow line and still ends a hanging RUN the same
	// hour.
	DefaultTimeout = time.Hour
	// DefaultDiskLimit is about four times a large OS image, in bytes.
	DefaultDiskLimit = 8 << 30
	// DefaultLogLimit keeps a log that an editor can open, in bytes.
	DefaultLogLimit = 64 << 20
	// DefaultAttempts is the first try and two more.
	DefaultAttempts = 3
)

// Request is everything a build needs: two equal requests give the same image.
type Request struct {
	// Pool is the machine config pool, for labels and messages.
	Pool string `json:"pool"`
	// Base is the OS image, in the registry that Registry reaches.
	Base Image `json:"base"`
	// BaseName is the base's own name, by which policies know it; default Base.Reference.
	BaseName string `json:"baseName,omitempty"`
	// Config is the rendered config; its osImageURL does not count.
	Config *mcfgv1.MachineConfig `json:"config"`
	// Containerfile is the user's text; empty means that the image is base and config.
	Containerfile string `json:"containerfile,omitempty"`
	// ContainerfileName is the file that findings about the Containerfile name; default Containerfile.
	ContainerfileName string `json:"containerfileName,omitempty"`
	// Platform is os/architecture; default linux and this program's architecture.
	Platform string `json:"platform,omitempty"`
	// Target is the repository that takes the image: host:port/repository, without tag or digest.
	Target string `json:"target"`
	// Final is the repository by which nodes know the image, and which its signature names; default Target.
	Final string `json:"final,omitempty"`
	// Extensions is the image with extension packages; needed when Config names extensions or a kernel type, or the
	// Containerfile names containerfile.Extensions. It counts, and the build gets it, only then.
	Extensions *Image `json:"extensions,omitempty"`
	// TrustBundle is PEM of the cluster's additional trust bundle that RUN shall trust too.
	TrustBundle []byte `json:"trustBundle,omitempty"`
	// Registry reaches Base and Target.
	Registry Access `json:"registry"`
	// Options change how it is done.
	Options Options `json:"options"`
}

// Spec is what a caller knows of an image before it is built.
type Spec struct {
	// Pool is the machine config pool, Config its rendered config, Controller the cluster's ControllerConfig.
	Pool       string
	Config     *mcfgv1.MachineConfig
	Controller *mcfgv1.ControllerConfigSpec
	// Base is the OS image by its own name; by digest, unless Copies has it.
	Base string
	// Copies maps the own names of images to references by digest in the registry that the build reads. An image that is
	// not in it is read by its own name.
	Copies map[string]string
	// Containerfile is the user's text, ContainerfileName the file that findings name.
	Containerfile, ContainerfileName string
	// Platform, Target and Final as in Request.
	Platform, Target, Final string
	// Registry reaches the images and Target.
	Registry Access
	// Options change how it is done.
	Options Options
}

// NewRequest is the only maker of requests: the flows on the bootstrap host, the controller in the cluster and the
// trial build get one content address for the same inputs. The trust bundle and the extensions image come from the
// ControllerConfig, the latter unless the rendered config names its own.
func NewRequest(in Spec) (Request, error) {
	if in.Config == nil {
		return Request{}, invalid("config", "pool "+in.Pool+" has no rendered config", "render the pool first")
	}
	if in.Controller == nil {
		return Request{}, invalid("controller", "pool "+in.Pool+" has no ControllerConfig", "render the pool first")
	}
	read := func(image string) Image { return Image{Reference: cmp.Or(in.Copies[image], image)} }
	request := Request{Pool: in.Pool, Base: read(in.Base), BaseName: in.Base, Config: in.Config,
		Containerfile: in.Containerfile, ContainerfileName: in.ContainerfileName,
		Platform: in.Platform, Target: in.Target, Final: in.Final, TrustBundle: in.Controller.AdditionalTrustBundle,
		Registry: in.Registry, Options: in.Options}
	if image := ExtensionsImage(in.Config, in.Controller, in.Containerfile); image != "" {
		extensions := read(image)
		request.Extensions = &extensions
	}
	return request, nil
}

// platform is the requested platform.
func (r Request) platform() string { return cmp.Or(r.Platform, "linux/"+runtime.GOARCH) }

// Validate names the first field that makes the request impossible, before anything is read or started.
func (r Request) Validate() error {
	if r.Config == nil {
		return invalid("config", "the request has no rendered config", "render the pool first")
	}
	if _, err := r.Base.Digest(); err != nil {
		return invalid("base", err.Error(), "name the base image by digest: host:port/repository@sha256:…")
	}
	if _, err := name.NewRepository(r.Target, name.StrictValidation); err != nil {
		return invalid("target", err.Error(), "name a repository without tag or digest: host:port/repository")
	}
	switch r.Options.Engine {
	case EngineAuto, EngineAppend, EngineBuildah:
	default:
		return invalid("options.engine", fmt.Sprintf("unknown engine %q", r.Options.Engine),
			"use append or buildah, or leave the engine out")
	}
	for context, image := range r.Options.Contexts {
		if _, err := image.Digest(); err != nil {
			return invalid("options.contexts["+context+"]", err.Error(), "name the image by digest")
		}
	}
	if r.needsExtensions() && r.Extensions == nil {
		return invalid("extensions",
			"the rendered config asks for extensions or another kernel, and nothing names an extensions image",
			"set baseOSExtensionsContainerImage, or remove extensions and kernelType from the MachineConfigs")
	}
	if r.Extensions == nil && r.copiesExtensions() {
		return invalid("extensions",
			"the Containerfile copies from the image "+containerfile.Extensions+", and nothing names an extensions image",
			"set baseOSExtensionsContainerImage, or name another image in the Containerfile")
	}
	if r.Extensions != nil {
		if _, err := r.Extensions.Digest(); err != nil {
			return invalid("extensions", err.Error(), "name the extensions image by digest")
		}
	}
	return nil
}

// ExtensionsImage names the image with extension packages for a rendered config, beside the cluster's ControllerConfig:
// empty when neither the config (extensions, another kernel) nor the Containerfile asks for it, or when neither object
// names one. NewRequest asks here; a caller that copies the image first does, too.
func ExtensionsImage(config *mcfgv1.MachineConfig, controller *mcfgv1.ControllerConfigSpec, text string) string {
	if !(Request{Config: config, Containerfile: text}).usesExtensions() {
		return ""
	}
	return cmp.Or(config.Spec.BaseOSExtensionsContainerImage, controller.BaseOSExtensionsContainerImage)
}

// usesExtensions reports whether the extensions image may reach the result. A Containerfile may put the name together
// from an ARG, so that any mention counts: an image too many in the address costs a build, one too few gives nodes the
// packages of another release.
func (r Request) usesExtensions() bool {
	return r.needsExtensions() || strings.Contains(r.Containerfile, containerfile.Extensions)
}

// copiesExtensions says that the Containerfile copies something from the extensions image: no stage and no image of the
// options has its name.
func (r Request) copiesExtensions() bool {
	if _, passed := r.Options.Contexts[containerfile.Extensions]; passed || !r.usesExtensions() {
		return false
	}
	file, err := containerfile.Parse(r.Containerfile)
	if err != nil {
		return false // the build says so, with the line
	}
	return slices.ContainsFunc(file.Images(), func(u containerfile.Use) bool { return u.Name == containerfile.Extensions })
}

// needsExtensions reports whether the config asks for packages of the extensions image.
func (r Request) needsExtensions() bool {
	spec := r.Config.Spec
	return len(spec.Extensions) > 0 || (spec.KernelType != "" && spec.KernelType != "default")
}
