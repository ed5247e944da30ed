package mirrors

import (
	"regexp"
	"slices"
	"strings"

	"github.com/containers/image/v5/signature"
	configv1 "github.com/openshift/api/config/v1"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
)

// list is one object's mirrors for one source, in the order in which they are to be tried.
type list struct {
	source  string
	mirrors []string
	never   bool // NeverContactSource
	origin  manifests.Origin
	path    string
}

// collected is what the objects say, with the refusals on the way.
type collected struct {
	digest, tag []list // digest: IDMS before ICSP
	image       *manifests.Item[*configv1.Image]
	blocked     []string // of image, without what must stay reachable
	release     string   // repository of the release image, when a blocked scope holds it and a mirror has it
	policies    map[string]bool
	trusted     map[string]signature.PolicyRequirements // of ClusterImagePolicies, by scope
	report      report.Report
}

func collect(set *manifests.Set) *collected {
	c := &collected{policies: map[string]bool{}, trusted: map[string]signature.PolicyRequirements{}}
	for _, item := range set.IDMSs {
		for _, m := range item.Object.Spec.ImageDigestMirrors {
			c.digest = append(c.digest, list{m.Source, texts(m.Mirrors), m.MirrorSourcePolicy == configv1.NeverContactSource,
				item.Origin, "spec.imageDigestMirrors"})
		}
	}
	for _, item := range set.ICSPs {
		for _, m := range item.Object.Spec.RepositoryDigestMirrors {
			c.digest = append(c.digest, list{m.Source, m.Mirrors, false, item.Origin, "spec.repositoryDigestMirrors"})
		}
	}
	for _, item := range set.ITMSs {
		for _, m := range item.Object.Spec.ImageTagMirrors {
			c.tag = append(c.tag, list{m.Source, texts(m.Mirrors), m.MirrorSourcePolicy == configv1.NeverContactSource,
				item.Origin, "spec.imageTagMirrors"})
		}
	}
	if n := len(set.Images); n > 0 {
		c.image = &set.Images[n-1]
	}
	c.digest = c.check(c.digest)
	c.tag = c.check(c.tag)
	c.checkImage()
	for _, item := range set.ClusterImagePolicies {
		c.trust(item)
	}
	if c.image != nil {
		c.blocked = c.unblocked(releaseImage(set))
		c.checkTrustedCA(set)
	}
	return c
}

// checkTrustedCA warns of CAs of registries that only MCO's operator brings to nodes. Its ControllerConfig names the
// infrastructure; one that dayone made does not.
func (c *collected) checkTrustedCA(set *manifests.Set) {
	name := c.image.Object.Spec.AdditionalTrustedCA.Name
	n := len(set.ControllerConfigs)
	if name == "" || n == 0 || set.ControllerConfigs[n-1].Object.Spec.Infra != nil {
		return
	}
	place := c.image.Origin.At("spec.additionalTrustedCA.name", "trusted-ca-without-mco")
	place.Next = "write each CA as a file /etc/docker/certs.d/HOST[:PORT]/ca.crt of a MachineConfig"
	c.report.Warnf(place, "the CAs of ConfigMap %s reach no node: this cluster has no machine-config-operator", name)
}

// releaseImage is the image that the cluster is installed from, "" outside of OpenShift.
func releaseImage(set *manifests.Set) string {
	if n := len(set.ControllerConfigs); n > 0 {
		return set.ControllerConfigs[n-1].Object.Spec.ReleaseImage
	}
	return ""
}

// unblocked drops blocked scopes that would cut the cluster off from its own release image, unless a mirror has it:
// then it notes that the release may be pulled under its name, for a mirror serves it under that.
func (c *collected) unblocked(release string) []string {
	release, _, _ = strings.Cut(release, "@")
	var out []string
	for _, scope := range c.image.Object.Spec.RegistrySources.BlockedRegistries {
		if release == "" || !within(release, scope) {
			out = append(out, scope)
			continue
		}
		if c.mirrored(release, scope) {
			out, c.release = append(out, scope), release
			continue
		}
		place := c.image.Origin.At("spec.registrySources.blockedRegistries", "release-image-blocked")
		place.Next = "remove the entry, or mirror the release image"
		c.report.Warnf(place, "%s is not blocked: it holds the release image %s, which has no mirror", scope, release)
	}
	return out
}

