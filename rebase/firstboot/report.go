package firstboot

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
	"unicode"

	"dayone.dev/dayone/registry/credentials"
)

const (
	// ReportPath is where the bootstrap registry takes reports, from the account with which nodes pull.
	ReportPath = "/dayone/v1/nodes"
	// MaxReport bounds a report, in bytes.
	MaxReport = 8 << 10
	// reportLimit bounds how long a report may hold up a node; reportPause is the pause after one that failed, so that a
	// host that is gone costs reportLimit in each reportPause and no more.
	reportLimit = 2 * time.Second
	reportPause = 30 * time.Second
	// finalAttempts is how often the report of a final state is tried.
	finalAttempts = 3
	// maxMessage bounds the reason of a failure, in bytes.
	maxMessage = 2000
)

// reportVersion is the only form of Report there is.
const reportVersion = 1

// Report is what a node tells the bootstrap host of itself.
type Report struct {
	Version int `json:"version"`
	// Node is the node's host name.
	Node  string `json:"node"`
	State State  `json:"state"`
	// Image is the wanted image by digest, Config the rendered config's name.
	Image  string `json:"image,omitempty"`
	Config string `json:"config,omitempty"`
	// Class and Message are of the last failure.
	Class    string `json:"class,omitempty"`
	Message  string `json:"message,omitempty"`
	Attempts int    `json:"attempts,omitempty"`
	// Boots counts all, SoftReboots those of them in which hardware and kernel ran on.
	Boots       int `json:"boots,omitempty"`
	SoftReboots int `json:"softReboots,omitempty"`
}

// maxName bounds names of hosts and configs (RFC 1123), maxImage an image with its digest. The expressions below do not
// count: one that counts to hundreds takes a millisecond of each program's start.
const maxName, maxImage = 253, 472

// Forms of a report's fields.
var (
	hostName   = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$`)
	configName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`)
	imageName  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/-]*@sha256:[0-9a-f]{64}$`)
	className  = regexp.MustCompile(`^[A-Za-z]{1,40}$`)
)

// maxCount bounds attempts and boots.
const maxCount = 1 << 20

// ParseReport reads what a client sent; unknown keys and values out of form are refused.
func ParseReport(raw []byte) (Report, error) {
	var r Report
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return Report{}, fmt.Errorf("read report: %w", err)
	}
	switch {
	case r.Version != reportVersion:
		return Report{}, fmt.Errorf("read report: version %d is not known", r.Version)
	case len(r.Node) > maxName || !hostName.MatchString(r.Node):
		return Report{}, errors.New("read report: node is no host name")
	case !r.State.known():
		return Report{}, errors.New("read report: state is not known")
	case r.Image != "" && (len(r.Image) > maxImage || !imageName.MatchString(r.Image)):
		return Report{}, errors.New("read report: image is no name with a digest")
	case r.Config != "" && (len(r.Config) > maxName || !configName.MatchString(r.Config)):
		return Report{}, errors.New("read report: config is no name")
	case r.Class != "" && !className.MatchString(r.Class):
		return Report{}, errors.New("read report: class is no word")
	case len(r.Message) > maxMessage:
		return Report{}, fmt.Errorf("read report: message is longer than %d bytes", maxMessage)
	case r.Attempts < 0 || r.Attempts > maxCount || r.Boots < 0 || r.Boots > maxCount,
		r.SoftReboots < 0 || r.SoftReboots > r.Boots:
		return Report{}, errors.New("read report: a count is out of range")
	}
	r.Message = OneLine(r.Message)
	return r, nil
}

func (s State) known() bool {
	switch s {
	case StateStarting, StateWaiting, StateStaging, StateStaged, StateRebooting, StateVerifying, StateDone,
		StateRolledBack:
		return true
	}
	return false
}

// OneLine is a text without control characters.
func OneLine(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s))
}

// reporter tells the bootstrap host how far this node is. A report that fails changes nothing on the node.
type reporter struct {
	root string
	// registry is HOST:PORT; empty: nobody is told.
	registry string
	now      func() time.Time
	// after is when the next report may be tried, after one that failed.
	after time.Time
}

// send tells what the record says. A final state has no report after it, so a lost one is sent again. The error is for
// the log only.
func (r *reporter) send(rec Record) (err error) {
	attempts := 1
	if rec.State == StateDone || rec.State == StateRolledBack {
		attempts, r.after = finalAttempts, time.Time{}
	}
	if r.registry == "" || r.now().Before(r.after) {
		return nil
	}
	for range attempts {
		if err = r.once(rec); err == nil {
			return nil
		}
	}
	return err
}

func (r *reporter) once(rec Record) error {
	// Not the run's context: what it ended with is worth telling, too.
	ctx, cancel := context.WithTimeout(context.Background(), reportLimit)
	defer cancel()
	if err := r.post(ctx, rec); err != nil {
		r.after = r.now().Add(reportPause)
		return fmt.Errorf("report to the bootstrap host: %w", err)
	}
	return nil
}

// post sends one report with the credential and the trust with which this node pulls. They were removed where the
// cluster has taken over: then there is nobody to tell.
func (r *reporter) post(ctx context.Context, rec Record) error {
	auth, err := readIfThere(filepath.Join(r.root, PullAuthPath))
	if err != nil || auth == nil {
		return err
	}
	accounts, err := credentials.Parse(auth)
	if err != nil {
		return err
	}
	account, found, err := accounts.Find(r.registry + "/any")
	if err != nil || !found {
		return err
	}
	roots, err := r.roots()
	if err != nil {
		return err
	}
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	raw, err := json.Marshal(reportOf(rec, name, credentials.Sensitive(auth)))
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+r.registry+ReportPath,
		bytes.NewReader(raw))
	if err != nil {
		return err
	}
	request.SetBasicAuth(account.Username, account.Password)
	request.Header.Set("Content-Type", "application/json")
	// Without a proxy: pulls from this host go without one, too. Without kept connections: the node reboots next.
	transport := &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusNoContent {
		says, _ := io.ReadAll(io.LimitReader(answer.Body, 200)) // for the log only
		return fmt.Errorf("the answer is %s: %s", answer.Status, OneLine(string(says)))
	}
	return nil
}

// roots are the CAs that pulls from the registry trust: its own, else the system's.
func (r *reporter) roots() (*x509.CertPool, error) {
	ca, err := readIfThere(filepath.Join(r.root, certsDir, r.registry, "ca.crt"))
	if err != nil || ca == nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, errors.New("the registry's CA is no PEM certificate")
	}
	return pool, nil
}

// userinfo is a password in a URL.
var userinfo = regexp.MustCompile(`://[^/@\s]+@`)

// reportOf is what a record tells, without secrets.
func reportOf(rec Record, node string, secrets []string) Report {
	message := userinfo.ReplaceAllString(OneLine(rec.Message), "://***@")
	for _, s := range secrets {
		message = strings.ReplaceAll(message, s, "***")
	}
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage-3], "") + "…"
	}
	return Report{Version: reportVersion, Node: node, State: rec.State, Image: rec.Image, Config: rec.Config,
		Class: string(rec.Class), Message: message, Attempts: rec.Attempts, Boots: len(rec.Boots),
		SoftReboots: rec.softReboots()}
}
