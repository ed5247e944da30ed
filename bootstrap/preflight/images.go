package preflight

import (
	"regexp"
	"strconv"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
)

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
	// tagOnly is that specification's form of a tag.
	tagOnly = regexp.MustCompile(`^[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}$`)
	// referenceEnd is what may follow a repository: a tag or a digest, not both.
	referenceEnd = regexp.MustCompile(`^(:[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}|@sha256:[0-9a-f]{64})?$`)
)

// maxReference is the API's limit of ImageTagFormat, in characters.
const maxReference = 447

// baseImage checks the name of the base image in its final registry. In the openshift flow the release names it.
func baseImage(_ *directory, in *Input, rep *report.Report) {
	if in.openshift() {
		return
	}
	name := in.Sidecar.Config.BaseImage
	at := report.Finding{File: installconfig.FileName, Path: installconfig.Field + ".baseImage", Rule: "base-image",
		Next: "write host[:port][/namespace]/name and a tag or a digest, for example registry.example.com/ocp/base-os:1"}
	if name == "" {
		rep.Errorf(at, "the standalone flow needs the name of the OS image")
		return
	}
	repository := installconfig.Repository(name)
	if !digestForm.MatchString(repository) || !validPort(repository) ||
		!referenceEnd.MatchString(name[len(repository):]) ||
		!lowerPath.MatchString(installconfig.RepositoryPath(repository)) {
		rep.Errorf(at, "%q is not of the form that the API allows for images", name)
	}
	unreachable(repository, at, rep)
	for _, p := range in.Pools {
		if p.Repository == in.Sidecar.Config.BaseRepository() {
			at.Rule = "base-repository"
			at.Next = "give the base image a repository of its own"
			rep.Errorf(at, "pool %q pushes its image to the base image's repository", p.Name)
		}
	}
}

// builderType refuses a builder that the API does not have.
func builderType(_ *directory, in *Input, rep *report.Report) {
	for _, p := range in.Pools {
		item := p.MachineOSConfig
		if t := item.Object.Spec.ImageBuilder.ImageBuilderType; t != mcfgv1.JobBuilder {
			at := item.Origin.At("spec.imageBuilder.imageBuilderType", "mosc-builder")
			at.Next = "write Job"
			rep.Errorf(at, "unknown builder %q", t)
		}
	}
}

// pushSpecs checks where the pools' images are pushed to.
func pushSpecs(_ *directory, in *Input, rep *report.Report) {
	for _, p := range in.Pools {
		at := p.MachineOSConfig.Origin.At("spec.renderedImagePushSpec", "")
		if _, fault := parsePushSpec(string(p.MachineOSConfig.Object.Spec.RenderedImagePushSpec)); fault != nil {
			at.Rule = fault.Rule
			at.Next = "write host[:port][/namespace]/name:tag, for example registry.example.com/ocp/master-os:latest"
			rep.Errorf(at, "%s", fault.Message)
		}
		unreachable(p.Repository, at, rep)
		// Neither the bootstrap host, which hands the image over, nor a node on its first boot can reach a Service.
		host, _, _ := strings.Cut(p.Repository, "/")
		name, _, _ := strings.Cut(host, ":")
		if p.BuildAt == installconfig.BuildAtBootstrap &&
			strings.HasSuffix(strings.TrimSuffix(name, ".cluster.local"), ".svc") {
			at.Rule = "push-spec-service"
			at.Next = "name a registry outside the cluster, or build the pool's image in the cluster (buildAt: cluster)"
			rep.Errorf(at, "%s is a Service of the cluster, which does not run yet when the bootstrap host builds the image "+
				"and hands it over", host)
		}
	}
}

// unreachable judges an image's final name. An address that no machine has is refused. One that means each machine
// itself is a warning: while the bootstrap host is there, nodes find the image at its mirror.
func unreachable(repository string, at report.Finding, rep *report.Report) {
	why := installconfig.Unreachable(repository)
	if why == "" {
		return
	}
	at.Rule, at.Next = "unreachable", "name the registry as every node reaches it"
	host, _, _ := strings.Cut(repository, "/")
	if installconfig.MeansItself(repository) {
		rep.Warnf(at, "nodes do not reach %s once the bootstrap host is gone: %s", host, why)
		return
	}
	rep.Errorf(at, "no node reaches %s: %s", host, why)
}

// parsePushSpec returns the repository part of a renderedImagePushSpec, empty when there is no valid one, and the rule
// and message of what is wrong with it.
func parsePushSpec(spec string) (repository string, fault *report.Finding) {
	refuse := func(rule, message string) *report.Finding { return &report.Finding{Rule: rule, Message: message} }
	quoted := strconv.Quote(spec)
	colon := strings.LastIndexByte(spec, ':')
	switch {
	case spec == "":
		return "", refuse("push-spec", "the push spec is missing")
	case strings.Contains(spec, "@"):
		return "", refuse("push-spec-digest", quoted+" holds a digest; only the build knows the digest")
	case colon < strings.LastIndexByte(spec, '/') || colon < 0:
		return "", refuse("push-spec-tag", quoted+" has no tag")
	case len(spec) > maxReference || !tagForm.MatchString(spec):
		return "", refuse("push-spec-form", quoted+" is not of the API's form: the host needs a dot")
	case !digestForm.MatchString(spec[:colon]):
		return "", refuse("push-spec-namespace",
			quoted+" has more than one namespace level; the API refuses the image once it is known by digest")
	case !tagOnly.MatchString(spec[colon+1:]):
		return "", refuse("push-spec-tag", strconv.Quote(spec[colon+1:])+
			" is not a tag: letters, digits, dots, dashes and underscores, a letter or digit first")
	case !validPort(spec[:colon]):
		return "", refuse("push-spec-port", quoted+" has an invalid port: 65535 is the highest")
	}
	repository = spec[:colon]
	if _, path, _ := strings.Cut(repository, "/"); !lowerPath.MatchString(path) {
		return repository, refuse("push-spec-repository",
			strconv.Quote(path)+" is not a repository name: only lower-case letters, digits and single separators")
	}
	return repository, nil
}

// validPort says whether the port of a repository, if it has one, exists.
func validPort(repository string) bool {
	host, _, _ := strings.Cut(repository, "/")
	_, port, has := strings.Cut(host, ":")
	_, err := strconv.ParseUint(port, 10, 16)
	return !has || err == nil
}
