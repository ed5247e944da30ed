package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"dayone.dev/dayone/rebase/deploy"
)

const (
	// accountDir is where a pod has its service account. Source: Kubernetes, plugin/pkg/admission/serviceaccount.
	accountDir = "/var/run/secrets/kubernetes.io/serviceaccount"
	// accountMark tells the program started anew, in the host's root already, on which descriptor that directory is open.
	accountMark = "DAYONE_SERVICE_ACCOUNT_FD"
)

// enterHost makes the host's root this process's own, so that everything that it does and starts is as on the host, and
// /sysroot writable. It gives the directory with the pod's service account, which is out of sight then but still open:
// its token changes every hour. "" where there is none.
func enterHost(root string) (account string, err error) {
	fd, entered := os.LookupEnv(accountMark)
	if !entered {
		if fd, err = openAccount(); err != nil {
			return "", err
		}
		if err := changeRoot(root); err != nil {
			return "", err
		}
		if err := os.Setenv(accountMark, fd); err != nil {
			return "", fmt.Errorf("remember the service account: %w", err)
		}
	}
	if err := deploy.MakeSysrootWritable(); err != nil { // starts this program anew where it has to
		return "", err
	}
	if fd == "" {
		return "", nil
	}
	return filepath.Join("/proc/self/fd", fd), nil
}

// openAccount opens the directory so that a program that this one becomes has it, too.
func openAccount() (string, error) {
	fd, err := unix.Open(accountDir, unix.O_PATH|unix.O_DIRECTORY, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("open the pod's service account: %w", err)
	}
	return strconv.Itoa(fd), nil
}

func changeRoot(root string) error {
	if filepath.Clean(root) == "/" {
		return nil
	}
	// Through the host's /proc this process must find itself, or it would take another one's files for its own.
	self, err := os.Readlink(filepath.Join(root, "proc/self"))
	if err != nil || self != strconv.Itoa(os.Getpid()) {
		return fmt.Errorf("enter %s: its /proc is of another PID namespace: mount the host's / there and run with hostPID",
			root)
	}
	if err := unix.Chroot(root); err != nil {
		return fmt.Errorf("enter %s: %w", root, err)
	}
	if err := os.Chdir("/"); err != nil {
		return fmt.Errorf("enter %s: %w", root, err)
	}
	return nil
}

// access finds the API: by a kubeconfig, or by the pod's service account in a directory.
func access(kubeconfig, account string) (*rest.Config, error) {
	if kubeconfig != "" {
		cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("read --kubeconfig: %w", err)
		}
		return cfg, nil
	}
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if account == "" || host == "" || port == "" {
		return nil, errors.New("find the cluster: this is no pod with a service account: give --kubeconfig")
	}
	token := filepath.Join(account, "token")
	raw, err := os.ReadFile(token)
	if err != nil {
		return nil, fmt.Errorf("read the service account's token: %w", err)
	}
	return &rest.Config{Host: "https://" + net.JoinHostPort(host, port), BearerToken: string(raw), BearerTokenFile: token,
		TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(account, "ca.crt")}}, nil
}
