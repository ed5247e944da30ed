package preflight

import (
	"fmt"
	"path"
	"slices"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
)

// Generated is an object that dayone made because the user gave none.
type Generated struct {
	// File is where WriteGenerated puts it, relative to the install directory.
	File string
	// Object is a typed API object.
	Object any
}

func poolPath(i int) string { return fmt.Sprintf("%s.pools[%d]", installconfig.Field, i) }

// poolIndex is a pool's place in the user's list.
func (c *checker) poolIndex(name string) int {
	return slices.IndexFunc(c.in.Sidecar.Config.Pools, func(p installconfig.Pool) bool { return p.Name == name })
}

// containerfilePlace is where the user wrote entry i of a MachineOSConfig's Containerfiles: in the object, or, where
// dayone generated the object, in install-config.yaml or the file that it names.
func (c *checker) containerfilePlace(item mosc, i int) report.Finding {
	index := c.poolIndex(item.Object.Spec.MachineConfigPool.Name)
	if index < 0 || !c.in.Sidecar.Config.Pools[index].Generated() {
		return item.Origin.At(fmt.Sprintf("spec.containerFile[%d].content", i), "")
	}
	if file := c.in.Sidecar.Config.Pools[index].ContainerfilePath; file != "" {
		return report.Finding{File: file}
	}
	return report.Finding{File: installconfig.FileName, Path: poolPath(index) + ".containerfile"}
}

// generate makes the MachineOSConfig of a pool whose Containerfile stands in install-config.yaml. Without one it
// refuses.
func (c *checker) generate(p installconfig.Pool) (mosc, bool) {
	at := report.Finding{File: installconfig.FileName, Path: poolPath(c.poolIndex(p.Name)), Rule: "mosc-missing"}
	if !p.Generated() {
		at.Next = fmt.Sprintf("put a MachineOSConfig named %q into %s/ or give the pool a containerfile", p.Name,
			c.in.Sidecar.Config.LayeringDir)
		c.rep.Errorf(at, "pool %q is to be layered and has no MachineOSConfig", p.Name)
		return mosc{}, false
	}
	content, ok := c.userContainerfile(p, at)
	if !ok {
		return mosc{}, false
	}
	push, pull, ok := c.registrySecrets()
	if !ok {
		return mosc{}, false
	}
	to := c.in.Sidecar.Config.Registry
	spec := p.PushSpec
	if spec == "" {
		spec = to.Repository + "/" + p.Name + "-os:latest"
	}
	object := &mcfgv1.MachineOSConfig{
		TypeMeta:   metav1.TypeMeta{APIVersion: mcfgv1.GroupVersion.String(), Kind: "MachineOSConfig"},
		ObjectMeta: metav1.ObjectMeta{Name: p.Name},
		Spec: mcfgv1.MachineOSConfigSpec{
			MachineConfigPool:       mcfgv1.MachineConfigPoolReference{Name: p.Name},
			ImageBuilder:            mcfgv1.MachineOSImageBuilder{ImageBuilderType: mcfgv1.JobBuilder},
			RenderedImagePushSecret: mcfgv1.ImageSecretObjectReference{Name: push},
			RenderedImagePushSpec:   mcfgv1.ImageTagFormat(spec),
			Containerfile:           []mcfgv1.MachineOSContainerfile{{ContainerfileArch: mcfgv1.NoArch, Content: content}},
		},
	}
	if pull != "" {
		object.Spec.BaseImagePullSecret = &mcfgv1.ImageSecretObjectReference{Name: pull}
	}
	file := path.Join(c.in.Sidecar.Config.LayeringDir, generatedName(p.Name))
	c.in.Generated = append(c.in.Generated, Generated{File: file, Object: object})
	item := manifests.Item[*mcfgv1.MachineOSConfig]{Object: object, Origin: manifests.Origin{File: file, Document: 1}}
	c.in.Set.MachineOSConfigs = append(c.in.Set.MachineOSConfigs, item)
	return item, true
}

// userContainerfile is the Containerfile that install-config.yaml holds or names.
func (c *checker) userContainerfile(p installconfig.Pool, at report.Finding) (string, bool) {
	if p.ContainerfilePath == "" {
		return p.Containerfile, true
	}
	at.Path += ".containerfilePath"
	raw, err := readInside(c.dir, p.ContainerfilePath)
	if err != nil {
		at.Rule, at.Next = "containerfile-path", "the path is relative to the install directory"
		c.rep.Errorf(at, "read Containerfile: %v", err)
		return "", false
	}
	if n := len([]rune(string(raw))); n > installconfig.MaxContainerfile {
		at.Rule, at.Next = "containerfile-length", "move files into an image and COPY --from it"
		c.rep.Errorf(at, "%s has %d characters; the API allows %d", p.ContainerfilePath, n, installconfig.MaxContainerfile)
		return "", false
	}
	return string(raw), true
}
