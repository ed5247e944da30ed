package ostree

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/program"
	"dayone.dev/dayone/rebase/deploy/pull"
)

// stagedFile is where ostree notes a staged deployment until the shutdown. Source: ostree, ostree-sysroot-private.h
// (_OSTREE_SYSROOT_RUNSTATE_STAGED).
const stagedFile = "run/ostree/staged-deployment"

// Deployer deploys with the plain ostree program: own import of the image, libostree's staged deployment and its /etc
// merge.
type Deployer struct {
	root  string
	repo  string
	store pull.Store
	pull  pull.Options
	log   *logrus.Entry
}

// Options of the deployer; the zero value is for the running system.
type Options struct {
	// Root is the system's root; default "/".
	Root string
	// Import tunes the import of images; its Root defaults to Root.
	Import pull.Options
	// Log gets what the deployer does; default: no log.
	Log *logrus.Entry
}

// New makes the deployer; nothing is read yet.
func New(o Options) *Deployer {
	o.Root = cmp.Or(o.Root, "/")
	o.Import.Root = cmp.Or(o.Import.Root, o.Root)
	if o.Import.Log == nil {
		o.Import.Log = o.Log
	}
	o.Import.Log = cmp.Or(o.Import.Log, report.NoLog())
	repo := filepath.Join(o.Root, "ostree/repo")
	return &Deployer{root: o.Root, repo: repo, store: pull.NewStore(repo), pull: o.Import, log: o.Import.Log}
}

func (d *Deployer) admin(ctx context.Context, command string, args ...string) (string, error) {
	return program.OSTree(ctx, append([]string{"admin", command, "--sysroot=" + d.root}, args...)...)
}

