package firstboot

import (
	"context"
	"errors"

	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/deploy/program"
	"dayone.dev/dayone/rebase/softreboot/userspace"
)

func userspaceOf(o Options) userspace.Node { return userspace.Node{Root: o.Root, Run: program.Run} }

// prepareReboot decides how the node reboots and prepares a soft reboot. Whatever is in the way of one is a reason for
// a hard one.
func prepareReboot(ctx context.Context, a attempt, j *journal) {
	var changes []string
	if !a.wanted.hasKernelArguments(a.status.Booted) {
		changes = []string{"kernel arguments"}
	}
	j.Soft, j.Hard = nil, ""
	s, err := userspaceOf(a.o).Prepare(ctx, a.deployer, a.wanted.image, a.config.RebootPolicy, changes)
	if err != nil {
		j.Hard = err.Error()
		return
	}
	j.Soft = &s
}

// rebootSoft asks for the soft reboot. If it does not come, the next attempt reboots hard.
func rebootSoft(ctx context.Context, a attempt) error {
	soft, able := a.deployer.(deploy.SoftRebooter)
	if !able {
		return errors.New("the node's deployer knows no soft reboot")
	}
	err := reboot(ctx, soft.SoftReboot)
	if err == nil {
		return nil
	}
	return errors.Join(err, userspaceOf(a.o).NoteFailure(a.wanted.image, err.Error()))
}

// healthy sees that a soft reboot has left nothing of the userspace before, and waits until the node is healthy.
func healthy(ctx context.Context, a attempt, j *journal) error {
	if j.lastBoot().Soft {
		var s userspace.Switch // somebody else's
		if j.Soft != nil {
			s = *j.Soft
		}
		if err := userspaceOf(a.o).Check(s, a.status.Booted); err != nil {
			return err
		}
	}
	return waitHealthy(ctx, a.o.Root, a.config, a.o.Log)
}

// sawWatch notes that the watch of the soft reboot has booted the hardware, because this program did not start in the
// new userspace. Where it did not start after that either, the watch has returned to the OS before, and the node stays
// there.
func sawWatch(a attempt, j *journal) error {
	if j.Soft == nil || j.lastBoot().Soft {
		return nil
	}
	why, returned, err := userspaceOf(a.o).Watched()
	if err != nil || why == "" {
		return err
	}
	if err := userspaceOf(a.o).NoteFailure(a.wanted.image, why); err != nil {
		return err
	}
	j.Soft, j.Hard = nil, "after a soft reboot: "+why
	if returned {
		j.WentBack = why
	}
	return j.save()
}

// rebootHard boots the hardware into the image that a soft reboot has led to: what the kernel and /run keep may be why
// it is not healthy. If it is not healthy then either, the node goes back.
func rebootHard(ctx context.Context, a attempt, j *journal, cause error) (bool, error) {
	if err := userspaceOf(a.o).NoteFailure(a.wanted.image, cause.Error()); err != nil {
		return false, err
	}
	j.Soft, j.Hard = nil, "after a soft reboot: "+cause.Error()
	j.Reboots++
	if err := j.enter(StateRebooting); err != nil {
		return false, err
	}
	a.o.Log.WithError(cause).Error("the image is not healthy after a soft reboot: the hardware reboots, once")
	return true, reboot(ctx, a.deployer.Reboot)
}
