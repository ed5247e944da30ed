package machineconfig

import (
	"encoding/json"
	"fmt"

	"github.com/coreos/ign-converter/translate/v32tov22"
	"github.com/coreos/ign-converter/translate/v32tov31"
	"github.com/coreos/ign-converter/translate/v33tov32"
	"github.com/coreos/ign-converter/translate/v34tov33"
	ign30 "github.com/coreos/ignition/v2/config/v3_0/types"
	ign31 "github.com/coreos/ignition/v2/config/v3_1/types"
	ign32 "github.com/coreos/ignition/v2/config/v3_2/types"
	ign33 "github.com/coreos/ignition/v2/config/v3_3/types"
	ign34 "github.com/coreos/ignition/v2/config/v3_4/types"
	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/coreos/ignition/v2/config/validate"
)

// Down converts a config to an older version for a client that asks for it: 3.5.0 down to 3.0.0, or 2.2.0. The result
// is of that version's own Config type. It fails when the config uses something that the version does not have; the
// error names it. Ignition's kernelArguments exist from 3.3.0 on: the caller moves them elsewhere before asking for
// less.
func Down(c ign35.Config, version string) (any, error) {
	if version == Version {
		if found := validate.ValidateWithContext(c, nil); found.IsFatal() {
			return nil, fmt.Errorf("check config: %w", invalid(found))
		}
		return c, nil
	}
	steps := []string{"3.4.0", "3.3.0", "3.2.0"}
	var current any = c
	var err error
	for _, step := range steps {
		if current, err = stepDown(current, step); err != nil {
			return nil, fmt.Errorf("convert config to %s: %w", step, err)
		}
		if step == version {
			return current, nil
		}
	}
	if version == "2.2.0" {
		current, err = stepDown(current, version)
	} else if current, err = stepDown(current, "3.1.0"); err == nil && version == "3.0.0" {
		current, err = stepDown(current, version)
	} else if err == nil && version != "3.1.0" {
		return nil, fmt.Errorf("convert config: version %s is not known", version)
	}
	if err != nil {
		return nil, fmt.Errorf("convert config to %s: %w", version, err)
	}
	return current, nil
}

// stepDown converts by one version; the source's type decides where from.
func stepDown(from any, to string) (any, error) {
	switch to {
	case "3.4.0":
		return down34(from.(ign35.Config))
	case "3.3.0":
		return v34tov33.Translate(from.(ign34.Config))
	case "3.2.0":
		return v33tov32.Translate(from.(ign33.Config))
	case "3.1.0":
		return v32tov31.Translate(from.(ign32.Config))
	case "2.2.0":
		return v32tov22.Translate(from.(ign32.Config))
	default:
		return down30(from.(ign31.Config))
	}
}

// down34 takes away what 3.5 added: CEX keys for LUKS.
func down34(c ign35.Config) (ign34.Config, error) {
	for _, l := range c.Storage.Luks {
		if l.Cex.Enabled != nil && *l.Cex.Enabled {
			return ign34.Config{}, fmt.Errorf("LUKS device %s: cex is not supported in 3.4", l.Name)
		}
	}
	c.Ignition.Version = "3.4.0"
	var out ign34.Config
	err := recode(c, &out)
	return out, err
}

// down30 takes away what 3.1 added: proxies, HTTP headers, compression of fetched configs and CAs, mount
// options.
func down30(c ign31.Config) (ign30.Config, error) {
	var out ign30.Config
	p := c.Ignition.Proxy
	if p.HTTPProxy != nil || p.HTTPSProxy != nil || len(p.NoProxy) > 0 {
		return out, fmt.Errorf("ignition.proxy is not supported in 3.0")
	}
	fetched := append([]ign31.Resource{c.Ignition.Config.Replace}, c.Ignition.Config.Merge...)
	for _, r := range append(fetched, c.Ignition.Security.TLS.CertificateAuthorities...) {
		if len(r.HTTPHeaders) > 0 || r.Compression != nil && *r.Compression != "" {
			return out, fmt.Errorf("HTTP headers and compression of fetched configs and CAs are not supported in 3.0")
		}
	}
	for _, f := range c.Storage.Files {
		for _, r := range append([]ign31.Resource{f.Contents}, f.Append...) {
			if len(r.HTTPHeaders) > 0 {
				return out, fmt.Errorf("file %s: HTTP headers are not supported in 3.0", f.Path)
			}
		}
	}
	for _, f := range c.Storage.Filesystems {
		if len(f.MountOptions) > 0 {
			return out, fmt.Errorf("file system on %s: mountOptions are not supported in 3.0", f.Device)
		}
	}
	c.Ignition.Version = "3.0.0"
	err := recode(c, &out)
	return out, err
}

// recode carries a config over to the older version's types, which are a subset in JSON, and checks it there.
func recode(from, to any) error {
	raw, err := json.Marshal(from)
	if err != nil {
		return fmt.Errorf("write config: %w", err)
	}
	if err := json.Unmarshal(raw, to); err != nil {
		return fmt.Errorf("read config: %w", err)
	}
	if found := validate.ValidateWithContext(to, nil); found.IsFatal() {
		return invalid(found)
	}
	return nil
}
