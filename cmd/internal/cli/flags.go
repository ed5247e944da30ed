package cli

import (
	"os"
	"path/filepath"
	"runtime"

	"github.com/spf13/cobra"
)

// InstallDir defines the flags of a command that reads an install directory.
func InstallDir(cmd *cobra.Command, dir, platform *string) {
	cmd.Flags().StringVar(dir, "dir", ".", "the install directory")
	cmd.Flags().StringVar(platform, "platform", "linux/"+runtime.GOARCH, "the nodes' os/architecture")
}

// AuthFile defines a flag that names an auth file. Without it the user's own counts, as podman and docker have it:
// REGISTRY_AUTH_FILE, then $XDG_RUNTIME_DIR/containers/auth.json, then config.json in DOCKER_CONFIG or ~/.docker.
func AuthFile(cmd *cobra.Command, file *string, name, usage string) {
	*file = userAuthFile(os.Getenv)
	cmd.Flags().StringVar(file, name, *file,
		usage+" (default: REGISTRY_AUTH_FILE, else what podman login or docker login wrote)")
	cmd.Flags().Lookup(name).DefValue = "" // help is the same for everybody
}

// userAuthFile is the first of the user's auth files; "" is none. A file that REGISTRY_AUTH_FILE names must be there.
func userAuthFile(env func(string) string) string {
	if file := env("REGISTRY_AUTH_FILE"); file != "" {
		return file
	}
	var files []string
	if dir := env("XDG_RUNTIME_DIR"); dir != "" {
		files = append(files, filepath.Join(dir, "containers", "auth.json"))
	}
	if dir := env("DOCKER_CONFIG"); dir != "" {
		files = append(files, filepath.Join(dir, "config.json"))
	} else if home := env("HOME"); home != "" {
		files = append(files, filepath.Join(home, ".docker", "config.json"))
	}
	for _, file := range files {
		if _, err := os.Stat(file); err == nil {
			return file
		}
	}
	return ""
}
