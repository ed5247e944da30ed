package buildpod

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/job"
	"dayone.dev/dayone/registry/credentials"
)

// input is everything that the Job mounted.
type input struct {
	order job.Order
	task  task
}

// readInput reads it all while the pod's own user can: the worker cannot.
func (o Options) readInput() (*input, error) {
	in := &input{}
	raw, err := o.read(job.DirConfig, job.FileOrder)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(raw, &in.order); err != nil {
		return nil, fmt.Errorf("read order: %w", err)
	}
	r := in.order.Request
	var parts [][]byte
	for i := range in.order.Parts {
		part, err := o.read(job.DirConfig, job.FilePart+strconv.Itoa(i))
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}
	if r.Config, err = job.Unpack(parts); err != nil {
		return nil, err
	}
	text, err := o.read(job.DirContainerfile, job.FileContainerfile)
	if err != nil {
		return nil, err
	}
	r.Containerfile = string(text)
	in.task = task{Work: o.Work, Shifted: o.UserNamespace == job.UserNamespaceShift}
	if err := o.readAccess(&in.task, r.Target); err != nil {
		return nil, err
	}
	if r.Options.Mounts, err = o.copyMounts(in.order.Mounts); err != nil {
		return nil, err
	}
	in.task.Request = r
	return in, nil
}

// readAccess reads credentials and CAs.
func (o Options) readAccess(t *task, target string) error {
	push, err := o.read(job.DirPush, job.FileAuth)
	if err != nil {
		return err
	}
	pull, err := o.optional(job.DirPull, job.FileAuth)
	if err != nil {
		return err
	}
	if t.Auth, err = credentials.ForPush(pull, push, target); err != nil {
		return err
	}
	t.CA, err = o.optional(job.DirCA, job.FileCA)
	return err
}

func (o Options) read(dir, file string) ([]byte, error) {
	raw, err := os.ReadFile(filepath.Join(o.Input, dir, file))
	if err != nil {
		return nil, fmt.Errorf("read input of build: %w", err)
	}
	return raw, nil
}

// optional gives nothing for a file that the Job did not mount.
func (o Options) optional(dir, file string) ([]byte, error) {
	raw, err := o.read(dir, file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return raw, err
}

// copyMounts copies what RUN shall see to where the worker can read it. What is empty is left out: the object does not
// exist.
func (o Options) copyMounts(mounts []job.OrderMount) ([]build.Mount, error) {
	var out []build.Mount
	for _, m := range mounts {
		to := filepath.Join(mountsDir(o.Work), m.Name)
		files, err := copyTree(filepath.Join(o.Input, job.DirMounts, m.Name), to)
		if err != nil {
			return nil, fmt.Errorf("copy what RUN shall see at %s: %w", m.Target, err)
		}
		if files > 0 {
			out = append(out, build.Mount{Source: to, Target: m.Target})
		}
	}
	return out, nil
}

// copyTree copies the files of a mounted Secret or ConfigMap and leaves out the kubelet's own entries (..data,
// ..2026_…), which change at every refresh. Names that lead there are followed. It gives the number of files.
func copyTree(from, to string) (files int, err error) {
	entries, err := os.ReadDir(from)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return 0, err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "..") {
			continue
		}
		source, target := filepath.Join(from, e.Name()), filepath.Join(to, e.Name())
		info, err := os.Stat(source)
		if err != nil {
			return files, err
		}
		if info.IsDir() {
			n, err := copyTree(source, target)
			if files += n; err != nil {
				return files, err
			}
			continue
		}
		raw, err := os.ReadFile(source)
		if err != nil {
			return files, err
		}
		if err := os.WriteFile(target, raw, 0o644); err != nil {
			return files, err
		}
		files++
	}
	return files, nil
}
