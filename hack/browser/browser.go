package browser

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	// limit bounds one command: a busy machine draws slowly.
	limit = 2 * time.Minute
	// factLimit bounds the wait for what a page comes to show: what it shows may be the work of minutes.
	factLimit = 15 * time.Minute
)

// names are the programs that will do, the smallest first.
var names = [...]string{"chromium-headless-shell", "chromium", "chromium-browser"}

// program is the browser's path. A test without one is skipped, but never in CI.
func program(t testing.TB) string {
	t.Helper()
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	const missing = "needs chromium-headless-shell: make setup-test installs it"
	if os.Getenv("CI") != "" {
		t.Fatal(missing)
	}
	t.Skip(missing)
	return ""
}

// Page is one tab of a browser of its own.
type Page struct {
	t       testing.TB
	to      *os.File
	from    *bufio.Reader
	session string
	last    int
}

// Open starts a browser that trusts a certificate beside the public ones, nil for none, and ends it with the test.
// Commands run in the network of wrap's result, which gets the arguments; nil: in this one.
func Open(t testing.TB, trusted *x509.Certificate, wrap func(ctx context.Context, argv ...string) *exec.Cmd) *Page {
	t.Helper()
	dir := t.TempDir()
	argv := []string{program(t), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--no-first-run", "--hide-scrollbars", "--no-proxy-server",
		"--user-data-dir=" + dir, "--force-color-profile=srgb", "--remote-debugging-pipe"}
	if trusted != nil {
		key := sha256.Sum256(trusted.RawSubjectPublicKeyInfo)
		argv = append(argv, "--ignore-certificate-errors-spki-list="+base64.StdEncoding.EncodeToString(key[:]))
	}
	if wrap == nil {
		wrap = func(ctx context.Context, argv ...string) *exec.Cmd {
			return exec.CommandContext(ctx, argv[0], argv[1:]...)
		}
	}
	cmd := wrap(context.Background(), argv...)
	itsIn, to, err := os.Pipe()
	check(t, err)
	from, itsOut, err := os.Pipe()
	check(t, err)
	cmd.Env = append(os.Environ(), "HOME="+dir)
	cmd.ExtraFiles = []*os.File{itsIn, itsOut} // its descriptors 3 and 4
	var said bytes.Buffer
	cmd.Stderr = &said
	cmd.WaitDelay = 10 * time.Second
	check(t, cmd.Start())
	check(t, errors.Join(itsIn.Close(), itsOut.Close()))
	p := &Page{t: t, to: to, from: bufio.NewReader(from)}
	t.Cleanup(func() {
		_ = to.Close() // which ends it
		hard := time.AfterFunc(limit, func() { _ = cmd.Process.Kill() })
		err := cmd.Wait()
		hard.Stop()
		_ = from.Close()
		if t.Failed() {
			t.Logf("the browser ended: %v: %s", err, said.String())
		}
	})
	var tab struct{ TargetID string }
	p.call("Target.createTarget", map[string]any{"url": "about:blank"}, &tab)
	var session struct{ SessionID string }
	p.call("Target.attachToTarget", map[string]any{"targetId": tab.TargetID, "flatten": true}, &session)
	p.session = session.SessionID
	return p
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal("drive the browser: ", err)
	}
}

// call gives one command and waits for its answer. A page that is replaced under a command, as one that refreshes
// itself is, is asked again.
func (p *Page) call(method string, params, answer any) {
	p.t.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(50 * time.Millisecond) {
		failure := p.once(method, params, answer)
		if failure == "" {
			return
		}
		if !replaced(failure) || time.Now().After(end) {
			p.t.Fatalf("drive the browser: %s: %s", method, failure)
		}
	}
}

// replaced tells that a command met a page that was about to go. The texts are Chromium's own.
func replaced(failure string) bool {
	return strings.Contains(failure, "navigated or closed") || strings.Contains(failure, "context was destroyed") ||
		strings.Contains(failure, "Cannot find context")
}

