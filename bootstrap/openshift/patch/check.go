package patch

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	ign "github.com/coreos/ignition/v2/config/v3_6/types"

	"dayone.dev/dayone/installconfig"
	"dayone.dev/dayone/installconfig/report"
)

// stateFile is the installer's memory of what it made.
const stateFile = ".openshift_install_state.json"

// check refuses a directory in which the installer would throw a patched bootstrap.ign away: it makes bootstrap.ign
// anew, with no more than a warning, when something that it is made from has changed.
func check(of file) error {
	if of.name == installconfig.AgentIgnition {
		return nil // it is the live image's, which is there already
	}
	dir := of.dir
	var rep report.Report
	for _, name := range []string{installconfig.FileName, "manifests", "openshift"} {
		for _, f := range sources(dir, name) {
			at := report.Finding{File: f, Rule: "ignition-input-left",
				Next: "run " + of.create() + " again, which takes it in, then this command"}
			rep.Errorf(at, "openshift-install would make %s anew from this file and drop the patch", of.name)
		}
	}
	for _, pool := range []string{"master", "worker"} {
		err := pointer(dir, pool)
		if found := report.Of(err); found != nil {
			rep.Add(found...)
		} else if err != nil {
			return err
		}
	}
	return rep.Err()
}

// sources are the files of name, a file or a directory, that the installer reads.
func sources(dir, name string) []string {
	entries, err := os.ReadDir(filepath.Join(dir, name))
	if err != nil {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return []string{name}
		}
		return nil
	}
	var out []string
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); !e.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, ext) {
			out = append(out, filepath.Join(name, e.Name()))
		}
	}
	return out
}

// pointer refuses an edited master.ign or worker.ign: bootstrap.ign depends on them, so the installer would make it
// anew.
func pointer(dir, pool string) error {
	file := pool + ".ign"
	raw, err := os.ReadFile(filepath.Join(dir, file))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	edited := report.Finding{File: file, Rule: "pointer-edited",
		Message: "it was edited: openshift-install would make bootstrap.ign anew and drop the patch",
		Next:    "bring it back with openshift-install create ignition-configs, and put the change into a MachineConfig"}
	made, err := recorded(dir, file)
	if err != nil {
		return err
	}
	if made != nil {
		if !bytes.Equal(bytes.TrimSpace(made), bytes.TrimSpace(raw)) {
			return edited
		}
		return nil
	}
	var c ign.Config
	if err := json.Unmarshal(raw, &c); err != nil {
		return report.Finding{File: file, Rule: "pointer", Message: fmt.Sprintf("it is no Ignition config: %v", err),
			Next: "run openshift-install create ignition-configs"}
	}
	c.Ignition = ign.Ignition{}
	if plain(c) != nil && !onlyVersion(c) {
		return edited
	}
	return nil
}

// onlyVersion says whether nothing but an empty ignition object is left.
func onlyVersion(c ign.Config) bool {
	v, ok := plain(c).(map[string]any)
	if !ok {
		return false
	}
	delete(v, "ignition")
	return len(v) == 0
}

// recorded is what the installer remembers to have written into a file; nil where it remembers nothing.
func recorded(dir, file string) ([]byte, error) {
	raw, err := os.ReadFile(filepath.Join(dir, stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", stateFile, err)
	}
	// Assets by their Go type; those of one file hold it as File: {Filename, Data}. What has another form is another kind
	// of asset.
	var assets map[string]json.RawMessage
	if err := json.Unmarshal(raw, &assets); err != nil {
		return nil, nil //nolint:nilerr // another layout of the installer's own file: then the pointer's form decides
	}
	for _, raw := range assets {
		var a struct {
			File struct{ Filename, Data string }
		}
		if json.Unmarshal(raw, &a) == nil && a.File.Filename == file {
			return base64.StdEncoding.DecodeString(a.File.Data)
		}
	}
	return nil, nil
}

// resource is a resource in the older type that machineconfig reads.
func resource(r ign.Resource) ign35.Resource {
	return ign35.Resource{Source: r.Source, Compression: r.Compression}
}
