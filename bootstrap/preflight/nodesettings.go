package preflight

import (
	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
)

// nodeSettings are those of install-config.yaml in the standalone flow. A directory without the file is one that its
// user has prepared and tidied up; what the nodes lack because of it is said.
func nodeSettings(doc *installconfig.Document, sidecar *installconfig.Sidecar) (
	installconfig.NodeSettings, []report.Finding) {
	if doc == nil {
		return installconfig.NodeSettings{}, []report.Finding{{Severity: report.Warning, File: installconfig.FileName,
			Rule: "install-config-missing", Message: "the file is gone: nodes get no pull secret, SSH key, CA, mirror or proxy",
			Next: "put it back as dayone prepare has left it"}}
	}
	return doc.Nodes(&sidecar.Config)
}

// ownBase refuses a ControllerConfig that names another OS image than install-config.yaml: nodes without an image of
// their own would boot it.
func ownBase(_ *directory, in *Input, rep *report.Report) {
	n := len(in.Set.ControllerConfigs)
	if in.openshift() || n == 0 {
		return
	}
	item := in.Set.ControllerConfigs[n-1]
	named := item.Object.Spec.BaseOSContainerImage
	want := installconfig.Repository(in.Sidecar.Config.BaseImage)
	if named != "" && installconfig.Repository(named) != want {
		at := item.Origin.At("spec.baseOSContainerImage", "base-image")
		at.Next = "remove it: dayone writes the digest that it imports"
		rep.Errorf(at, "the ControllerConfig names %s, and %s.baseImage is of %s", named, installconfig.Field, want)
	}
}
