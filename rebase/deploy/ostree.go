package deploy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/sirupsen/logrus"
)

// OSTree deploys with the plain ostree program: own import of the image, libostree's staged deployment and its /etc
// merge.
type OSTree struct {
	root   string
	repo   repository
	pull   ImportOptions
	log    *logrus.Entry
	reboot func(context.Context) error
}

// OSTreeOptions make an OSTree deployer; the zero value is for the running system.
type OSTreeOptions struct {
	// Root is the system's root; default "/".
	Root string
	// Import tunes the import of images; its Root defaults to Root.
	Import ImportOptions
	// Log: default nothing.
	Log *logrus.Entry
}

// NewOSTree makes the deployer; nothing is read yet.
func NewOSTree(o OSTreeOptions) *OSTree {
	if o.Root == "" {
		o.Root = "/"
	}
	if o.Import.Root == "" {
		o.Import.Root = o.Root
	}
	if o.Import.Log == nil {
		o.Import.Log = o.Log
	}
	return &OSTree{root: o.Root, repo: repository{path: filepath.Join(o.Root, "ostree/repo")}, pull: o.Import,
		log: o.Import.log(), reboot: rebootSystem}
}

func (d *OSTree) admin(ctx context.Context, command string, args ...string) (string, error) {
	return runOSTree(ctx, append([]string{"admin", command, "--sysroot=" + d.root}, args...)...)
}

// Stage imports image and stages a deployment of it. Images that no deployment was made from are dropped. See
// CheckStaged.
func (d *OSTree) Stage(ctx context.Context, image Image, o StageOptions) error {
	// What is booted is asked for while the registry answers; nothing is written before it is known.
	var entries []statusEntry
	var before Status
	asked := make(chan error, 1)
	go func() {
		var err error
		if entries, err = d.entries(ctx); err == nil {
			before, err = d.statusOf(entries)
		}
		asked <- err
	}()
	known := sync.OnceValue(func() error {
		if err := <-asked; err != nil || before.Booted != nil {
			return err
		}
		return &Fault{Class: ClassNotOSTree, Op: "stage " + image.String(),
			Err:  errors.New("this system was not booted from an ostree deployment"),
			Next: "run this on a node that booted its ostree deployment"}
	})
	pull := d.pull
	pull.Transfer, pull.beforeWriting = o.Transfer, known
	done, err := Import(ctx, d.repo.path, "docker://"+image.String(), pull)
	if waited := known(); waited != nil {
		return waited
	}
	if err != nil {
		return err
	}
	if log := d.log.WithField("image", image.String()); done.Reused {
		log.Info("image was imported before")
	} else {
		log.WithFields(logrus.Fields{"source": done.Source, "layers_fetched": done.LayersFetched,
			"layers_present": done.LayersPresent, "bytes": done.BytesFetched}).
			Info("image is imported")
	}
	change := kargsChange(before.Booted.KernelArguments, o)
	if len(change) == 0 && before.Next().Commit == done.Commit && before.nextHas(o) {
		return nil
	}
	if len(change) == 0 && before.Booted.Commit == done.Commit && before.Staged != nil && before.Pending == nil {
		_, err := d.admin(ctx, "undeploy", "0") // the staged one is the first
		return err
	}
	if err := d.checkBootSpace(before.Booted.Commit, done.Commit); err != nil {
		return err
	}
	if err := d.stageCommit(ctx, image, done.Commit, before.Booted, change); err != nil {
		return err
	}
	if err := d.checkStaging(ctx, done.Commit); err != nil {
		return err
	}
	deployed := map[string]bool{done.Commit: true}
	for _, e := range entries {
		if !e.staged { // there is one staged deployment at most
			deployed[e.commit] = true
		}
	}
	return d.repo.prune(deployed)
}

// checkStaging makes sure that commit is staged. The file with which libostree notes it names the commit as text,
// whatever else its version writes there; ostree is asked when it does not.
func (d *OSTree) checkStaging(ctx context.Context, commit string) error {
	if note, err := os.ReadFile(filepath.Join(d.root, "run/ostree/staged-deployment")); err == nil &&
		bytes.Contains(note, []byte(commit)) {
		return nil
	}
	after, err := d.entries(ctx)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(after, func(e statusEntry) bool { return e.staged }) {
		return &Fault{Class: ClassInternal, Op: "stage image", Err: errors.New("ostree reported success and staged nothing"),
			Next: "look at the output of ostree admin status"}
	}
	return nil
}

