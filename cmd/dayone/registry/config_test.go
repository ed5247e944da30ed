package registry

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/registry/transfer"
)

func TestApplyConfig(t *testing.T) {
	for _, tc := range []struct {
		name, config string
		args         []string
		want         map[string]string // flag to value
		wrong        []string          // in the error
	}{
		{"what serve does", `
version: 0.1
storage:
  filesystem: {rootdirectory: /srv/registry}
  delete: {enabled: true}
  maintenance:
    readonly: {enabled: true}
    uploadpurging: {enabled: true, age: 168h}
http:
  addr: :5000
  host: https://registry.example.com:5000
  tls: {certificate: /c.pem, key: /k.pem}
auth:
  htpasswd: {realm: my realm, path: /htpasswd}
proxy: {remoteurl: "https://registry.example.com:8443/", username: u, password: p, ttl: 24h}
`, nil, map[string]string{"root": "/srv/registry", "read-only": "true", "upload-idle": "168h0m0s", "listen": ":5000",
			"host": "[registry.example.com]", "tls-cert": "/c.pem", "tls-key": "/k.pem", "htpasswd": "/htpasswd",
			"realm": "my realm", "upstream": "registry.example.com:8443", "upstream-ttl": "24h0m0s"}, nil},
		{"a flag wins", "version: 0.1\nhttp: {addr: \":5000\"}\n", []string{"--listen", "127.0.0.1:1"},
			map[string]string{"listen": "127.0.0.1:1"}, nil},
		{"what it does not, each by name", `
version: 0.1
log: {level: debug}
storage:
  s3: {bucket: b}
  delete: {enabled: false}
  cache: {blobdescriptor: inmemory}
http: {addr: ":5000", secret: x, headers: {X-Content-Type-Options: [nosniff]}}
proxy: {remoteurl: http://registry.example.com, exec: {command: x}}
`, nil, nil, []string{"log.level: not supported", "storage.s3.bucket: not supported",
			"storage.delete.enabled: only true is supported", "storage.cache.blobdescriptor: not supported",
			"http.secret: not supported", "http.headers.X-Content-Type-Options: not supported",
			"proxy.remoteurl: only https://HOST[:PORT] is supported", "proxy.exec.command: not supported"}},
		{"a key without a value", "version: 0.1\nstorage: {inmemory: }\n", nil, nil,
			[]string{"storage.inmemory: not supported"}},
		{"a key twice", "version: 0.1\nversion: 0.1\n", nil, nil, []string{"version"}},
		{"another version", "version: 0.2\n", nil, nil, []string{"version: only 0.1 is supported"}},
		{"a value that is none", "storage: {maintenance: {uploadpurging: {age: soon}}}\n", nil, nil,
			[]string{"age: ", "soon"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "config.yml")
			require.NoError(t, os.WriteFile(file, []byte(tc.config), 0o600))
			cmd := newServeCommand()
			require.NoError(t, cmd.ParseFlags(tc.args))
			err := applyConfig(cmd, file, &transfer.Endpoint{})
			if tc.wrong != nil {
				require.Error(t, err)
				for _, want := range tc.wrong {
					assert.Contains(t, err.Error(), want)
				}
				return
			}
			require.NoError(t, err)
			for flag, want := range tc.want {
				assert.Equal(t, want, cmd.Flags().Lookup(flag).Value.String(), flag)
			}
		})
	}
}

// TestUpstreamAccount reads the account at the upstream from the configuration, unless others can read it too.
func TestUpstreamAccount(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yml")
	require.NoError(t, os.WriteFile(file,
		[]byte("proxy: {remoteurl: \"https://registry.example.com\", username: u, password: secret}\n"), 0o600))
	var e transfer.Endpoint
	require.NoError(t, applyConfig(newServeCommand(), file, &e))
	assert.Equal(t, transfer.Endpoint{Username: "u", Password: "secret"}, e)
	e = transfer.Endpoint{AuthFile: "auth.json"}
	require.NoError(t, applyConfig(newServeCommand(), file, &e))
	assert.Empty(t, e.Username, "the auth file wins")

	require.NoError(t, os.WriteFile(file, []byte("proxy: {username: u, password: secret}\n"), 0o600))
	require.NoError(t, applyConfig(newServeCommand(), file, &e), "--upstream names the registry")
	number := filepath.Join(t.TempDir(), "number.yml")
	require.NoError(t, os.WriteFile(number, []byte("proxy: {username: u, password: 01234567}\n"), 0o600))
	require.ErrorContains(t, applyConfig(newServeCommand(), number, &e), "proxy.password: write it in quotes",
		"it would be another number")

	require.NoError(t, os.Chmod(file, 0o644))
	err := applyConfig(newServeCommand(), file, &e)
	require.ErrorContains(t, err, "chmod 600")
	assert.NotContains(t, err.Error(), "secret")
}
