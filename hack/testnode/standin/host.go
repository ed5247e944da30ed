package standin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	repoPath = "/ostree/repo"
	// lockPath is held by what changes deployments: rpm-ostree's one transaction at a time, bootc's sysroot lock.
	lockPath = "/run/ostree-standin.lock"
	// stagedPath remembers the staged deployment's kernel arguments; libostree has them in a file of its own form.
	stagedPath = "/run/ostree-standin.staged"
)

// host is what a command gets of the system that the stand-in runs on: where it prints.
type host struct {
	stdout io.Writer
}

// deployment is one line of `ostree admin status` with what its origin and commit say.
type deployment struct {
	index              int
	stateroot          string
	checksum           string
	serial             int
	booted, staged     bool
	locked             bool // staged, and not finalized at shutdown until somebody unlocks it
	pinned             bool
	reference          string // container-image-reference, "" when the origin names a branch
	refspec            string
	customURL, customD string
	layered            bool // has packages that only rpm-ostree can carry
	digest, version    string
	timestamp          time.Time
	kargs              []string
}

func (d deployment) id() string { return fmt.Sprintf("%s-%s.%d", d.stateroot, d.checksum, d.serial) }

// isBooted is libostree's own sign.
func isBooted() bool {
	_, err := os.Stat("/run/ostree-booted")
	return err == nil
}

func ostree(ctx context.Context, args ...string) (string, error) {
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, "ostree", args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8")
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		text := strings.TrimPrefix(strings.TrimSpace(errs.String()), "error: ")
		if text == "" {
			return "", fmt.Errorf("run ostree %s: %w", args[0], err)
		}
		return "", errors.New(text)
	}
	return out.String(), nil
}

// deploymentLine is how ostree 2022.7 to 2026.4 write a deployment.
//
//nolint:gochecknoglobals // compiled once
var deploymentLine = regexp.MustCompile(`^(\*| ) (\S+) ([0-9a-f]{64})\.([0-9]+)(.*)$`)

// lockedMark is how ostree marks a staged deployment that no shutdown finalizes.
const lockedMark = "(finalization locked)"

// deployments lists what is on the host in the boot loader's order, a staged one first.
func deployments(ctx context.Context) ([]deployment, error) {
	text, err := ostree(ctx, "admin", "status", "--sysroot=/")
	if err != nil {
		return nil, err
	}
	var all []deployment
	for _, line := range strings.Split(text, "\n") {
		if strings.TrimSpace(line) == "Pinned: yes" && len(all) > 0 {
			all[len(all)-1].pinned = true
		}
		m := deploymentLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		serial, err := strconv.Atoi(m[4])
		if err != nil {
			return nil, fmt.Errorf("read deployment serial: %w", err)
		}
		all = append(all, deployment{index: len(all), booted: m[1] == "*", stateroot: m[2], checksum: m[3], serial: serial,
			staged: strings.Contains(m[5], "(staged)") || strings.Contains(m[5], lockedMark),
			locked: strings.Contains(m[5], lockedMark)})
	}
	arguments, err := entriesByDeployment()
	if err != nil {
		return nil, err
	}
	for i := range all {
		if err := describe(ctx, &all[i], arguments); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func describe(ctx context.Context, d *deployment, arguments map[string]bootEntry) error {
	dir := d.dir()
	if err := d.readOrigin(dir + ".origin"); err != nil {
		return err
	}
	for key, value := range map[string]*string{"ostree.manifest-digest": &d.digest, "version": &d.version} {
		out, err := ostree(ctx, "show", "--repo="+repoPath, "--print-metadata-key="+key, d.checksum)
		if err == nil {
			*value = strings.Trim(strings.TrimSpace(out), "'")
		} else if !strings.Contains(err.Error(), "No such metadata key") {
			return err
		}
	}
	out, err := ostree(ctx, "show", "--repo="+repoPath, d.checksum)
	if err != nil {
		return err
	}
	for _, line := range strings.Split(out, "\n") {
		if date, ok := strings.CutPrefix(line, "Date:"); ok {
			if d.timestamp, err = time.Parse("2006-01-02 15:04:05 -0700", strings.TrimSpace(date)); err != nil {
				return fmt.Errorf("read commit date: %w", err)
			}
		}
	}
	d.kargs = arguments[dir].arguments()
	if d.staged {
		d.kargs, err = stagedArguments(d.id())
	}
	return err
}

func (d deployment) dir() string {
	dir := filepath.Join("/ostree/deploy", d.stateroot, "deploy", fmt.Sprintf("%s.%d", d.checksum, d.serial))
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		return real
	}
	return dir
}

func (d *deployment) readOrigin(path string) error {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read origin: %w", err)
	}
	group := ""
	for _, line := range strings.Split(string(raw), "\n") {
		if strings.HasPrefix(line, "[") {
			group = strings.Trim(line, "[]")
			d.layered = d.layered || group == "packages" || group == "overrides"
		}
		key, value, _ := strings.Cut(line, "=")
		switch group + "/" + key {
		case "origin/container-image-reference":
			d.reference = value
		case "origin/refspec":
			d.refspec = value
		case "origin/custom-url":
			d.customURL = value
		case "origin/custom-description":
			d.customD = value
		}
	}
	return nil
}

// stagedState is what this program knows about the deployment that it staged.
type stagedState struct {
	ID              string   `json:"id"`
	KernelArguments []string `json:"kernelArguments"`
}

func stagedArguments(id string) ([]string, error) {
	raw, err := os.ReadFile(stagedPath)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var s stagedState
	if err == nil {
		err = json.Unmarshal(raw, &s)
	}
	if err != nil {
		return nil, fmt.Errorf("read staged state: %w", err)
	}
	if s.ID != id { // another program staged it
		return nil, nil
	}
	return s.KernelArguments, nil
}

func booted(all []deployment) *deployment {
	for i := range all {
		if all[i].booted {
			return &all[i]
		}
	}
	return nil
}

func (h host) say(format string, a ...any) { fmt.Fprintf(h.stdout, format+"\n", a...) }

// reboot asks the init system, as the real ones do through systemd.
func reboot(ctx context.Context) error {
	if out, err := exec.CommandContext(ctx, "systemctl", "reboot").CombinedOutput(); err != nil {
		return fmt.Errorf("reboot: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}
