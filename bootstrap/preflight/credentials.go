package preflight

import (
	"strings"

	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/registry/credentials"
)

// pushCredentials warns when the push Secret has nothing for the repository: the build would succeed, and the hand-over
// of its image fail when the masters are up. It is no refusal: a registry may let anybody push from where it is
// reached.
func (c *checker) pushCredentials(item mosc, raw []byte, repository string) {
	if raw == nil || repository == "" || credentials.Covers(raw, repository) {
		return
	}
	host, _, _ := strings.Cut(repository, "/")
	at := item.Origin.At("spec.renderedImagePushSecret.name", "push-secret-host")
	at.Next = "add an entry for " + host + " to its auths"
	c.rep.Warnf(at, "Secret %q has no credentials for %s", item.Object.Spec.RenderedImagePushSecret.Name, repository)
}

// insideCluster refuses a final registry that runs in the cluster itself for an image that is built on the bootstrap
// host: neither that host, which hands the image over, nor a node on its first boot can reach a Service.
func (c *checker) insideCluster(p installconfig.Pool, item mosc, repository string) {
	host, _, _ := strings.Cut(repository, "/")
	name, _, _ := strings.Cut(host, ":")
	if p.BuildAt != installconfig.BuildAtBootstrap || !strings.HasSuffix(strings.TrimSuffix(name, ".cluster.local"),
		".svc") {
		return
	}
	at := item.Origin.At("spec.renderedImagePushSpec", "push-spec-service")
	at.Next = "name a registry outside the cluster, or build the pool's image in the cluster (buildAt: cluster)"
	c.rep.Errorf(at, "%s is a Service of the cluster, which is not there when the image is built and handed over", host)
}
