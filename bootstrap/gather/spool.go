package gather

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
)

// Remote gathers on another host through a program such as ssh: the bundle comes over its standard output, so that the last state of a
// bootstrap host that vanishes is where the program runs.
type Remote struct {
	// Command is the program and its arguments, for example ssh core@192.0.2.1 sudo dayone gather --stdout.
	Command []string
	// Limit bounds one run. Default: 5 minutes.
	Limit time.Duration
}

const remoteLimit = 5 * time.Minute

// maxBundle bounds what another host may send, in bytes.
const maxBundle = DefaultMaxTotal

// Gather runs the command and copies its output; it is given to Write in the place of Host.
func (r Remote) Gather(ctx context.Context, _ Options, w io.Writer) error {
	if len(r.Command) == 0 {
		return errors.New("gather on another host: no command")
	}
	if r.Limit == 0 {
		r.Limit = remoteLimit
	}
	ctx, cancel := context.WithTimeout(ctx, r.Limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, r.Command[0], r.Command[1:]...)
	errs := &tail{limit: 4 << 10}
	cmd.Stderr = errs
	cmd.WaitDelay = commandLimit
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("gather on another host: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("gather on another host: %w", err)
	}
	n, copyErr := io.Copy(w, io.LimitReader(out, maxBundle+1))
	if copyErr != nil || n > maxBundle {
		cancel()
	}
	err = cmd.Wait()
	said := strings.TrimSpace(errs.String())
	switch {
	case copyErr != nil:
		return fmt.Errorf("write bundle: %w", copyErr)
	case n > maxBundle:
		return fmt.Errorf("gather on another host: more than %d bytes came", maxBundle)
	case err != nil:
		return fmt.Errorf("gather on another host (%s): %w: %s", strings.Join(r.Command, " "), err, said)
	case n == 0:
		return fmt.Errorf("gather on another host (%s): nothing came: %s", strings.Join(r.Command, " "), said)
	}
	return nil
}

// Spool writes a bundle of one name again and again until ctx ends: the file always holds the last whole one. A run that fails leaves it as
// it is and is told in the log.
func Spool(ctx context.Context, dir string, o Options, every time.Duration, gather func(context.Context, Options, io.Writer) error) error {
	o = o.withDefaults()
	if every < time.Second {
		return fmt.Errorf("gather every %s: give one second or more", every)
	}
	log := o.Log
	if log == nil {
		quiet := logrus.New()
		quiet.SetOutput(io.Discard)
		log = logrus.NewEntry(quiet)
	}
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		name, err := Write(ctx, dir, o, gather)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			log.WithError(err).Warn("bundle not renewed, the last one stays")
		default:
			log.WithField("bundle", name).Info("bundle renewed")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
	}
}
