package serve

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"dayone.dev/dayone/registry/registrytest"
)

// aloneEnv makes a process of the test binary a server with the standalone settings in the named file.
const aloneEnv = "DAYONE_SERVE_ALONE"

// standalone is what the benchmark's server is told.
type standalone struct{ BaseDir, Kubeconfig, Listen, Cert, Key string }

func TestMain(m *testing.M) {
	if file := os.Getenv(aloneEnv); file != "" {
		if err := serveAlone(file); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// serveAlone serves until it is told to stop.
func serveAlone(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var o standalone
	if err := json.Unmarshal(data, &o); err != nil {
		return err
	}
	s, err := New(Options{BaseDir: o.BaseDir, Kubeconfig: o.Kubeconfig, SecureListen: o.Listen, CertFile: o.Cert,
		KeyFile: o.Key})
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	return s.Run(ctx)
}

// alone starts our server in a process of its own and returns its address.
func alone(b *testing.B, cert, key string, roots *x509.CertPool) string {
	b.Helper()
	dir := b.TempDir()
	tree(b, dir, largeStorage())
	o := standalone{BaseDir: dir, Kubeconfig: kubeconfig(b, b.TempDir()), Listen: ownAddress(b), Cert: cert, Key: key}
	data, err := json.Marshal(o)
	require.NoError(b, err)
	file := filepath.Join(b.TempDir(), "options.json")
	require.NoError(b, os.WriteFile(file, data, 0o600))
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), aloneEnv+"="+file)
	start(b, cmd, o.Listen, roots)
	return o.Listen
}

// nginx starts nginx with one worker for each processor and the cipher that TLS 1.3 takes here, and returns its
// address.
func nginx(b *testing.B, from, cert, key string, roots *x509.CertPool) string {
	b.Helper()
	dir := b.TempDir()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots,
		MinVersion: tls.VersionTLS12}}}
	asked, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "https://"+from+"/config/master", nil)
	require.NoError(b, err)
	asked.Header.Set("Accept", accept35)
	answer, err := client.Do(asked)
	require.NoError(b, err)
	body, err := io.ReadAll(answer.Body)
	require.NoError(b, err)
	require.NoError(b, answer.Body.Close())
	require.NoError(b, os.Mkdir(filepath.Join(dir, "config"), 0o700))
	require.NoError(b, os.WriteFile(filepath.Join(dir, "config", "master"), body, 0o600))
	address := ownAddress(b)
	config := filepath.Join(dir, "nginx.conf")
	require.NoError(b, os.WriteFile(config, fmt.Appendf(nil, `daemon off; user root; worker_processes auto; pid %[1]s/pid; error_log stderr;
events { worker_connections 512; }
http {
  access_log off; keepalive_requests 1000000000; open_file_cache max=10; tcp_nopush on; output_buffers 2 512k;
  ssl_protocols TLSv1.3; ssl_conf_command Ciphersuites TLS_AES_128_GCM_SHA256;
  client_body_temp_path %[1]s/a; proxy_temp_path %[1]s/b; fastcgi_temp_path %[1]s/c; uwsgi_temp_path %[1]s/d; scgi_temp_path %[1]s/e;
  server { listen %[2]s ssl reuseport; ssl_certificate %[3]s; ssl_certificate_key %[4]s; root %[1]s; }
}`, dir, address, cert, key), 0o600))
	start(b, exec.Command("nginx", "-c", config, "-e", "stderr"), address, roots)
	return address
}

// start runs a server until the benchmark ends and waits until it answers.
func start(b *testing.B, cmd *exec.Cmd, address string, roots *x509.CertPool) {
	b.Helper()
	cmd.Stderr = os.Stderr
	require.NoError(b, cmd.Start())
	b.Cleanup(func() {
		_ = cmd.Process.Signal(unix.SIGTERM)
		_ = cmd.Wait()
	})
	require.Eventually(b, func() bool {
		conn, err := tls.Dial("tcp", address, &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12})
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}, time.Minute, 20*time.Millisecond)
}

// ownAddress is an address that is nobody else's until the benchmark ends.
func ownAddress(b *testing.B) string {
	b.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(registrytest.Port(b)))
}
