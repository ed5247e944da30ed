package installconfig

import (
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"dayone.dev/dayone/installconfig/report"
)

// Bounds of LogSpool.Every: gathering takes about a second, and what is older than an hour tells little.
const (
	minSpoolEvery = 10 * time.Second
	maxSpoolEvery = time.Hour
)

// tokenEnd is the end of a token file's name, by which log bundles know what to leave out.
const tokenEnd = ".token"

func validateLogSpool(s LogSpool, at locator, rep *report.Report) {
	if !at.set("logSpool") {
		return
	}
	u, err := url.Parse(s.URL)
	switch {
	case s.URL == "":
		rep.Errorf(at.at("log-spool-url", "write https://HOST:PORT, as dayone gather --receive prints it", "logSpool", "url"),
			"nothing says where log bundles go")
	case err != nil || u.Scheme != "https" || u.Hostname() == "":
		rep.Errorf(at.at("log-spool-url", "write https://HOST:PORT: a log bundle tells much of a cluster", "logSpool", "url"),
			"%q is not an HTTPS address", s.URL)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		rep.Errorf(at.at("log-spool-url", "write https://HOST:PORT/PATH, and credentials into tokenFile", "logSpool", "url"),
			"the address has more than a host and a path")
	}
	switch f := s.TokenFile; {
	case f == "":
		rep.Errorf(at.at("log-spool-token",
			"name the file with the token that may write there, as dayone gather --receive makes it", "logSpool", "tokenFile"),
			"without a token any client could overwrite the log bundle")
	case !filepath.IsLocal(f):
		rep.Errorf(at.at("inside-directory", "give a path inside the install directory", "logSpool", "tokenFile"),
			"%q leaves the install directory", f)
	case !strings.HasSuffix(f, tokenEnd):
		rep.Errorf(at.at("log-spool-token", "rename it: by that name log bundles leave its content out", "logSpool",
			"tokenFile"), "the name %q does not end in %s", f, tokenEnd)
	}
	if f := s.CAFile; f != "" && !filepath.IsLocal(f) {
		rep.Errorf(at.at("inside-directory", "give a path inside the install directory", "logSpool", "caFile"),
			"%q leaves the install directory", f)
	}
	if d := s.Every.Duration(); at.set("logSpool", "every") && (d < minSpoolEvery || d > maxSpoolEvery) {
		rep.Errorf(at.at("log-spool-every", "write a duration between 10s and 1h, or leave the key out", "logSpool", "every"),
			"%s is not a useful time between two bundles", d)
	}
}
