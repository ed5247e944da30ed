// Command release makes the folder that people install dayone from: programs, packages, container images, manifests.
//
//	sources, version -> programs -> archives, packages, images, kustomize -> bills of materials -> provenance, checksums
//
// Two runs on one commit give equal bytes, but for the signatures.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"sigs.k8s.io/yaml"

	"dayone.dev/dayone/build/sign"
	"dayone.dev/dayone/hack/images"
)

// options of a release.
type options struct {
	// source is the checkout, out the folder to make.
	source, out string
	// version is vMAJOR.MINOR.PATCH.
	version string
	// registry is HOST[:PORT][/NAMESPACE] where the images are going to be; manifests name it.
	registry string
	// architectures in Go's spelling. The first is that of this machine, and has all programs.
	architectures []string
	// darwin are the architectures for which kubectl's plugin is made for a Mac.
	darwin []string
	// key signs; nil signs nothing.
	key *sign.Key
	// vulnDB is the URL of a database of known vulnerabilities (https://go.dev/doc/security/vuln/database), or "off".
	vulnDB string
	// commit is that of the sources in hexadecimal; modified says that they are not as it has them.
	commit   string
	modified bool
	// licenses are those of all modules in the programs, by PATH@VERSION.
	licenses map[string]license
	// made is the time of everything in the folder.
	made time.Time
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release: "+err.Error())
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	o := options{}
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.StringVar(&o.source, "source", ".", "the checkout")
	flags.StringVar(&o.out, "out", "out/release", "folder to make; what is there of an earlier release is removed")
	flags.StringVar(&o.version, "version", "", "version, such as v0.1.0 (required)")
	flags.StringVar(&o.registry, "registry", "registry.example.com/dayone",
		"HOST[:PORT]/NAMESPACE that is going to have the images; the kustomize directory names it")
	architectures := flags.String("arch", "amd64,arm64", "architectures; the first is this machine's")
	darwin := flags.String("darwin", "amd64,arm64", "architectures of Macs to make kubectl's plugin for; may be empty")
	key := flags.String("key", "", "directory of dayone keygen: signs images, provenance, checksums (default: unsigned)")
	flags.StringVar(&o.vulnDB, "vulndb", "https://vuln.go.dev",
		"URL of a database of known vulnerabilities, which no program may have; off looks for none")
	flags.StringVar(&o.commit, "commit", "", "commit of the sources, for the provenance (default: what git says)")
	compile := flags.Bool("compile", false, "only compile the programs for --arch, so that the release links them")
	if err := flags.Parse(args); err != nil {
		return err
	}
	o.architectures, o.darwin = strings.Split(*architectures, ","), strings.FieldsFunc(*darwin, isComma)
	if *compile {
		return o.compile(ctx)
	}
	if !validVersion.MatchString(o.version) {
		return fmt.Errorf("version %q: write it like v0.1.0, as make release VERSION=v0.1.0", o.version)
	}
	var err error
	for _, dir := range []*string{&o.source, &o.out} {
		if *dir, err = filepath.Abs(*dir); err != nil {
			return fmt.Errorf("find %s: %w", *dir, err)
		}
	}
	if o.made, err = commitTime(ctx, o.source); err != nil {
		return err
	}
	if o.commit == "" {
		if o.commit, o.modified, err = commitOf(ctx, o.source); err != nil {
			return err
		}
	}
	if *key != "" {
		if o.key, err = sign.Load(filepath.Join(*key, sign.KeyFile), filepath.Join(*key, sign.PassphraseFile)); err != nil {
			return err
		}
	}
	return o.make(ctx)
}

func isComma(r rune) bool { return r == ',' }

// platform is what programs are made for, in Go's spelling.
type platform struct{ system, arch string }

// String is its part of file names.
func (p platform) String() string { return p.system + "_" + p.arch }

