package spool

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"dayone.dev/dayone/bootstrap/gather"
	"dayone.dev/dayone/installconfig/report"
)

const (
	// ID is the bundle's name after log-bundle-; it is always the same, so that a newer one takes the older one's place.
	ID = "spool"
	// everyHeader tells after how many seconds the next bundle comes; 0: this is the last one.
	everyHeader = "Dayone-Every"
	// MaxBundle bounds a bundle on its way, in bytes. Real ones have one to ten million.
	MaxBundle = 64 << 20
	// sendLimit is how long gathering and sending one may take.
	sendLimit = 2 * time.Minute
	// lastLimit is the same for the last one, for which a service manager waits.
	lastLimit = 15 * time.Second
	// busyPause is between two tries to send the last one.
	busyPause = 200 * time.Millisecond
	// answerLimit is how long the other machine may take to answer once it has everything.
	answerLimit = 10 * time.Second
)

// bundleName is the bundle's file name.
const bundleName = "log-bundle-" + ID + ".tar.gz"

// Sender sends a host's log bundle again and again. All fields are required but CA and Log.
type Sender struct {
	// URL is https://HOST[:PORT][/PATH/], to which the bundle's name is added.
	URL string
	// Token may write there.
	Token string
	// CA is PEM of the CA that signs the other machine's certificate. Default: the host's CAs.
	CA []byte
	// Every is the time between two bundles.
	Every time.Duration
	// Gather writes one.
	Gather func(context.Context, io.Writer) error
	// Log says when sending fails, and when it works again; nil discards it.
	Log *logrus.Entry
}

// Run sends until ctx ends, and then a last time, which tells how it ended. A failure stops nothing: the next bundle is
// tried again.
func (s Sender) Run(ctx context.Context) {
	log := s.Log
	log = cmp.Or(log, report.NoLog())
	log = log.WithField("url", s.URL)
	client, err := s.client()
	if err != nil {
		log.WithError(err).Warn("cannot send log bundles")
		return
	}
	said := ""
	tell := func(err error) {
		switch {
		case err == nil && said != "ok":
			said = "ok"
			log.WithField("every", s.Every).Info("sending log bundles")
		case err != nil && said != err.Error(): // not the same again every minute
			said = err.Error()
			log.WithError(err).Warn("cannot send the log bundle; retrying")
		}
	}
	ticker := time.NewTicker(s.Every)
	defer ticker.Stop()
	for {
		if err := s.send(ctx, client, sendLimit, s.Every); ctx.Err() == nil {
			tell(err)
		}
		select {
		case <-ctx.Done():
			tell(s.last(context.WithoutCancel(ctx), client))
			return
		case <-ticker.C:
		}
	}
}

// busy is the other machine's answer while another bundle arrives there, or while something before it is not ready.
type busy struct{ error }

// last sends how it ended. The bundle before may still be arriving there, after this side has abandoned it: last
// waits for that.
func (s Sender) last(ctx context.Context, client *http.Client) error {
	ctx, cancel := context.WithTimeout(ctx, lastLimit)
	defer cancel()
	for {
		err := s.send(ctx, client, lastLimit, 0)
		if !errors.As(err, &busy{}) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(busyPause):
		}
	}
}

func (s Sender) client() (*http.Client, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.CA != nil {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(s.CA) {
			return nil, errors.New("the CA file of the log spool holds no certificate")
		}
	}
	return &http.Client{
		// The token is for this host only.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{DisableKeepAlives: true, Proxy: http.ProxyFromEnvironment, TLSClientConfig: config,
			TLSHandshakeTimeout: answerLimit, ResponseHeaderTimeout: answerLimit},
	}, nil
}

// send makes one bundle in memory, for the disk may be full, and puts it; next says when the next one comes.
func (s Sender) send(ctx context.Context, client *http.Client, limit, next time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var b bounded
	if err := s.Gather(ctx, &b); err != nil {
		return fmt.Errorf("gather: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, strings.TrimSuffix(s.URL, "/")+"/"+bundleName,
		bytes.NewReader(b.content.Bytes()))
	if err != nil {
		return fmt.Errorf("send log bundle: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+s.Token)
	request.Header.Set("Content-Type", "application/gzip")
	request.Header.Set(everyHeader, strconv.FormatFloat(next.Seconds(), 'f', -1, 64))
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("send log bundle: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode/100 == 2 {
		return nil
	}
	said, _ := io.ReadAll(io.LimitReader(response.Body, 256)) // an excerpt is enough
	err = fmt.Errorf("send log bundle: %s answers %s: %s", s.URL, response.Status, strings.TrimSpace(string(said)))
	if response.StatusCode == http.StatusServiceUnavailable {
		return busy{err}
	}
	return err
}

// bounded keeps what is written, up to MaxBundle.
type bounded struct{ content bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	if b.content.Len()+len(p) > MaxBundle {
		return 0, fmt.Errorf("the log bundle is larger than %d bytes", MaxBundle)
	}
	return b.content.Write(p)
}

// options of the bundle that arrives.
func options() gather.Options { return gather.Options{ID: ID} }
