package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"dayone.dev/dayone/hack/kube"
	"dayone.dev/dayone/hack/kube/process"
	"dayone.dev/dayone/hack/program"
)

// Up removes what dead clusters left and starts a new one. It returns when the node is Ready and pods can be made. It
// needs root.
func Up(ctx context.Context, o Options) (*Cluster, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := Missing(); err != nil {
		return nil, err
	}
	assets, err := kube.Assets(ctx, o.Log)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, upTimeout)
	defer cancel()
	if err := sweep(ctx, o); err != nil {
		o.Log.WithError(err).Warn("cannot remove what dead clusters left") // no reason not to start a new one
	}
	dir, err := process.Open(o.runs(), runName)
	if err != nil {
		return nil, err
	}
	c := &Cluster{directory: dir, dir: dir.Path, options: o, group: process.NewGroup()}
	if err := c.up(ctx, assets); err != nil {
		return nil, errors.Join(fmt.Errorf("start cluster: %w", err), c.Down(context.WithoutCancel(ctx)))
	}
	return c, nil
}

func (c *Cluster) up(ctx context.Context, assets string) error {
	logs := filepath.Join(c.dir, logDir)
	if c.options.LogDir == "" {
		if err := os.Mkdir(logs, 0o700); err != nil {
			return err
		}
	} else if err := keepLogs(c.options.LogDir, logs); err != nil {
		return err
	}
	pause := program.Options{Package: "dayone.dev/dayone/hack/kube/pause"}
	if err := program.Build(ctx, "", pause, filepath.Join(c.dir, pauseFile)); err != nil {
		return err
	}
	groups, err := findCgroups(cgroupMount)
	if err != nil {
		return err
	}
	c.record = record{Name: c.options.Name, Assets: assets, Cgroup: "dayone-kube-" + filepath.Base(c.dir), LogDir: logs}
	if err := groups.make(c.record.Cgroup); err != nil {
		return err
	}
	if err := c.launch(ctx); err != nil {
		return err
	}
	if err := c.connect(); err != nil {
		return err
	}
	return c.waitNode(ctx)
}

// keepLogs lets the cluster's directory of logs lead to one that stays.
func keepLogs(dir, link string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.Symlink(dir, link)
}

// launch starts the node's first process and follows its reports until the node's programs run.
func (c *Cluster) launch(ctx context.Context) error {
	var files []*os.File
	defer func() {
		for _, f := range files {
			_ = f.Close()
		}
	}()
	var addresses []string
	for range 2 {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return fmt.Errorf("listen on this machine: %w", err)
		}
		f, err := listener.(*net.TCPListener).File()
		addresses = append(addresses, listener.Addr().String())
		if err := errors.Join(err, listener.Close()); err != nil { // the file stays
			return fmt.Errorf("listen on this machine: %w", err)
		}
		files = append(files, f)
	}
	c.record.API, c.record.Registry = addresses[0], addresses[1]
	if err := c.record.write(c.dir); err != nil {
		return err
	}
	reports, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer reports.Close()
	files = append(files, theirs)
	s := again(stageInit, c.dir)
	s.Files = append([]*os.File{c.directory.Lock()}, files...)
	s.Clone = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC
	s.Log, s.Detached = filepath.Join(c.record.LogDir, "node.log"), c.options.Keep
	first, err := c.group.Start(s)
	if err != nil {
		return err
	}
	c.record.PID = first.PID()
	if err := errors.Join(c.record.write(c.dir), theirs.Close()); err != nil {
		return err
	}
	return c.follow(ctx, reports, first)
}

// follow logs the steps that the node reports and gives its error.
func (c *Cluster) follow(ctx context.Context, reports *os.File, first *process.Process) error {
	stop := context.AfterFunc(ctx, func() { _ = reports.SetReadDeadline(time.Now()) })
	defer stop()
	begin := time.Now()
	in := json.NewDecoder(reports)
	for {
		var r startReport
		switch err := in.Decode(&r); {
		case ctx.Err() != nil:
			return fmt.Errorf("wait for the node: %w", ctx.Err())
		case errors.Is(err, io.EOF):
			return fmt.Errorf("the node ended: %s", process.LastLines(filepath.Join(c.record.LogDir, "node.log"), 5))
		case err != nil:
			return fmt.Errorf("read the node's report: %w", err)
		case r.Error != "":
			return errors.New(r.Error)
		case r.Ready:
			return nil
		}
		c.options.Log.WithFields(logrus.Fields{"step": r.Step, "duration": time.Since(begin).Round(time.Millisecond).
			String()}).Info("cluster is starting")
	}
}
