package standin

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// bootcHost is org.containers.bootc/v1 BootcHost.
type bootcHost struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   map[string]string `json:"metadata"`
	Spec       bootcSpec         `json:"spec"`
	Status     bootcStatus       `json:"status"`
}

type bootcSpec struct {
	Image     *bootcReference `json:"image"`
	BootOrder string          `json:"bootOrder"`
}

type bootcStatus struct {
	Staged         *bootcEntry `json:"staged"`
	Booted         *bootcEntry `json:"booted"`
	Rollback       *bootcEntry `json:"rollback"`
	RollbackQueued bool        `json:"rollbackQueued"`
	Type           *string     `json:"type"`
	UsrOverlay     any         `json:"usrOverlay"`
	ReadOnly       bool        `json:"readOnly"`
}

type bootcReference struct {
	Image     string `json:"image"`
	Transport string `json:"transport"`
	Signature string `json:"signature,omitempty"`
}

type bootcImage struct {
	Image        bootcReference `json:"image"`
	Version      *string        `json:"version"`
	Timestamp    *time.Time     `json:"timestamp"`
	ImageDigest  string         `json:"imageDigest"`
	Architecture string         `json:"architecture"`
}

type bootcEntry struct {
	Image             *bootcImage `json:"image"`
	CachedUpdate      *bootcImage `json:"cachedUpdate"`
	Incompatible      bool        `json:"incompatible"`
	Pinned            bool        `json:"pinned"`
	SoftRebootCapable bool        `json:"softRebootCapable"`
	DownloadOnly      bool        `json:"downloadOnly"`
	Store             *string     `json:"store"`
	OSTree            *bootcTree  `json:"ostree"`
	Composefs         any         `json:"composefs"`
}

type bootcTree struct {
	Stateroot    string `json:"stateroot"`
	Checksum     string `json:"checksum"`
	DeploySerial int    `json:"deploySerial"`
}

func newBootcStatus(h host) *cobra.Command {
	var format, version string
	var asJSON, onlyBooted bool
	c := &cobra.Command{Use: "status", Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error {
		if version != "1" && version != "0" {
			return words("Unsupported format version: %s", version)
		}
		if asJSON {
			format = "json"
		}
		s, err := readBootcStatus(c.Context())
		if err != nil {
			return err
		}
		if onlyBooted {
			s.Status.Staged, s.Status.Rollback = nil, nil
		}
		return printStatus(h, s, format)
	}}
	f := c.Flags()
	f.StringVar(&format, "format", "humanreadable", "json, yaml or humanreadable")
	f.StringVar(&version, "format-version", "1", "")
	f.BoolVar(&asJSON, "json", false, "")
	f.BoolVar(&onlyBooted, "booted", false, "")
	f.Lookup("json").Hidden = true
	return c
}

func printStatus(h host, s bootcHost, format string) error {
	switch format {
	case "json":
		return json.NewEncoder(h.stdout).Encode(s)
	case "yaml":
		raw, err := yaml.Marshal(s)
		if err == nil {
			_, err = h.stdout.Write(raw)
		}
		return err
	case "humanreadable":
		if s.Status.Booted == nil {
			h.say("System is not deployed via bootc.")
		} else if image := s.Status.Booted.Image; image != nil {
			h.say("● Booted image: %s\n        Digest: %s", image.Image.Image, image.ImageDigest)
		}
		return nil
	}
	return usageError{errors.New("invalid value '" + format + "' for '--format <FORMAT>'")}
}

func readBootcStatus(ctx context.Context) (bootcHost, error) {
	s := bootcHost{APIVersion: "org.containers.bootc/v1", Kind: "BootcHost", Metadata: map[string]string{"name": "host"},
		Spec: bootcSpec{BootOrder: "default"}}
	if !isBooted() || inContainer() {
		return s, nil // all null is an answer, too
	}
	all, err := deployments(ctx)
	if err != nil {
		return s, err
	}
	b := booted(all)
	if b == nil {
		return s, nil
	}
	s.Status.Booted = b.entry()
	spec := s.Status.Booted
	if all[0].staged {
		s.Status.Staged = all[0].entry()
		spec = s.Status.Staged
	}
	back, queued := rollbackOf(all)
	if back != nil {
		s.Status.Rollback = back.entry()
	}
	if err := s.Status.capabilities(all, b, back); err != nil {
		return s, err
	}
	if s.Status.RollbackQueued = queued; queued {
		s.Spec.BootOrder = "rollback"
	}
	if spec.Image != nil {
		s.Spec.Image = &spec.Image.Image
	}
	if s.Status.Booted.Image != nil {
		kind := "bootcHost"
		s.Status.Type = &kind
	}
	return s, nil
}

// capabilities fills in which of the entries a soft reboot could go to.
func (s *bootcStatus) capabilities(all []deployment, b, back *deployment) error {
	for _, of := range []struct {
		entry *bootcEntry
		d     *deployment
	}{{s.Booted, b}, {s.Staged, &all[0]}, {s.Rollback, back}} {
		if of.entry == nil {
			continue
		}
		var err error
		if of.entry.SoftRebootCapable, err = canSoftReboot(b, *of.d); err != nil {
			return err
		}
	}
	return nil
}

// entry is null in image where the origin names none, or where layered packages make it another tree than the image's.
func (d deployment) entry() *bootcEntry {
	e := &bootcEntry{Incompatible: d.layered, Pinned: d.pinned, DownloadOnly: d.locked,
		OSTree: &bootcTree{Stateroot: d.stateroot, Checksum: d.checksum, DeploySerial: d.serial}}
	ref, err := parseReference(d.reference)
	if err != nil || d.layered {
		return e
	}
	store := "ostreeContainer"
	e.Store = &store
	e.Image = &bootcImage{Image: bootcReference{Image: ref.image, Transport: "registry"}, ImageDigest: d.digest,
		Architecture: runtime.GOARCH}
	if ref.signed {
		e.Image.Image.Signature = "containerPolicy"
	}
	if d.version != "" {
		e.Image.Version = &d.version
	}
	if !d.timestamp.IsZero() {
		e.Image.Timestamp = &d.timestamp
	}
	return e
}
