package installconfig

import (
	"path/filepath"
	"time"

	"dayone.dev/dayone/installconfig/report"
)

// minBuildTimeout is less than any build takes: what is below it is a slip such as 30ms for 30m.
const minBuildTimeout = time.Second

// Bounds of the build's numbers: below minBuildDisk no layer fits, more than maxAttempts do not help.
const (
	minBuildDisk = 1 << 20
	maxAttempts  = 20
)

// validateAfterBuild checks the limits and what happens when they are reached.
func validateAfterBuild(c *Config, at locator, rep *report.Report) {
	if t := c.Build.Timeout.Duration(); t < minBuildTimeout && at.set("build", "timeout") {
		rep.Errorf(at.at("positive", "write a duration such as 30m, or leave the key out", "build", "timeout"),
			"no image can be built within %s", t)
	}
	if n := c.Build.Disk; n < minBuildDisk && at.set("build", "disk") {
		rep.Errorf(at.at("positive", "write a size such as 8Gi, or leave the key out", "build", "disk"),
			"no image can be built within %d bytes", n)
	}
	if n := c.Build.Attempts; (n < 1 || n > maxAttempts) && at.set("build", "attempts") {
		rep.Errorf(at.at("attempts", "write a number from 1 to 20, or leave the key out", "build", "attempts"),
			"%d attempts cannot be made", n)
	}
	switch c.OnFailure {
	case "", OnFailureFail, OnFailureFallback:
	default:
		rep.Errorf(at.at("on-failure", "write fail or fallback", "onFailure"), "unknown policy %q", c.OnFailure)
	}
	switch c.HandOver.Policy {
	case "", HandOverWait, HandOverSkip, HandOverDeadline:
	default:
		rep.Errorf(at.at("hand-over", "write wait, skip or deadline", "handOver", "policy"), "unknown policy %q",
			c.HandOver.Policy)
	}
	if set := at.set("handOver", "deadline"); set && c.HandOver.Policy != HandOverDeadline {
		rep.Errorf(at.at("hand-over", "add policy: deadline, or remove the deadline", "handOver", "deadline"),
			"a deadline is for the policy deadline only")
	} else if d := c.HandOver.Deadline.Duration(); set && d < minBuildTimeout {
		rep.Errorf(at.at("positive", "write a duration such as 20m, or leave the key out", "handOver", "deadline"),
			"no image can be copied within %s", d)
	}
	validateRegistry(c.Registry, at, rep)
	validateLogSpool(c.LogSpool, at, rep)
	if f := c.SignaturePolicyFile; f != "" && !filepath.IsLocal(f) {
		rep.Errorf(at.at("inside-directory", "write a path inside the install directory", "signaturePolicyFile"),
			"%q leaves the install directory", f)
	}
}

// validateRegistry refuses two sources for one Secret and files outside the install directory.
func validateRegistry(r Registry, at locator, rep *report.Report) {
	for _, pair := range []struct{ secret, secretKey, file, fileKey string }{
		{r.PushSecret, "pushSecret", r.PushAuthFile, "pushAuthFile"},
		{r.BaseImagePullSecret, "baseImagePullSecret", r.BaseImagePullAuthFile, "baseImagePullAuthFile"},
	} {
		if pair.secret != "" && pair.file != "" {
			rep.Errorf(at.at("one-secret", "keep one of them", "registry", pair.fileKey),
				"%s and %s are both set: which credentials are meant?", pair.secretKey, pair.fileKey)
		}
	}
	for key, file := range map[string]string{"pushAuthFile": r.PushAuthFile,
		"baseImagePullAuthFile": r.BaseImagePullAuthFile, "caFile": r.CAFile} {
		if file != "" && !filepath.IsLocal(file) {
			rep.Errorf(at.at("inside-directory", "write a path inside the install directory", "registry", key),
				"%q leaves the install directory", file)
		}
	}
}

// validateFlow checks what depends on the flow, which the directory decides where the user did not.
func validateFlow(c *Config, at locator, rep *report.Report) {
	if c.Flow == FlowStandalone {
		if c.BootstrapRegistry.Host == "" {
			rep.Errorf(at.at("dotted-host", "use the bootstrap host's IPv4 address or full DNS name", "bootstrapRegistry",
				"host"),
				"the standalone flow needs the name by which nodes reach the bootstrap host")
		}
		if c.OnFailure == OnFailureFallback {
			rep.Errorf(at.at("on-failure", "write fail, or leave the key out", "onFailure"),
				"fallback is for the openshift flow: run a standalone bootstrap again after the fault is corrected")
		}
		return
	}
	if c.BaseImage != "" {
		rep.Errorf(at.at("base-image", "remove it, or write flow: standalone", "baseImage"),
			"in the openshift flow the release decides which OS image is the base")
	}
	if at.set("configServer") {
		rep.Errorf(at.at("config-server", "remove it, or write flow: standalone", "configServer"),
			"in the openshift flow the installer's own Machine Config Server serves the nodes")
	}
	if c.SignaturePolicyFile != "" {
		rep.Errorf(at.at("signature-policy",
			"set /etc/containers/policy.json with a MachineConfig, or write flow: standalone", "signaturePolicyFile"),
			"in the openshift flow nodes pull by their own policy")
	}
}

func validatePool(c *Config, i int, at locator, rep *report.Report) {
	p := c.Pools[i]
	switch p.BuildAt {
	case "", BuildAtBootstrap, BuildAtCluster:
	default:
		rep.Errorf(at.at("build-at", "write bootstrap or cluster", "pools", i, "buildAt"), "unknown place %q", p.BuildAt)
	}
	if !p.Generated() {
		if p.PushSpec != "" {
			rep.Errorf(at.at("push-spec-unused", "write it into the pool's MachineOSConfig, or give the pool a containerfile",
				"pools", i, "pushSpec"),
				"pushSpec is for generated MachineOSConfigs, and pool %q has no containerfile", p.Name)
		}
		return
	}
	if p.Containerfile != "" && p.ContainerfilePath != "" {
		rep.Errorf(at.at("one-containerfile", "keep one of them", "pools", i, "containerfilePath"),
			"containerfile and containerfilePath are both set")
	}
	if n := len([]rune(p.Containerfile)); n > MaxContainerfile {
		rep.Errorf(at.at("containerfile-length", "move files into an image and COPY --from it", "pools", i, "containerfile"),
			"%d characters; the API allows %d", n, MaxContainerfile)
	}
	if path := p.ContainerfilePath; path != "" && !filepath.IsLocal(path) {
		rep.Errorf(at.at("inside-directory", "write a path inside the install directory", "pools", i, "containerfilePath"),
			"%q leaves the install directory", path)
	}
	if p.PushSpec == "" && !repository.MatchString(c.Registry.Repository) {
		rep.Errorf(at.at("registry-repository", "write host[:port][/namespace], for example registry.example.com/ocp",
			"registry", "repository"),
			"pool %q has a Containerfile, so a MachineOSConfig is generated, and %q does not say where its image goes", p.Name,
			c.Registry.Repository)
	}
	if c.Registry.PushSecret == "" && c.Registry.PushAuthFile == "" {
		rep.Errorf(at.at("push-secret",
			"name a kubernetes.io/dockerconfigjson Secret of the layering directory, or give pushAuthFile", "registry",
			"pushSecret"),
			"pool %q has a Containerfile, so a MachineOSConfig is generated, and no push secret is named", p.Name)
	}
}
