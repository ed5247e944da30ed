package hostjournal

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

const (
	// finalizer is what turns the staged deployment into the next boot's, at shutdown. Source: ostree.
	finalizer = "ostree-finalize-staged.service"
	// sessionStart is the ID of logind's message about a session that has begun. Source: systemd, sd-messages.h.
	sessionStart = "8d45620c1a4348dbb17410da57c60c66"
	// maxLines bounds what is read at once: the last lines of a service's run, the last logins.
	maxLines = "200"
	// interval is how often logins are looked for.
	interval = time.Minute
)

// Journal is that of the host whose root this process has.
type Journal struct{}

// FinalizeFailure is what ostree said when it could not finalize the staged deployment at the last shutdown: of this
// boot, where a soft reboot went before, else of the boot before; empty: nothing, or that boot's journal is gone.
func (Journal) FinalizeFailure(ctx context.Context) (string, error) {
	said, err := ofFinalizer(ctx, "0")
	if err == nil && !finalized(said) {
		said, err = ofFinalizer(ctx, "-1")
	}
	return failureIn(said), err
}

// success is what ostree says of a deployment that it has finalized. Source: ostree, ostree-sysroot-deploy.c.
const success = "Finalized deployment"

// finalized tells whether ostree has finalized a deployment, or tried.
func finalized(text string) bool { return strings.Contains(text, success) || failureIn(text) != "" }

// ofFinalizer reads what ostree said in a boot, counted back from this one; nothing where nothing is kept of it.
func ofFinalizer(ctx context.Context, boot string) (string, error) {
	c := exec.CommandContext(ctx, "journalctl", "--quiet", "--boot="+boot, "--output=cat", "--lines="+maxLines,
		"--unit="+finalizer, "_UID=0")
	var out, complaint bytes.Buffer
	c.Stdout, c.Stderr = &out, &complaint
	if err := c.Run(); err != nil {
		if _, ok := errors.AsType[*exec.ExitError](err); ok {
			return "", nil // there is no boot before this one, or nothing is kept of it
		}
		return "", fmt.Errorf("read the journal of %s: %w", finalizer, err)
	}
	return out.String(), nil
}

// failureIn is the last complaint in ostree's output since it succeeded.
func failureIn(text string) (found string) {
	for line := range strings.Lines(text[max(0, strings.LastIndex(text, success)):]) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "error:") {
			found = line
		}
	}
	return found
}

// Logins calls found with the journal's cursor of each session that begins, and of each that has begun in this boot
// after a cursor; empty: in all of this boot. It looks once a minute, so that no program has to stay beside the agent,
// until ctx ends or the journal cannot be read.
func (Journal) Logins(ctx context.Context, after string, found func(cursor string)) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		cursors, err := logins(ctx, after)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read logins from the journal: %w", err)
		}
		for _, cursor := range cursors {
			after = cursor
			found(cursor)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func logins(ctx context.Context, after string) (cursors []string, err error) {
	argv := []string{"--quiet", "--boot", "--output=json", "--output-fields=MESSAGE", "--lines=" + maxLines}
	if after != "" {
		argv = append(argv, "--after-cursor="+after)
	}
	var out, complaint bytes.Buffer
	c := exec.CommandContext(ctx, "journalctl", append(argv, "MESSAGE_ID="+sessionStart)...)
	c.Stdout, c.Stderr = &out, &complaint
	if err := c.Run(); err != nil {
		return nil, fmt.Errorf("%w %s", err, strings.TrimSpace(complaint.String()))
	}
	for line := range bytes.Lines(out.Bytes()) {
		if cursor, is := login(line); is {
			cursors = append(cursors, cursor)
		}
	}
	return cursors, nil
}

// login reads an entry. Newer versions of systemd have a session of the class manager beside that of each login, and
// one for a service manager that nobody has logged in to.
func login(entry []byte) (cursor string, is bool) {
	var e struct {
		Cursor  string `json:"__CURSOR"`
		Message string `json:"MESSAGE"`
	}
	if json.Unmarshal(entry, &e) != nil || e.Cursor == "" {
		return "", false
	}
	return e.Cursor, !strings.Contains(e.Message, "class 'manager")
}
