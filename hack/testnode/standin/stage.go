package standin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// lockedPath holds back the finalizing of a staged deployment. Source: libostree,
// _OSTREE_SYSROOT_RUNSTATE_STAGED_LOCKED.
const lockedPath = "/run/ostree/staged-deployment-locked"

// target is what is to be staged.
type target struct {
	commit          string
	stateroot       string
	origin          string // lines of the origin file below its container-image-reference
	kernelArguments []string
	locked          bool // not finalized at shutdown until somebody unlocks it
}

// stage lets libostree stage a deployment with exactly these kernel arguments.
func stage(ctx context.Context, t target) (err error) {
	origin, err := os.CreateTemp("/run", "standin-origin-")
	if err != nil {
		return fmt.Errorf("write origin: %w", err)
	}
	defer func() { err = errors.Join(err, os.Remove(origin.Name())) }()
	_, err = origin.WriteString(t.origin)
	if err := errors.Join(err, origin.Close()); err != nil {
		return fmt.Errorf("write origin: %w", err)
	}
	args := []string{"admin", "deploy", "--sysroot=/", "--stage", "--os=" + t.stateroot, "--origin-file=" + origin.Name(),
		"--karg-none"}
	for _, k := range t.kernelArguments {
		args = append(args, "--karg-append="+k)
	}
	if _, err := ostree(ctx, append(args, t.commit)...); err != nil {
		return err
	}
	all, err := deployments(ctx)
	if err != nil {
		return err
	}
	if len(all) == 0 || !all[0].staged {
		return errors.New("libostree has staged nothing")
	}
	raw, err := json.Marshal(stagedState{ID: all[0].id(), KernelArguments: t.kernelArguments})
	if err != nil {
		return fmt.Errorf("write staged state: %w", err)
	}
	if err := os.WriteFile(stagedPath, raw, 0o600); err != nil {
		return fmt.Errorf("write staged state: %w", err)
	}
	if t.locked {
		return os.WriteFile(lockedPath, nil, 0o600)
	}
	return nil
}

// undeploy drops the deployments that the predicate names.
func undeploy(ctx context.Context, drop func(all []deployment, d deployment) bool) error {
	for {
		all, err := deployments(ctx)
		if err != nil {
			return err
		}
		found := false
		for _, d := range all {
			if d.booted || !drop(all, d) {
				continue
			}
			if _, err := ostree(ctx, "admin", "undeploy", "--sysroot=/", strconv.Itoa(d.index)); err != nil {
				return err
			}
			found = true // the others have new numbers
			break
		}
		if !found {
			return nil
		}
	}
}

func isPending(all []deployment, d deployment) bool {
	b := booted(all)
	return b != nil && d.index < b.index
}

func isRollback(all []deployment, d deployment) bool {
	b := booted(all)
	return b != nil && d.index > b.index
}

// imageKernelArguments reads usr/lib/bootc/kargs.d of a commit. Source: bootc documentation, "Kernel arguments".
func imageKernelArguments(ctx context.Context, commit string) ([]string, error) {
	list, err := ostree(ctx, "ls", "--repo="+repoPath, "--nul-filenames-only", commit, "/usr/lib/bootc/kargs.d")
	if err != nil {
		if strings.Contains(err.Error(), "No such file or directory") {
			return nil, nil
		}
		return nil, err
	}
	var all []string
	for _, path := range strings.Split(list, "\x00") {
		if filepath.Ext(path) != ".toml" {
			continue
		}
		text, err := ostree(ctx, "cat", "--repo="+repoPath, commit, path)
		if err != nil {
			return nil, err
		}
		more, err := parseKernelArguments(text)
		if err != nil {
			return nil, fmt.Errorf("parsing %s: %w", path, err)
		}
		all = append(all, more...)
	}
	return all, nil
}