// Stage imports image and stages a deployment of it. Images that no deployment was made from are dropped. See
// host.CheckStaged.
func (d *Deployer) Stage(ctx context.Context, image deploy.Image, o deploy.StageOptions) error {
	entries, err := d.entries(ctx)
	if err != nil {
		return err
	}
	before, err := d.statusOf(entries)
	if err != nil {
		return err
	}
	if before.Booted == nil {
		return &deploy.Fault{Class: deploy.ClassNotOSTree, Op: "stage " + image.String(),
			Err:  errors.New("this system was not booted from an ostree deployment"),
			Next: "run this on a node that booted its ostree deployment"}
	}
	options := d.pull
	options.Transfer, options.First = o.Transfer, o.Source
	done, err := pull.Import(ctx, d.repo, "docker://"+image.String(), options)
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
	if len(change) == 0 && before.Next().Commit == done.Commit && nextHas(before, o) {
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
	if _, err := os.Stat(filepath.Join(d.root, stagedFile)); err != nil {
		return &deploy.Fault{Class: deploy.ClassInternal, Op: "stage image",
			Err:  fmt.Errorf("ostree reported success and staged nothing: %w", err),
			Next: "look at the output of ostree admin status"}
	}
	deployed := map[string]bool{done.Commit: true}
	for _, e := range entries {
		if !e.staged { // there is one staged deployment at most
			deployed[e.commit] = true
		}
	}
	return d.store.Prune(deployed)
}

func (d *Deployer) stageCommit(ctx context.Context, image deploy.Image, commit string, booted *deploy.Deployment,
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
func kargsChange(now []string, o deploy.StageOptions) []string {
	var change []string
	remove, add := o.KernelArguments()
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

// nextHas tells whether what the next boot takes has the arguments that o asks for. Those of a staged deployment are
// not known: it has the booted one's where o names none.
func nextHas(s deploy.Status, o deploy.StageOptions) bool {
	if s.Staged != nil {
		return len(o.AppendKernelArguments) == 0 && len(o.DeleteKernelArguments) == 0
	}
	return !deploy.ChangesKernelArguments(s.Next().KernelArguments, o)
}

// checkBootSpace makes sure that /boot can take the kernel: ostree copies it there at shutdown only, too late to say
// something.
func (d *Deployer) checkBootSpace(booted, next string) error {
	have, err := d.store.KernelFiles(booted)
	if err != nil {
		return err
	}
	want, err := d.store.KernelFiles(next)
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
	return deploy.RequireSpace(filepath.Join(d.root, "boot"), need+deploy.BootSlack, "stage image")
}

// Reboot asks the init system for a reboot.
func (d *Deployer) Reboot(ctx context.Context) error { return program.Reboot(ctx) }

// Fetch imports the image, one layer after the other: it has time.
func (d *Deployer) Fetch(ctx context.Context, image deploy.Image, o deploy.FetchOptions) error {
	options := d.pull
	options.Parallel, options.BytesPerSecond, options.Transfer = 1, o.BytesPerSecond, o.Transfer
	done, err := pull.Import(ctx, d.repo, "docker://"+image.String(), options)
	if err != nil {
		return err
	}
	d.log.WithField("image", image.String()).WithField("bytes", done.BytesFetched).WithField("reused", done.Reused).
		Info("image prefetched")
	return nil
}

// Forget drops the image's name and the layers that no other image has, and lets ostree free the space.
func (d *Deployer) Forget(ctx context.Context, image deploy.Image) error {
	entries, err := d.entries(ctx)
	if err != nil {
		return err
	}
	deployed := map[string]bool{}
	for _, e := range entries {
		deployed[e.commit] = true
	}
	dropped, err := d.store.Forget("docker://"+image.String(), deployed)
	if err != nil || !dropped {
		return err
	}
	d.log.WithField("image", image.String()).Info("prefetched image dropped")
	_, err = d.admin(ctx, "cleanup")
	return err
}

// Rollback makes the deployment before the booted one the next boot's, with its own /etc as it was left. A staged one
// is discarded. Where it is the next boot's already nothing is done.
func (d *Deployer) Rollback(ctx context.Context) error {
	entries, err := d.entries(ctx)
	if err != nil {
		return err
	}
	booted := slices.IndexFunc(entries, func(e statusEntry) bool { return e.booted })
	there := booted >= 0 && booted+1 < len(entries)
	for i, e := range entries {
		if e.staged || e.pending && there { // without another one, what is pending is what to revert to
			if _, err := d.admin(ctx, "undeploy", strconv.Itoa(i)); err != nil {
				return err
			}
			return d.Rollback(ctx) // the others have new numbers
		}
	}
	if booted > 0 && !there {
		return nil
	}
	if !there {
		return &deploy.Fault{Class: deploy.ClassInternal, Op: "roll back",
			Err:  errors.New("there is no deployment to revert to"),
			Next: "stage another image"}
	}
	// set-default came with ostree 2023.6; before, the order of the boot entries is changed as a boot menu's user would.
	help, err := program.OSTree(ctx, "admin", "--help")
	if err != nil {
		return err
	}
	if strings.Contains(help, "set-default") {
		_, err = d.admin(ctx, "set-default", strconv.Itoa(booted+1))
		return err
	}
	return d.preferEntry(d.deploymentDir(entries[booted+1]))
}

// Unstage undeploys the staged deployment.
func (d *Deployer) Unstage(ctx context.Context) error {
	entries, err := d.entries(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(entries, func(e statusEntry) bool { return e.staged })
	if i < 0 {
		return nil
	}
	_, err = d.admin(ctx, "undeploy", strconv.Itoa(i))
	return err
}

// PrepareSoft lets ostree mount the staged deployment at /run/nextroot, and reads that the next soft reboot takes this
// one. ostree refuses one with another kernel, initramfs or kernel arguments.
func (d *Deployer) PrepareSoft(ctx context.Context) error {
	err := d.prepareSoft(ctx)
	if err != nil {
		return errors.Join(err, program.CancelSoft(ctx))
	}
	return nil
}

func (d *Deployer) prepareSoft(ctx context.Context) error {
	if err := program.CancelSoft(ctx); err != nil { // a second mount would cover the first
		return err
	}
	before, err := d.entries(ctx)
	if err != nil {
		return err
	}
	if len(before) == 0 || !before[0].staged {
		return notPrepared("no deployment is staged")
	}
	if _, err := d.admin(ctx, "prepare-soft-reboot", "0"); err != nil { // the staged one is the first
		return err
	}
	after, err := d.entries(ctx)
	if err != nil {
		return err
	}
	if len(after) == 0 || !after[0].next || after[0].id() != before[0].id() {
		return notPrepared("ostree reported success, and its status names no such target")
	}
	mounted, err := program.NextRootMounted("/")
	if err == nil && !mounted {
		err = notPrepared("ostree reported success, and nothing is mounted at /run/nextroot")
	}
	return err
}

func notPrepared(why string) error {
	return &deploy.Fault{Class: deploy.ClassInternal, Op: "prepare the soft reboot", Err: fmt.Errorf("%s", why),
		Next: "look at ostree admin status on the node"}
}

// SoftReboot asks for the soft reboot.
func (d *Deployer) SoftReboot(ctx context.Context) error { return program.SoftReboot(ctx) }

// CancelSoft withdraws what is prepared.
func (d *Deployer) CancelSoft(ctx context.Context) error { return program.CancelSoft(ctx) }
