// Package pageflags are the flags of commands that ask a bootstrap's status page.
//
//	--url, --ca, --token-file -> Flags.Client -> client of the page
package pageflags

import (
	"github.com/spf13/pflag"

	"dayone.dev/dayone/bootstrap/statuspage"
)

// Flags reach a status page.
type Flags struct{ URL, ca, token string }

// Add defines the flags; what describes --url.
func (f *Flags) Add(flags *pflag.FlagSet, what string) {
	flags.StringVar(&f.URL, "url", "", what)
	flags.StringVar(&f.ca, "ca", "ca.crt", "with --url: the bootstrap's CA, a copy of STATE/identity/ca.crt")
	flags.StringVar(&f.token, "token-file", statuspage.TokenFile,
		"with --url: a copy of STATE/identity/"+statuspage.TokenFile)
}

// Client asks the page.
func (f *Flags) Client() (*statuspage.Client, error) {
	return statuspage.NewClient(f.URL, f.ca, f.token)
}
