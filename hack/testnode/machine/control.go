package machine

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// dialInterval is the pause between two tries to reach a socket that QEMU is about to make.
const dialInterval = 50 * time.Millisecond

// control talks to the program dayone-control in the machine, one command at a time.
type control struct {
	mu      sync.Mutex
	conn    io.Writer
	results chan string // closed with the connection
}

// listen follows the control port of one boot: the machine says when it is ready, then answers.
func (m *Machine) listen(ctx context.Context, socket string) {
	conn, err := dial(ctx, socket)
	if err != nil {
		return // the boot is over
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	var c *control
	defer func() { c.close() }()
	lines := bufio.NewReader(conn)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		kind, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case strings.HasSuffix(kind, "dayone-ready"): // the firmware may have left bytes before it
			before := c
			before.close()
			c = &control{conn: conn, results: make(chan string, 1)}
			m.update(func() {
				m.control = c
				if before != nil {
					m.soft++
				}
			})
		case kind == "dayone-result" && c != nil:
			select {
			case c.results <- rest:
			case <-ctx.Done():
				return
			}
		}
	}
}

// close ends the command that waits, if any: nobody will answer it.
func (c *control) close() {
	if c != nil {
		close(c.results)
	}
}

func dial(ctx context.Context, socket string) (net.Conn, error) {
	tick := time.NewTicker(dialInterval)
	defer tick.Stop()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
		if err == nil {
			return conn, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
}

func (c *control) run(ctx context.Context, command string) (string, int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := io.WriteString(c.conn, base64.StdEncoding.EncodeToString([]byte(command))+"\n"); err != nil {
		return "", -1, err
	}
	select {
	case <-ctx.Done():
		return "", -1, ctx.Err()
	case result, open := <-c.results:
		if !open {
			return "", -1, errors.New("the machine went down")
		}
		status, out, _ := strings.Cut(result, " ")
		code, err := strconv.Atoi(status)
		if err != nil {
			return "", -1, fmt.Errorf("read answer %q: %w", result, err)
		}
		raw, err := base64.StdEncoding.DecodeString(out)
		return string(raw), code, err
	}
}
