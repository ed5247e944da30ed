package registry

import (
	"net/http"
	"os"
	"path/filepath"

	"dayone.dev/dayone/registry/storage"
)

// serveHealth answers whether the server runs (/healthz) and whether it can read its images (/readyz), without an
// account: a probe has none, and the answers tell nothing else. A full disk is no reason to send pulls elsewhere.
func (s *service) serveHealth(w http.ResponseWriter, r *http.Request) (served bool) {
	if r.URL.Path != "/healthz" && r.URL.Path != "/readyz" {
		return false
	}
	if !readMethod(r.Method) {
		errMethod.write(w)
		return true
	}
	if r.URL.Path == "/readyz" {
		if _, err := os.ReadDir(filepath.Join(s.root, storage.Subdirectory)); err != nil {
			s.log.WithError(err).Error("registry cannot read its images")
			http.Error(w, "the images cannot be read, see the log", http.StatusServiceUnavailable)
			return true
		}
	}
	w.Header().Set("Content-Type", "text/plain")
	_, _ = w.Write([]byte("ok\n")) // the client is gone when this fails
	return true
}
