package preflight

import (
	"bytes"
	"crypto/x509"
	"path"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/rebase/deploy"
)

// baseImage checks the name that the stock OS image has in its final registry.
func (c *checker) baseImage() {
	if c.openshift() {
		return // the release names it
	}
	name := c.in.Sidecar.Config.BaseImage
	at := report.Finding{File: installconfig.FileName, Path: installconfig.Field + ".baseImage", Rule: "base-image",
		Next: "write host[:port][/namespace]/name and a tag or a digest, for example registry.example.com/ocp/base-os:1"}
	if name == "" {
		c.rep.Errorf(at, "the standalone flow needs the name of the OS image")
		return
	}
	repository := installconfig.Repository(name)
	if !digestForm.MatchString(repository) || !validPort(repository) ||
		!referenceEnd.MatchString(name[len(repository):]) ||
		!lowerPath.MatchString(installconfig.RepositoryPath(repository)) {
		c.rep.Errorf(at, "%q is not of the form that the API allows for images", name)
	}
	for _, p := range c.in.Pools {
		if p.Repository == repository {
			at.Rule = "base-repository"
			at.Next = "give the base image a repository of its own"
			c.rep.Errorf(at, "pool %q pushes its image to the base image's repository", p.Name)
		}
	}
}

// signaturePolicy reads the policy here, because a node would find its faults only when it is to boot its image.
func (c *checker) signaturePolicy() {
	file := c.in.Sidecar.Config.SignaturePolicyFile
	if file == "" {
		return
	}
	at := report.Finding{File: installconfig.FileName, Path: installconfig.Field + ".signaturePolicyFile",
		Rule: "signature-policy",
		Next: "write it as containers-policy.json(5) says"}
	raw, err := readInside(c.dir, file)
	if err == nil {
		err = deploy.ParsePolicy(raw)
	}
	if err != nil {
		c.rep.Errorf(at, "read signature policy: %v", err)
		return
	}
	c.in.SignaturePolicy = raw
}

// registryCA reads the authority of the final registry: a file that is none would show when the masters are up.
func (c *checker) registryCA() {
	file := c.in.Sidecar.Config.Registry.CAFile
	if file == "" {
		return
	}
	at := report.Finding{File: installconfig.FileName, Path: installconfig.Field + ".registry.caFile", Rule: "unreadable",
		Next: "the path is relative to the install directory"}
	raw, err := readInside(c.dir, file)
	if err != nil {
		c.rep.Errorf(at, "the authority of the final registry cannot be read: %v", err)
		return
	}
	if !x509.NewCertPool().AppendCertsFromPEM(raw) {
		at.Rule, at.Next = "registry-ca", "give certificates in PEM form"
		c.rep.Errorf(at, "%s holds no certificate", file)
		return
	}
	c.in.RegistryCA = append(bytes.TrimRight(raw, "\n"), '\n')
}

// openshift says that the installer's own bootstrap renders and serves.
func (c *checker) openshift() bool { return c.in.Sidecar.Config.Flow == installconfig.FlowOpenShift }

// pools adds the MachineConfigPools master and worker where they are missing, as every cluster has them. In the
// openshift flow MCO writes its own.
func (c *checker) pools() {
	have := map[string]bool{}
	for _, p := range c.in.Set.Pools {
		have[p.Object.Name] = true
	}
	for _, name := range []string{"master", "worker"} {
		if have[name] {
			continue
		}
		pool := defaultPool(name)
		c.in.Set.Pools = append(c.in.Set.Pools, manifests.NewItem(pool))
		have[name] = true
		if c.openshift() {
			continue
		}
		c.in.Generated = append(c.in.Generated, Generated{File: path.Join("openshift",
			"99_dayone-machineconfigpool-"+name+".yaml"), Object: pool})
	}
	for i, p := range c.in.Sidecar.Config.Pools {
		if !have[p.Name] {
			at := report.Finding{File: installconfig.FileName, Path: poolPath(i) + ".name", Rule: "pool-missing",
				Next: "add the MachineConfigPool to openshift/"}
			c.rep.Errorf(at, "there is no MachineConfigPool %q", p.Name)
		}
	}
}

func defaultPool(name string) *mcfgv1.MachineConfigPool {
	return &mcfgv1.MachineConfigPool{
		TypeMeta:   metav1.TypeMeta{APIVersion: mcfgv1.GroupVersion.String(), Kind: "MachineConfigPool"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: mcfgv1.MachineConfigPoolSpec{
			MachineConfigSelector: &metav1.LabelSelector{MatchLabels: map[string]string{manifests.LabelRole: name}},
			NodeSelector:          &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/" + name: ""}},
		},
	}
}
