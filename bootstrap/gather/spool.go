package gather

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/google/renameio/v2"

	"dayone.dev/dayone/installconfig/report"
)

// Remote gathers on another host through a program such as ssh: the bundle comes over its standard output, so that the
// last state of a bootstrap host that vanishes is where the program runs.
type Remote struct {
	// Command is the program and its arguments, for example ssh core@192.0.2.1 sudo dayone gather --stdout.
	Command []string
	// Limit bounds one run. Default: 5 minutes.
	Limit time.Duration
}

const remoteLimit = 5 * time.Minute

// maxBundle bounds what another host may send, in bytes.
const maxBundle = DefaultMaxTotal

// Gather runs the command and copies its output; Write takes it in the place of Host.
func (r Remote) Gather(ctx context.Context, _ Options, w io.Writer) error {
	if len(r.Command) == 0 {
		return errors.New("gather on another host: no command")
	}
	r.Limit = cmp.Or(r.Limit, remoteLimit)
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
	n, copyErr := Copy(w, out)
	if copyErr != nil || n > maxBundle {
		cancel()
	}
	err = cmd.Wait()
	said := strings.TrimSpace(errs.String())
	switch {
	case errors.Is(copyErr, errNoBundle):
		return fmt.Errorf("gather on another host (%s): %w: %s", strings.Join(r.Command, " "), copyErr, said)
	case copyErr != nil:
		return fmt.Errorf("write bundle: %w", copyErr)
	case n > maxBundle:
		return fmt.Errorf("gather on another host: more than %d bytes arrived", maxBundle)
	case err != nil:
		return fmt.Errorf("gather on another host (%s): %w: %s", strings.Join(r.Command, " "), err, said)
	case n == 0:
		return fmt.Errorf("gather on another host (%s): nothing arrived: %s", strings.Join(r.Command, " "), said)
	}
	return nil
}

// errNoBundle is for output that does not begin like an archive, such as a login message.
var errNoBundle = errors.New("the output is not a log bundle")

// magic begins every gzip stream (RFC 1952).
const magic = "\x1f\x8b"

// Copy copies a bundle of another host and returns its size. It stops after the first byte that is too many, and
// refuses anything else than a bundle.
func Copy(w io.Writer, from io.Reader) (int64, error) {
	head := make([]byte, len(magic))
	n, err := io.ReadFull(from, head)
	switch {
	case errors.Is(err, io.EOF):
		return 0, nil
	case err != nil && !errors.Is(err, io.ErrUnexpectedEOF):
		return int64(n), err
	case string(head[:n]) != magic:
		return int64(n), errNoBundle
	}
	return io.Copy(w, io.LimitReader(io.MultiReader(bytes.NewReader(head), from), maxBundle+1))
}

// Lost is what stands beside a spooled bundle, as BUNDLE.lost.json, once its host no longer answers, and keeps since
// when.
type Lost struct {
	// Since is the first renewal that failed, after the last that went well.
	Since time.Time `json:"since"`
	// Error is why the last one failed.
	Error string `json:"error"`
}

const lostEnd = ".lost.json"

// maxLost bounds the file, in bytes.
const maxLost = 64 << 10

// ReadLost tells whether a bundle is the last one of a host that no longer answers; nil: it is not.
func ReadLost(bundle string) (*Lost, error) {
	f, err := os.Open(bundle + lostEnd)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what is known of the bundle's host: %w", err)
	}
	defer f.Close()
	l := &Lost{}
	if err := json.NewDecoder(io.LimitReader(f, maxLost)).Decode(l); err != nil {
		return nil, fmt.Errorf("read %s (remove it if it is not of dayone gather --every): %w", bundle+lostEnd, err)
	}
	return l, nil
}

// Mark records that a bundle could not be renewed, or removes that record.
func (l *Lost) Mark(bundle string, now time.Time, failure error) error {
	if failure == nil {
		*l = Lost{}
		err := os.Remove(bundle + lostEnd)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	if l.Since.IsZero() {
		l.Since = now.UTC()
	}
	l.Error = failure.Error()
	raw, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return err
	}
	return renameio.WriteFile(bundle+lostEnd, append(raw, '\n'), 0o600)
}

// Spool writes a bundle of one name again and again until ctx ends: the file always holds the last whole one. A run
// that fails leaves it as it is; the log and a file beside it say so.
func Spool(ctx context.Context, dir string, o Options, every time.Duration,
	gather func(context.Context, Options, io.Writer) error) error {
	o = o.withDefaults()
	if every < time.Second {
		return fmt.Errorf("gather every %s: use one second or more", every)
	}
	log := o.Log
	log = cmp.Or(log, report.NoLog())
	if err := o.Validate(); err != nil {
		return err
	}
	bundle, lost := filepath.Join(dir, o.Name()), &Lost{}
	if l, err := ReadLost(bundle); err == nil && l != nil {
		lost = l // an earlier spool has noticed
	}
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		name, err := Write(ctx, dir, o, gather)
		if ctx.Err() != nil {
			return nil
		}
		if markErr := lost.Mark(bundle, o.Now(), err); markErr != nil {
			log.WithError(markErr).Warn("cannot record beside the bundle whether its host answers")
		}
		switch {
		case err != nil:
			log.WithError(err).Warn("bundle not renewed, keeping the last one")
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
