package handover

import (
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
)

// files are what registry clients read from disk: credentials and authorities, mode 0600, gone with the hand-over.
type files struct{ dir string }

func newFiles(parent string) (*files, error) {
	dir, err := os.MkdirTemp(parent, "handover-")
	if err != nil {
		return nil, fmt.Errorf("make temporary directory: %w", err)
	}
	return &files{dir: dir}, nil
}

func (f *files) remove() error { return os.RemoveAll(f.dir) }

// auth writes a Secret's credentials; "" is nobody's.
func (f *files) auth(p *Plan, secret string) (string, error) {
	s := p.secret(secret)
	if s == nil {
		return "", nil
	}
	name := filepath.Join(f.dir, "auth-"+secret+".json")
	if err := os.WriteFile(name, s.Data[corev1.DockerConfigJsonKey], 0o600); err != nil {
		return "", fmt.Errorf("write credentials: %w", err)
	}
	return name, nil
}

// authorities writes those that sign the final registries: the caller's, the plan's and the cluster's additional trust
// bundle. "" when there are none.
func (f *files) authorities(p *Plan, given string) (string, error) {
	pem := []byte(p.FinalCA)
	if given != "" {
		raw, err := os.ReadFile(given)
		if err != nil {
			return "", fmt.Errorf("read authorities of the final registries: %w", err)
		}
		pem = append(append(pem, raw...), '\n')
	}
	if n := len(p.Set.ControllerConfigs); n > 0 {
		pem = append(pem, p.Set.ControllerConfigs[n-1].Object.Spec.AdditionalTrustBundle...)
	}
	if len(pem) == 0 {
		return "", nil
	}
	name := filepath.Join(f.dir, "ca.crt")
	if err := os.WriteFile(name, pem, 0o600); err != nil {
		return "", fmt.Errorf("write authorities: %w", err)
	}
	return name, nil
}
