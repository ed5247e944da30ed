package standin

import (
	"context"
	"encoding/json"

	"github.com/spf13/cobra"

	"dayone.dev/dayone/hack/runlock"
)

// rpmStatus is `rpm-ostree status --json`; keys that the real one writes and nobody here reads are there as well.
type rpmStatus struct {
	Deployments  []rpmDeployment `json:"deployments"`
	Transaction  []string        `json:"transaction"`
	CachedUpdate any             `json:"cached-update"`
	UpdateDriver *updateDriver   `json:"update-driver"`
}

type rpmDeployment struct {
	ID                  string         `json:"id"`
	OSName              string         `json:"osname"`
	Serial              int            `json:"serial"`
	Checksum            string         `json:"checksum"`
	Version             string         `json:"version,omitempty"`
	Timestamp           int64          `json:"timestamp"`
	Booted              bool           `json:"booted"`
	Staged              bool           `json:"staged"`
	Pinned              bool           `json:"pinned"`
	Unlocked            string         `json:"unlocked"`
	FinalizationLocked  bool           `json:"finalization-locked,omitempty"`
	Reference           string         `json:"container-image-reference,omitempty"`
	ReferenceDigest     string         `json:"container-image-reference-digest,omitempty"`
	Origin              string         `json:"origin,omitempty"`
	CustomOrigin        []string       `json:"custom-origin,omitempty"`
	BaseCommitMeta      map[string]any `json:"base-commit-meta"`
	Packages            []string       `json:"packages"`
	RequestedPackages   []string       `json:"requested-packages"`
	RegenerateInitramfs bool           `json:"regenerate-initramfs"`
}

func newRPMStatus(h host) *cobra.Command {
	var asJSON, onlyBooted bool
	c := &cobra.Command{Use: "status", Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error {
		if !isBooted() {
			return words("This command requires an ostree-based system")
		}
		s, err := readRPMStatus(c.Context(), onlyBooted)
		if err != nil {
			return err
		}
		if asJSON {
			out := json.NewEncoder(h.stdout)
			out.SetIndent("", "  ")
			return out.Encode(s)
		}
		h.say("State: idle\nDeployments:")
		for _, d := range s.Deployments {
			mark := " "
			if d.Booted {
				mark = "●"
			}
			h.say("%s %s\n                   Digest: %s\n                  Version: %s", mark, d.Reference+d.Origin,
				d.ReferenceDigest, d.Version)
		}
		return nil
	}}
	c.Flags().BoolVar(&asJSON, "json", false, "")
	c.Flags().BoolVarP(&onlyBooted, "booted", "b", false, "")
	c.Flags().BoolP("verbose", "v", false, "no effect here")
	return c
}

func readRPMStatus(ctx context.Context, onlyBooted bool) (rpmStatus, error) {
	all, err := deployments(ctx)
	if err != nil {
		return rpmStatus{}, err
	}
	driver, err := registeredDriver()
	if err != nil {
		return rpmStatus{}, err
	}
	s := rpmStatus{Deployments: []rpmDeployment{}, UpdateDriver: driver}
	if runlock.Held(lockPath) {
		s.Transaction = []string{"rebase", ":1.1", "/org/projectatomic/rpmostree1"}
	}
	for _, d := range all {
		if onlyBooted && !d.booted {
			continue
		}
		one := rpmDeployment{ID: d.id(), OSName: d.stateroot, Serial: d.serial, Checksum: d.checksum, Version: d.version,
			Timestamp: d.timestamp.Unix(),
			Booted:    d.booted, Staged: d.staged, Pinned: d.pinned, Unlocked: "none", BaseCommitMeta: map[string]any{},
			Packages: []string{}, RequestedPackages: []string{}}
		if d.reference != "" {
			one.Reference, one.ReferenceDigest = d.reference, d.digest
			one.BaseCommitMeta["ostree.manifest-digest"] = d.digest
		} else {
			one.Origin = d.refspec
		}
		if d.customURL != "" {
			one.CustomOrigin = []string{d.customURL, d.customD}
		}
		s.Deployments = append(s.Deployments, one)
	}
	return s, nil
}
