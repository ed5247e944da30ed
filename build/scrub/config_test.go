package scrub_test

import (
	"encoding/base64"
	"net/url"
	"strings"
	"testing"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/stretchr/testify/assert"

	"dayone.dev/dayone/build/scrub"
	"dayone.dev/dayone/manifests/machineconfig"
)

func TestConfigKnowsSecrets(t *testing.T) {
	file := func(mode int, content string) ign35.Config {
		return ign35.Config{Storage: ign35.Storage{Files: []ign35.File{{Node: ign35.Node{Path: "/etc/f"},
			FileEmbedded1: ign35.FileEmbedded1{Mode: &mode, Contents: machineconfig.Inline([]byte(content))}}}}}
	}
	unit := func(text string) ign35.Config {
		return ign35.Config{Systemd: ign35.Systemd{Units: []ign35.Unit{{Name: "a.service", Contents: &text}}}}
	}
	key := "-----BEGIN PRIVATE KEY-----\n" + strings.Repeat("cAnaryKeyLine", 9) + "\nsecondCanary==\n"
	odd := "can/ary+ odd&value"
	for _, c := range []struct {
		name       string
		config     ign35.Config
		text, want string
	}{
		{"private file", file(0o600, "canary-token\n"), "the token is canary-token.", "the token is *****."},
		{"a line of it", file(0o400, key), "  secondCanary==", "  *****"},
		{"base64 of it", file(0o600, "canary-token\n"), base64.StdEncoding.EncodeToString([]byte("canary-token\n")),
			"*****"},
		{"base64 of it without its newline", file(0o600, "canary-token\n"),
			base64.StdEncoding.EncodeToString([]byte("canary-token")), "*****"},
		{"a line of base64(1)", file(0o600, key), base64.StdEncoding.EncodeToString([]byte(key))[76:152], "*****"},
		{"in a URL", file(0o600, odd), "https://h/?t=" + url.QueryEscape(odd), "https://h/?t=*****"},
		{"a setting", file(0o600, "TOKEN=\"canary-token\"\n"), "canary-token", "*****"},
		{"a setting in JSON", file(0o600, "{\n  \"token\": \"canary-token\",\n}"), "canary-token", "*****"},
		{"registry credentials", file(0o600, `{"auths":{"r":{"auth":"dTpjYW5hcnktcGFzcw=="}}}`), "canary-pass", "*****"},
		{"a file that all may read", file(0o644, "welcome here\n"), "welcome here", "welcome here"},
		{"a proxy's password there", file(0o644, "HTTP_PROXY=http://u:canary%2Fp@proxy:3128\n"),
			"canary%2Fp canary/p http://", "***** ***** http://"},
		{"a unit's environment", unit("[Service]\nEnvironment=TOKEN=canary-token\n"), "canary-token", "*****"},
		{"a drop-in's environment", ign35.Config{Systemd: ign35.Systemd{Units: []ign35.Unit{{Name: "a.service",
			Dropins: []ign35.Dropin{{Name: "a.conf", Contents: new("[Service]\nEnvironment=TOKEN=canary-token\n")}}}}}},
			"canary-token", "*****"},
		{"what is appended to a private file", ign35.Config{Storage: ign35.Storage{Files: []ign35.File{{
			Node: ign35.Node{Path: "/etc/f"}, FileEmbedded1: ign35.FileEmbedded1{Mode: new(0o600),
				Append: []ign35.Resource{machineconfig.Inline([]byte("canary-token\n"))}}}}}}, "canary-token", "*****"},
		{"in quotes", unit("[Service]\nEnvironment=A=b \"TOKEN=canary token\" 'B=canary2'\n"), "canary token canary2",
			"***** *****"},
		{"over lines", unit("[Service]\nEnvironment=A=b \\\n  TOKEN=canary-token\n"), "canary-token", "*****"},
		{"a user's hash", ign35.Config{Passwd: ign35.Passwd{Users: []ign35.PasswdUser{{Name: "core",
			PasswordHash: new("$6$canary$hash")}}}}, "core:$6$canary$hash:1", "core:*****:1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.Equal(t, c.want, scrub.New(scrub.Config(c.config)).Replace(c.text))
		})
	}
}
