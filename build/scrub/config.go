package scrub

import (
	"encoding/base64"
	"net/url"
	"regexp"
	"slices"
	"strings"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"

	"dayone.dev/dayone/manifests/machineconfig"
	"dayone.dev/dayone/registry/credentials"
)

const (
	// othersRead are the permission bits of group and others: a file without any of them is private.
	othersRead = 0o077
	// wrapped is the length of a line of base64(1).
	wrapped = 76
)

var (
	// addressPassword finds the password in an address with an account, as in http://user:password@proxy.
	addressPassword = regexp.MustCompile(`://[^/\s:@"']*:([^/\s@"']+)@`)
	// assignment finds the value in a line of a settings file: name=value, "name": "value".
	assignment = regexp.MustCompile(`^\s*["']?[A-Za-z_][\w.-]*["']?\s*[=:]\s*["']?([^"',\s]+)["']?,?\s*$`)
	// environment finds the settings of a unit's Environment=, with its continuation lines joined.
	environment = regexp.MustCompile(`(?m)^\s*Environment\s*=(.*)$`)
	// setting is one of them: "NAME=a value" or NAME=value.
	setting = regexp.MustCompile(`"\w+=([^"]*)"|'\w+=([^']*)'|\w+=(?:"([^"]*)"|'([^']*)'|(\S+))`)
)

// Config lists what a config holds that must not be read in output: contents of files that only their owner may read,
// values in the Environment= of units, passwords in addresses, hashes of users' passwords. Contents that are not inline
// are nowhere here.
func Config(config ign35.Config) []string {
	var out []string
	for _, f := range config.Storage.Files {
		for _, r := range slices.Concat([]ign35.Resource{f.Contents}, f.Append) {
			raw, err := machineconfig.Contents(r)
			if err != nil || len(raw) == 0 {
				continue
			}
			if f.Mode != nil && *f.Mode&othersRead == 0 {
				out = append(out, Value(string(raw))...)
			}
			out = append(out, Addresses(string(raw))...)
		}
	}
	for _, u := range config.Systemd.Units {
		out = append(out, unit(u.Contents)...)
		for _, d := range u.Dropins {
			out = append(out, unit(d.Contents)...)
		}
	}
	for _, u := range config.Passwd.Users {
		if u.PasswordHash != nil {
			out = append(out, *u.PasswordHash)
		}
	}
	return out
}

// Value lists the forms in which a secret may be read: as a whole, its lines, the values that are set in them, and each
// of these in base64 and as a part of a URL. Registry credentials give their passwords, too.
func Value(secret string) []string {
	out := credentials.Sensitive([]byte(secret))
	whole := base64.StdEncoding.EncodeToString([]byte(secret))
	for line := range slices.Chunk([]byte(whole), wrapped) {
		out = append(out, string(line))
	}
	out = append(out, forms(strings.TrimSpace(secret))...)
	for line := range strings.Lines(secret) {
		line = strings.TrimSpace(line)
		out = append(out, line)
		if m := assignment.FindStringSubmatch(line); m != nil {
			out = append(out, forms(m[1])...)
		}
	}
	return out
}

func forms(value string) []string {
	return []string{value, base64.StdEncoding.EncodeToString([]byte(value)), url.QueryEscape(value),
		url.PathEscape(value)}
}

// Addresses lists the passwords in addresses, as in http://user:password@proxy, as they are written and as they are
// meant.
func Addresses(text string) []string {
	var out []string
	for _, m := range addressPassword.FindAllStringSubmatch(text, -1) {
		out = append(out, m[1])
		if plain, err := url.PathUnescape(m[1]); err == nil {
			out = append(out, plain)
		}
	}
	return out
}

func unit(contents *string) []string {
	if contents == nil {
		return nil
	}
	out := Addresses(*contents)
	joined := strings.ReplaceAll(*contents, "\\\n", " ")
	for _, line := range environment.FindAllStringSubmatch(joined, -1) {
		for _, m := range setting.FindAllStringSubmatch(line[1], -1) {
			out = append(out, forms(strings.Join(m[1:], ""))...)
		}
	}
	return out
}