// platforms are all: Linux has all programs, darwin kubectl's plugin.
func (o options) platforms() (out []platform) {
	for _, arch := range o.architectures {
		out = append(out, platform{"linux", arch})
	}
	for _, arch := range o.darwin {
		out = append(out, platform{"darwin", arch})
	}
	return out
}

// validVersion is what packages and images can name.
var validVersion = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.]+)?$`)

// commitTime is the time of the commit that is checked out: equal commits give equal bytes.
func commitTime(ctx context.Context, source string) (time.Time, error) {
	if text := os.Getenv("SOURCE_DATE_EPOCH"); text != "" {
		seconds, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return time.Time{}, fmt.Errorf("read SOURCE_DATE_EPOCH: %w", err)
		}
		return time.Unix(seconds, 0).UTC(), nil
	}
	out, err := exec.CommandContext(ctx, "git", "-C", source, "log", "-1", "--format=%ct").Output()
	if err != nil {
		return time.Time{}, fmt.Errorf("read the time of the commit (outside of git set SOURCE_DATE_EPOCH): %w", err)
	}
	seconds, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("read the time of the commit: %w", err)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// make makes the folder.
func (o options) make(ctx context.Context) error {
	if err := emptied(o.out); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "dayone-release-")
	if err != nil {
		return fmt.Errorf("make work directory: %w", err)
	}
	defer os.RemoveAll(work)
	for _, p := range o.platforms() {
		if err := o.programs(ctx, filepath.Join(work, p.String()), p); err != nil {
			return err
		}
	}
	native := filepath.Join(work, o.platforms()[0].String())
	if err := checkVulnerabilities(ctx, o, native, images.Programs()...); err != nil {
		return err
	}
	if o.licenses, err = readLicenses(ctx, o, work); err != nil {
		return err
	}
	if err := writeLicenses(o); err != nil {
		return fmt.Errorf("write licenses: %w", err)
	}
	if err := o.extras(ctx, native, filepath.Join(work, "extras")); err != nil {
		return err
	}
	for _, step := range []func(context.Context, string) error{o.archives, o.packages, o.billsOfMaterials, o.images} {
		if err := step(ctx, work); err != nil {
			return err
		}
	}
	if err := o.krew(); err != nil {
		return err
	}
	if err := writeProvenance(ctx, o); err != nil {
		return err
	}
	return o.checksums()
}

// emptied makes the folder, without what an earlier release put there. It removes nothing else.
func emptied(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("make release folder: %w", err)
	}
	if _, err := os.Stat(filepath.Join(dir, sumsFile)); len(entries) > 0 && err != nil {
		return fmt.Errorf("make release folder: %s is not empty and is no release: name another one with --out", dir)
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("make release folder: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make release folder: %w", err)
	}
	// It is a release from here on, if not a whole one.
	return os.WriteFile(filepath.Join(dir, sumsFile), nil, 0o644)
}

const (
	sumsFile = "SHA256SUMS"
	// krewFile is the manifest of kubectl's plugin manager.
	krewFile = "dayone.krew.yaml"
)

// billsOfMaterials writes what modules each program has, as its own build information says.
func (o options) billsOfMaterials(_ context.Context, work string) error {
	for _, p := range o.platforms() {
		programs, err := filepath.Glob(filepath.Join(work, p.String(), "*"))
		if err != nil {
			return fmt.Errorf("write bill of materials: %w", err)
		}
		for _, program := range programs {
			name := filepath.Base(program)
			raw, err := o.billOfMaterials(program)
			if err == nil {
				err = os.WriteFile(filepath.Join(o.out, fmt.Sprintf("%s_%s_%s.cdx.json", name, o.version, p)), raw, 0o644)
			}
			if err != nil {
				return fmt.Errorf("write bill of materials of %s: %w", name, err)
			}
		}
	}
	return nil
}

func (o options) billOfMaterials(program string) ([]byte, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(raw)
	b := cdx.NewBOM()
	b.SerialNumber = "" // chance would make equal releases differ
	b.Metadata = &cdx.Metadata{Timestamp: o.made.Format("2006-01-02T15:04:05Z"), Component: &cdx.Component{
		Type: cdx.ComponentTypeApplication, Name: filepath.Base(program), Version: o.version,
		Hashes: &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}}}}
	components := []cdx.Component{{Type: cdx.ComponentTypeLibrary, Name: goLibrary,
		Version: strings.TrimPrefix(info.GoVersion, "go"), PackageURL: "pkg:golang/std@" + strings.TrimPrefix(info.GoVersion,
			"go"), Licenses: o.licensesOf(goLibrary)}}
	for _, m := range info.Deps {
		m = compiled(m)
		components = append(components, cdx.Component{Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version,
			PackageURL: "pkg:golang/" + m.Path + "@" + m.Version, Licenses: o.licensesOf(m.Path + "@" + m.Version)})
	}
	b.Components = &components
	var out bytes.Buffer
	if err := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).Encode(b); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// licensesOf are the SPDX identifiers of a module's licenses.
func (o options) licensesOf(module string) *cdx.Licenses {
	out := cdx.Licenses{}
	for _, id := range o.licenses[module].ids {
		out = append(out, cdx.LicenseChoice{License: &cdx.License{ID: id}})
	}
	return &out
}

type object = map[string]any

// krew writes the manifest with which kubectl krew installs the plugin from the archive of its architecture.
func (o options) krew() error {
	var platforms []object
	for _, p := range o.platforms() {
		name, program := o.archiveName(p), "dayone"
		if p.system == "darwin" {
			program = plugin
		}
		sum, err := hashOf(filepath.Join(o.out, name))
		if err != nil {
			return err
		}
		platforms = append(platforms, object{
			"selector": object{"matchLabels": object{"os": p.system, "arch": p.arch}},
			"uri":      "https://dayone.dev/releases/" + o.version + "/" + name,
			"sha256":   sum, "bin": program,
			"files": []object{{"from": program, "to": "."}, {"from": "LICENSE", "to": "."},
				{"from": licensesFile, "to": "."}},
		})
	}
	raw, err := yaml.Marshal(object{
		"apiVersion": "krew.googlecontainertools.github.com/v1alpha2", "kind": "Plugin",
		"metadata": object{"name": "dayone"},
		"spec": object{
			"version": o.version, "homepage": "https://dayone.dev",
			"shortDescription": "Explain and plan the OS images of nodes",
			"description": "Shows how far the nodes' OS images are, why a node waits, and what a change of MachineConfigs\n" +
				"would do to nodes before it is made.\n",
			"platforms": platforms,
		}})
	if err != nil {
		return fmt.Errorf("write krew manifest: %w", err)
	}
	return os.WriteFile(filepath.Join(o.out, krewFile), raw, 0o644)
}

func hashOf(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", fmt.Errorf("hash: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("hash %s: %w", file, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// checksums writes what sha256sum -c reads, over every file of the folder, and with a key its signature, as cosign
// verify-blob and openssl read it.
func (o options) checksums() error {
	var sums bytes.Buffer
	err := filepath.WalkDir(o.out, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		at, err := filepath.Rel(o.out, name)
		if err != nil || at == sumsFile {
			return err
		}
		sum, err := hashOf(name)
		fmt.Fprintf(&sums, "%s  %s\n", sum, at)
		return err
	})
	if err == nil {
		err = os.WriteFile(filepath.Join(o.out, sumsFile), sums.Bytes(), 0o644)
	}
	if err != nil {
		return fmt.Errorf("write checksums: %w", err)
	}
	if o.key == nil {
		return nil
	}
	signature, err := o.key.SignBlob(sums.Bytes())
	if err == nil {
		err = os.WriteFile(filepath.Join(o.out, sumsFile+".sig"), []byte(signature), 0o644)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(o.out, sign.PublicFile), o.key.Public, 0o644)
	}
	if err != nil {
		return fmt.Errorf("sign checksums: %w", err)
	}
	return nil
}
