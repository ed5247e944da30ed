package machineconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/coreos/go-semver/semver"
	ignerrors "github.com/coreos/ignition/v2/config/shared/errors"
	v35 "github.com/coreos/ignition/v2/config/v3_5"
	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/coreos/ignition/v2/config/validate"
	vreport "github.com/coreos/vcontext/report"

	"dayone.dev/dayone/installconfig/report"
)

// Version is the Ignition version of every parsed and merged config.
const Version = "3.5.0"

// Rules of the findings of this package.
const (
	ruleVersion   = "ignition-version"
	ruleInvalid   = "ignition"
	ruleIgnition2 = "ignition-2"
	ruleFileMode  = "file-mode"
)

// maxFileMode is the largest mode of a file; MCO refuses set-user-id, set-group-id and sticky bits on files (not on
// directories).
const maxFileMode = 0o777

// Parse reads an Ignition config of version 2.0 to 2.2 or 3.0 to 3.5 and returns it as 3.5, validated as the version
// demands and checked as a MachineConfig's: file modes up to 0777, in 2.x no user but core. 2.3, 2.4 and 3.6 are
// refused as MCO does. Keys that Ignition does not know are dropped. The error is a report; its paths count from the
// config, for example storage.files[0].mode.
func Parse(raw []byte) (ign35.Config, error) { return parse(raw, parse2) }

// parse is Parse with the reader of 2.x: a program that reads rendered configs only links none.
func parse(raw []byte, two func([]byte) (ign35.Config, error)) (ign35.Config, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return ign35.Config{Ignition: ign35.Ignition{Version: Version}}, nil
	}
	config, err := parseAny(raw, two)
	if err != nil {
		return ign35.Config{}, err
	}
	if found := validate.ValidateWithContext(config, nil); found.IsFatal() {
		return ign35.Config{}, invalid(found)
	}
	return config, checkModes(config)
}

func parseAny(raw []byte, two func([]byte) (ign35.Config, error)) (ign35.Config, error) {
	var head struct {
		Ignition struct {
			Version *string `json:"version"`
		} `json:"ignition"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return ign35.Config{}, refuse("", ruleInvalid, "see the Ignition specification for the form of a config",
			"is no Ignition config: %s", jsonReason(err))
	}
	if head.Ignition.Version == nil || *head.Ignition.Version == "" {
		return ign35.Config{}, refuse("ignition.version", ruleVersion, "set it, for example to 3.4.0", "is missing")
	}
	version, err := semver.NewVersion(*head.Ignition.Version)
	if err != nil {
		return ign35.Config{}, refuse("ignition.version", ruleVersion, "use three numbers, for example 3.4.0",
			"%q is no version", *head.Ignition.Version)
	}
	if version.Major == 2 && version.Minor <= 2 {
		return two(raw)
	}
	config, found, err := v35.ParseCompatibleVersion(raw)
	switch {
	case errors.Is(err, ignerrors.ErrUnknownVersion):
		return ign35.Config{}, refuse("ignition.version", ruleVersion,
			"write the config for 3.5.0 or older (2.0 to 2.2 are converted, 2.3 and 2.4 are not)",
			"%s is not understood", version)
	case err != nil && found.IsFatal():
		return ign35.Config{}, invalid(found)
	case err != nil:
		return ign35.Config{}, refuse("", ruleInvalid, "see the Ignition specification", "%s", err)
	}
	return config, nil
}

func checkModes(config ign35.Config) error {
	var bad report.Report
	for i, f := range config.Storage.Files {
		if f.Mode != nil && *f.Mode > maxFileMode {
			place := report.Finding{Path: fmt.Sprintf("storage.files[%d].mode", i), Rule: ruleFileMode,
				Next: "modes are decimal in JSON and YAML: 0644 is 420; set-user-id, set-group-id and sticky bits are not " +
					"allowed on files"}
			bad.Errorf(place, "mode %d (octal %#o) of %s has special bits", *f.Mode, *f.Mode, f.Path)
		}
	}
	return bad.Err()
}

func refuse(path, rule, next, format string, args ...any) error {
	var r report.Report
	r.Errorf(report.Finding{Path: path, Rule: rule, Next: next}, format, args...)
	return r.Err()
}

// invalid turns the fatal entries of Ignition's report into findings.
func invalid(found vreport.Report) error {
	var r report.Report
	for _, e := range found.Entries {
		if !e.Kind.IsFatal() {
			continue
		}
		place := report.Finding{Rule: ruleInvalid, Path: fieldPath(e.Context.Path),
			Next: "see the Ignition specification for this field"}
		r.Errorf(place, "%s", e.Message)
	}
	if err := r.Err(); err != nil {
		return err
	}
	return refuse("", ruleInvalid, "see the Ignition specification", "%s", found.String())
}

// fieldPath writes the parts of a path as storage.files[0].mode.
func fieldPath(parts []any) string {
	var b strings.Builder
	for _, p := range parts {
		switch p := p.(type) {
		case int:
			fmt.Fprintf(&b, "[%d]", p)
		default:
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			fmt.Fprint(&b, p)
		}
	}
	return b.String()
}

// jsonReason is the decoder's message without Go's type names.
func jsonReason(err error) string {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Sprintf("%s cannot be a %s", orRoot(wrong.Field), wrong.Value)
	}
	return err.Error()
}

func orRoot(field string) string {
	if field == "" {
		return "the config"
	}
	return field
}

// ParseRendered reads the config of a rendered MachineConfig. It is Parse, but for files that only append and yet say
// overwrite, which rendering produces and Ignition refuses: they are read as saying nothing about it.
func ParseRendered(raw []byte) (ign35.Config, error) { return parseRendered(raw, parse2) }

// ParseRendered3 is ParseRendered for version 3, which is all that nodes have.
func ParseRendered3(raw []byte) (ign35.Config, error) { return parseRendered(raw, noRendered2) }

func parseRendered(raw []byte, two func([]byte) (ign35.Config, error)) (ign35.Config, error) {
	var config ign35.Config
	if json.Unmarshal(raw, &config) != nil || config.Ignition.Version != Version {
		return parse(raw, two)
	}
	for i := range config.Storage.Files {
		if f := &config.Storage.Files[i]; f.Contents.Source == nil && len(f.Append) > 0 && f.Overwrite != nil &&
			*f.Overwrite {
			f.Overwrite = nil
		}
	}
	if found := validate.ValidateWithContext(config, nil); found.IsFatal() {
		return ign35.Config{}, invalid(found)
	}
	return config, nil
}

// noRendered2 refuses what no renderer has made since version 3 came.
func noRendered2([]byte) (ign35.Config, error) {
	return ign35.Config{}, refuse("ignition.version", ruleVersion, "let the pool be rendered anew",
		"is 2.x, and nodes have configs of version 3")
}