// mirrored says whether an image has a digest mirror outside of a blocked scope.
func (c *collected) mirrored(name, blocked string) bool {
	for _, l := range c.digest {
		if !within(name, l.source) {
			continue
		}
		for _, m := range l.mirrors {
			if !within(m, blocked) {
				return true
			}
		}
	}
	return false
}

func texts(mirrors []configv1.ImageMirror) []string {
	out := make([]string, 0, len(mirrors))
	for _, m := range mirrors {
		out = append(out, string(m))
	}
	return out
}

// scopePattern is a host with an optional port and path, no tag and no digest (openshift/api,
// ImageDigestMirrors.Source).
var scopePattern = regexp.MustCompile(
	`^[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?(\.[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?)*(:[0-9]{1,5})?` +
		`(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$`)

// wildcardPattern is a star in place of the first part of a host name.
var wildcardPattern = regexp.MustCompile(`^\*(\.[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?)+$`)

func validScope(scope string, wildcard bool) bool {
	return scopePattern.MatchString(scope) || wildcard && wildcardPattern.MatchString(scope)
}

// check refuses bad scopes and contradictions and drops lists that name no mirror but the source itself.
func (c *collected) check(lists []list) []list {
	var out []list
	for _, l := range lists {
		place := l.origin.At(l.path, "mirror-scope")
		place.Next = "write host[:port][/path] without a tag or digest"
		bad := false
		if !validScope(l.source, true) {
			c.report.Errorf(place, "source %q is no registry or repository", l.source)
			bad = true
		}
		real := false
		for _, m := range l.mirrors {
			if !validScope(m, false) {
				c.report.Errorf(place, "mirror %q of source %s is no registry or repository", m, l.source)
				bad = true
			}
			real = real || m != l.source
		}
		place.Rule = "mirror-source-policy"
		if before, known := c.policies[l.source]; known && before != l.never {
			place.Next = "give the source one mirrorSourcePolicy in all objects"
			c.report.Errorf(place, "source %s has two mirrorSourcePolicies", l.source)
			bad = true
		}
		c.policies[l.source] = l.never
		if l.never && slices.Contains(l.mirrors, l.source) {
			place.Next = "remove the source from its mirrors, or allow contacting it"
			c.report.Errorf(place, "source %s must never be contacted, but is its own mirror", l.source)
			bad = true
		}
		if !bad && (real || l.never) {
			out = append(out, l)
		}
	}
	return out
}

// checkImage refuses bad scopes in the image settings and both lists at once.
func (c *collected) checkImage() {
	if c.image == nil {
		return
	}
	sources := c.image.Object.Spec.RegistrySources
	place := c.image.Origin.At("spec.registrySources", "registry-scope")
	place.Next = "write host[:port][/path], or *.domain"
	for _, scope := range slices.Concat(sources.InsecureRegistries, sources.BlockedRegistries, sources.AllowedRegistries) {
		// Allowed and blocked entries may name a single image with its tag or digest.
		bare, _, _ := strings.Cut(scope, "@")
		if i := strings.LastIndex(bare, ":"); i > strings.LastIndex(bare, "/") && strings.Contains(bare, "/") {
			bare = bare[:i]
		}
		if !validScope(bare, true) {
			c.report.Errorf(place, "%q is no registry or repository", scope)
		}
	}
	for _, host := range sources.ContainerRuntimeSearchRegistries {
		if !validScope(host, false) || strings.Contains(host, "/") {
			c.report.Errorf(place, "search registry %q is no host", host)
		}
	}
	if len(sources.AllowedRegistries) > 0 && len(sources.BlockedRegistries) > 0 {
		place.Rule, place.Next = "allowed-and-blocked", "keep one of the two lists"
		c.report.Errorf(place, "allowedRegistries and blockedRegistries are both set")
	}
}