// once gives one command, waits for its answer and gives what failed; what the browser tells unasked is dropped.
func (p *Page) once(method string, params, answer any) (failure string) {
	p.t.Helper()
	p.last++
	command := map[string]any{"id": p.last, "method": method, "params": params}
	if p.session != "" {
		command["sessionId"] = p.session
	}
	raw, err := json.Marshal(command)
	check(p.t, err)
	_, err = p.to.Write(append(raw, 0))
	check(p.t, err)
	late := time.AfterFunc(limit, func() { _ = p.to.Close() }) // the browser ends, and so does what is read
	defer late.Stop()
	for {
		raw, err := p.from.ReadBytes(0)
		check(p.t, err)
		var said struct {
			ID     int
			Result json.RawMessage
			Error  *struct{ Message string }
		}
		check(p.t, json.Unmarshal(bytes.TrimSuffix(raw, []byte{0}), &said))
		if said.ID != p.last {
			continue
		}
		if said.Error != nil {
			return said.Error.Message
		}
		if answer != nil {
			check(p.t, json.Unmarshal(said.Result, answer))
		}
		return ""
	}
}

// Go opens an address. It tells what kept the page from being loaded, "" when nothing did.
func (p *Page) Go(address string) (failure string) {
	p.t.Helper()
	var answer struct{ ErrorText string }
	p.call("Page.navigate", map[string]any{"url": address}, &answer)
	return answer.ErrorText
}

// Text is what an expression of the page gives, as text; "" while the page is being replaced.
func (p *Page) Text(expression string) string {
	p.t.Helper()
	var answer struct {
		Result           struct{ Value any }
		ExceptionDetails *struct{ Text string }
	}
	p.call("Runtime.evaluate", map[string]any{"expression": "String(" + expression + ")", "returnByValue": true}, &answer)
	text, _ := answer.Result.Value.(string)
	if answer.ExceptionDetails != nil {
		return ""
	}
	return text
}

// Eventually waits until an expression's text holds what is wanted, and gives it.
func (p *Page) Eventually(expression, want string) string {
	p.t.Helper()
	end := time.Now().Add(factLimit)
	for {
		text := p.Text(expression)
		if strings.Contains(text, want) {
			return text
		}
		if time.Now().After(end) {
			p.t.Fatalf("the page's %s does not come to %q; it is %q", expression, want, text)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// Resize gives the window a size in CSS pixels; dark asks for dark colours.
func (p *Page) Resize(width, height int, dark bool) {
	p.t.Helper()
	p.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1,
		"mobile": false}, nil)
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	p.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme",
		"value": scheme}}}, nil)
}

// Tab presses the key that goes to the next control.
func (p *Page) Tab() { p.press("Tab", "", 9) }

// Enter presses the key that uses the control with the focus.
func (p *Page) Enter() { p.press("Enter", "\r", 13) }

// press is a key with the text that it types and Windows' number for it.
func (p *Page) press(key, text string, number int) {
	p.t.Helper()
	for _, kind := range []string{"keyDown", "keyUp"} {
		params := map[string]any{"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": number}
		if text != "" && kind == "keyDown" {
			params["text"] = text
		}
		p.call("Input.dispatchKeyEvent", params, nil)
	}
}

// Spoken is what a screen reader is told of: "ROLE NAME" of each element, in Chromium's own words.
func (p *Page) Spoken() (out []string) {
	p.t.Helper()
	type value struct{ Value string }
	var answer struct {
		Nodes []struct {
			Ignored    bool
			Role, Name value
		}
	}
	p.call("Accessibility.getFullAXTree", map[string]any{}, &answer)
	for _, n := range answer.Nodes {
		if !n.Ignored {
			out = append(out, strings.TrimSpace(n.Role.Value+" "+n.Name.Value))
		}
	}
	return out
}

// Wide tells by how many pixels the page is wider than its window; 0: nobody must scroll sideways. A page that is just
// being replaced is waited for.
func (p *Page) Wide() string {
	p.t.Helper()
	text := p.Eventually(
		"document.readyState + ' ' + (document.documentElement.scrollWidth - document.documentElement.clientWidth)",
		"complete ")
	return strings.TrimPrefix(text, "complete ")
}

// Picture is the window as PNG. The environment's DAYONE_TEST_SCREENSHOT, a directory, gets a copy under the name.
func (p *Page) Picture(name string) []byte {
	p.t.Helper()
	var answer struct{ Data []byte }
	p.call("Page.captureScreenshot", map[string]any{"format": "png"}, &answer)
	if dir := os.Getenv("DAYONE_TEST_SCREENSHOT"); dir != "" {
		file := filepath.Join(dir, name+".png")
		check(p.t, os.WriteFile(file, answer.Data, 0o644)) //nolint:gosec // a picture of a test
	}
	return answer.Data
}
