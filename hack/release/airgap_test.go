package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/crane"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/hack/codeblocks"
)

// outside is a registry with what the page copies from it, under the page's name.
const outside = `cd /medium-maker
echo "192.168.77.1 registry.example.com" >>/etc/hosts
dayone registry serve --root /outside --listen 192.168.77.1:443 --host registry.example.com >/outside.log 2>&1 &
until dayone registry status --root /outside >/dev/null 2>&1; do kill -0 $! || { cat /outside.log; exit 1; }; sleep 1; done
sed 's/192.168.77.1:443/registry.example.com/g' /outside/accounts/push-auth.json >/auth.json
export REGISTRY_AUTH_FILE=/auth.json SSL_CERT_FILE=/outside/tls/ca.crt
dayone registry copy oci:/base registry.example.com/ocp/base-os:1
dayone registry copy oci:/tools registry.example.com/site/tools:1
ln -s /release release
`

// inside is a host whose systemd is played: it runs what the package's unit runs.
const inside = `cd /medium-maker
rm -rf /outside /auth.json
sed -i /registry.example.com/d /etc/hosts
systemctl() {
	test "$*" = "enable --now dayone-registry-server"
	$(sed -n 's/^ExecStart=\(.*\) [$].*/\1/p' /usr/lib/systemd/system/dayone-registry-server.service) >/registry.log 2>&1 &
	until dayone registry status --root /var/lib/dayone-registry >/dev/null 2>&1; do
		kill -0 $! || { cat /registry.log; exit 1; }
		sleep 1
	done
}
`

// mistakes are those of the page's table: install-config.yaml as $1 changes it lets no build pass, which says $2.
const mistakes = `
refused() {
	rm -rf refused
	mkdir refused
	sed "$1" original.yaml >refused/install-config.yaml
	dayone prepare --dir refused
	if dayone build --dir refused --pool master --base oci:medium/base --state-dir /refused >refused.log 2>&1; then
		cat refused.log
		exit 1
	fi
	rm -rf /refused
	grep -F "$2" refused.log || { cat refused.log; exit 1; }
}
refused '/^imageDigestSources/,/5000/d' 'lookup registry.example.com'
refused 's/"auth": *"[^"]*"/"auth":"bWU6d3Jvbmc="/g' '401 Unauthorized'
refused /^additionalTrustBundlePolicy/d 'x509: certificate signed by unknown authority'
`

// airGapped walks the page: outside with a registry, then inside, where no name leads anywhere.
func airGapped(t *testing.T, root bareRoot) {
	blocks, err := codeblocks.Of("../../docs/users/air-gapped.md")
	require.NoError(t, err)
	image, err := crane.Image(map[string][]byte{"agent": []byte("#!/bin/sh\necho I am the agent of the site\n")})
	require.NoError(t, err)
	digest, err := image.Digest()
	require.NoError(t, err)
	to, err := layout.Write(filepath.Join(root.dir, "tools"), empty.Index)
	require.NoError(t, err)
	require.NoError(t, to.AppendImage(image))
	require.NoError(t, os.Mkdir(filepath.Join(root.dir, "medium-maker"), 0o755))

	scripts := map[string]string{"outside": outside, "inside": inside}
	for _, b := range blocks {
		switch {
		case b.Where == "cluster/install-config.yaml":
			text := strings.NewReplacer("DIGEST", digest.String(), "PULL_SECRET",
				"$(tr -d '\n' </var/lib/dayone-registry/accounts/pull-auth.json)", "CA_OF_THE_REGISTRY",
				"$(sed '2,$s/^/  /' /var/lib/dayone-registry/tls/ca.crt)", `\`, `\\`).Replace(b.Text)
			scripts["inside"] += "mkdir cluster\ncat >cluster/install-config.yaml <<END\n" + text + "END\n" +
				"cp cluster/install-config.yaml original.yaml\n"
		case scripts[b.Where] != "":
			for _, line := range b.Commands() {
				line, _, _ = strings.Cut(line, "  #")
				line = strings.ReplaceAll(line, "_amd64.deb", "_"+runtime.GOARCH+".deb")
				if strings.HasPrefix(line, "dayone bootstrap ") {
					line += served
				}
				scripts[b.Where] += line + "\n"
			}
		}
	}
	root.run(t, "dpkg -i /release/dayone_0.1.0_"+runtime.GOARCH+".deb\n"+scripts["outside"])
	said := root.run(t, scripts["inside"]+"kill $!\nwait $! || true\n"+mistakes)
	assert.Regexp(t, `(?m)^done +build-master`, said)
}
