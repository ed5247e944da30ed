package day1

import (
	"context"
	"io"
	"sync"

	"dayone.dev/dayone/bootstrap/day1"
	"dayone.dev/dayone/bootstrap/gather"
	"dayone.dev/dayone/bootstrap/gather/spool"
	"dayone.dev/dayone/bootstrap/preflight"
	"dayone.dev/dayone/installconfig"
)

// keepLogs sends log bundles to another machine where the install directory asks for it; end sends the last one, which
// tells how the run ended. What cannot be sent stops nothing.
func keepLogs(ctx context.Context, o day1.Options, c installconfig.LogSpool) (end func()) {
	files, err := preflight.ReadLogSpool(o.Dir, c)
	if err != nil || files == nil {
		return func() {} // the run itself says what is wrong
	}
	logs := gather.Options{StateDir: o.StateDir, InstallDir: o.Dir, MaxTotal: spool.MaxBundle,
		Secrets: []string{files.Token}}
	s := spool.Sender{URL: c.URL, Token: files.Token, CA: files.CA, Every: c.Every.Duration(), Log: o.Log,
		Gather: func(ctx context.Context, w io.Writer) error { return gather.Host(ctx, logs, w) }}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // the run is told to stop first
	var ended sync.WaitGroup
	ended.Go(func() { s.Run(ctx) })
	return func() {
		cancel()
		ended.Wait()
	}
}