func (d *OSTree) stageCommit(ctx context.Context, image Image, commit string, booted *Deployment,
	change []string) error {
	origin, err := os.CreateTemp("", "dayone-origin-")
	if err != nil {
		return fmt.Errorf("write origin: %w", err)
	}
	_, err = fmt.Fprintf(origin, "[origin]\n%s=ostree-unverified-registry:%s\n", originKey, image)
	if err = errors.Join(err, origin.Close()); err != nil {
		return errors.Join(fmt.Errorf("write origin: %w", err), os.Remove(origin.Name()))
	}
	stateroot, _, _ := strings.Cut(booted.ID, "/")
	args := append([]string{"--stage", "--os=" + stateroot, "--origin-file=" + origin.Name()}, change...)
	_, err = d.admin(ctx, "deploy", append(args, commit)...)
	return errors.Join(err, os.Remove(origin.Name()))
}

// kargsChange gives the options of `ostree admin deploy` that lead from the arguments now to the wanted ones.
func kargsChange(now []string, o StageOptions) []string {
	var change []string
	remove, add := o.arguments()
	for _, word := range remove {
		if slices.Contains(now, word) {
			change = append(change, "--karg-delete="+word)
		}
	}
	for _, word := range add {
		if !slices.Contains(now, word) && !slices.Contains(change, "--karg-append="+word) {
			change = append(change, "--karg-append="+word)
		}
	}
	return change
}

// arguments gives the single arguments that o removes and adds. What is in both stays.
func (o StageOptions) arguments() (remove, add []string) {
	add = words(o.AppendKernelArguments)
	return slices.DeleteFunc(words(o.DeleteKernelArguments), func(word string) bool { return slices.Contains(add, word) }),
		add
}

// nextHas tells whether what the next boot takes has the arguments that o asks for. Those of a staged deployment can be
// asked of nobody: it has the booted one's where no argument is spoken of.
func (s Status) nextHas(o StageOptions) bool {
	if s.Staged != nil {
		return len(o.AppendKernelArguments) == 0 && len(o.DeleteKernelArguments) == 0
	}
	return !ChangesKernelArguments(s.Next().KernelArguments, o)
}

// checkBootSpace makes sure that /boot can take the kernel: ostree copies it there at shutdown only, too late to say
// something.
func (d *OSTree) checkBootSpace(booted, next string) error {
	have, err := d.repo.kernelFiles(booted)
	if err != nil {
		return err
	}
	want, err := d.repo.kernelFiles(next)
	if err != nil {
		return err
	}
	var need int64
	for object, size := range want {
		if _, ok := have[object]; !ok {
			need += size
		}
	}
	if need == 0 {
		return nil
	}
	return requireSpace(filepath.Join(d.root, "boot"), need+bootSlack, "stage image")
}

// bootSlack is for boot entries and directories beside the kernel.
const bootSlack = 1 << 20

// Reboot asks the init system for a reboot.
func (d *OSTree) Reboot(ctx context.Context) error { return d.reboot(ctx) }

// rebootSystem uses systemd where it runs, and the reboot program otherwise, so that staged deployments are finalized.
func rebootSystem(ctx context.Context) error {
	command := []string{"systemctl", "reboot"}
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		command = []string{"reboot"}
	}
	out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput()
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		// The shutdown that it asked for ends the agent's service and every process in it.
		if status, ok := ended.Sys().(syscall.WaitStatus); ok && status.Signaled() && status.Signal() == syscall.SIGTERM {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("ask for reboot: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// LacksKernelArguments gives the words of want that are not among the arguments now; none when those are not known.
func LacksKernelArguments(now, want []string) (missing []string) {
	for _, line := range want {
		for _, word := range splitArguments(line) {
			if now != nil && !slices.Contains(now, word) {
				missing = append(missing, word)
			}
		}
	}
	return missing
}

// ChangesKernelArguments tells whether o asks for something else than the arguments now.
func ChangesKernelArguments(now []string, o StageOptions) bool { return len(kargsChange(now, o)) > 0 }
