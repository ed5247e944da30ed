package preflight

import (
	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/validation"
)

// LoadLayering reads and checks what the layering directory says, and nothing of the installer's: those files are gone
// once it has made Ignition configs, and on the bootstrap node its own programs read them. The Set of the result has
// MachineOSConfigs and Secrets only.
func LoadLayering(dir, platform string) (*Input, error) {
	sidecar, err := Layering(dir)
	if err != nil {
		return nil, err
	}
	if !sidecar.Config.On() {
		return nil, switchedOff()
	}
	all := &Input{Sidecar: sidecar, Set: &manifests.Set{}}
	api, err := validation.New()
	if err != nil {
		return nil, err
	}
	docs := &documents{api: api, layering: sidecar.Config.LayeringDir}
	if err := all.read(dir, docs.inspect); err != nil {
		return nil, err
	}
	// Secrets count wherever they lie; of MachineOSConfigs checker.machineOSConfigs refuses those outside.
	in := &Input{Sidecar: sidecar, Set: &manifests.Set{MachineOSConfigs: all.Set.MachineOSConfigs,
		Secrets: all.Set.Secrets, Findings: all.Set.Findings}}
	var rep report.Report
	c := checker{in: in, rep: &rep, dir: dir, platform: platform}
	c.masterIgnition()
	c.layeredPools()
	c.registryCA()
	c.logSpool()
	c.names()
	if err := c.api(docs); err != nil {
		return nil, err
	}
	rep.Add(in.Set.Findings...)
	in.Warnings = rep.Warnings()
	return in, rep.Err()
}
