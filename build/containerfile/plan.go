package containerfile

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"

	docker "github.com/fsouza/go-dockerclient"
	"github.com/openshift/imagebuilder"
)

// Names that a Containerfile may use for images beside its own stages.
const (
	// Configs is base and rendered config: what the final stage must start from.
	Configs = "configs"
	// Base is the OS image without the config.
	Base = "base"
)

// CopiedFile is a file whose whole content stands in the Containerfile.
type CopiedFile struct {
	Path     string
	Content  []byte
	Mode     int64
	UID, GID int
	// Instruction is the COPY's text.
	Instruction string
	Line        int
}

// Append is a Containerfile that needs no container: files, labels and environment.
type Append struct {
	Files  []CopiedFile
	Labels map[string]string
	Env    []string
	// Empty are the instructions that change only the image's configuration, in order.
	Empty []string
}

// errNeedsContainer carries the reason why a Containerfile cannot be appended.
var errNeedsContainer = errors.New("needs a container")

// PlanAppend reports whether the Containerfile can be carried out without a container, and how. The reason says why or
// why not. env is the base image's environment, which COPY and ENV may refer to.
func (f *File) PlanAppend(env []string) (plan *Append, reason string) {
	if len(f.Stages) != 1 {
		return nil, fmt.Sprintf("the Containerfile has %d stages", len(f.Stages))
	}
	final := f.Final()
	if final.From != Configs {
		return nil, fmt.Sprintf("line %d starts from %s", final.Line, final.From)
	}
	for _, in := range final.Instructions {
		switch in.Keyword {
		case "LABEL", "ENV":
		case "COPY":
			if from, ok := in.flag("from"); ok {
				return nil, fmt.Sprintf("line %d copies from %s", in.Line, from)
			}
			if len(in.Heredocs) == 0 || len(in.Heredocs) != len(in.Args)-1 {
				return nil, fmt.Sprintf("line %d copies from a build context", in.Line)
			}
			if !path.IsAbs(in.Args[len(in.Args)-1]) {
				return nil, fmt.Sprintf("line %d has a relative destination", in.Line)
			}
		default:
			return nil, fmt.Sprintf("line %d is %s", in.Line, in.Keyword)
		}
	}
	plan, err := final.evaluate(env)
	if err != nil {
		return nil, err.Error()
	}
	return plan, "the Containerfile has only LABEL, ENV and COPY of inline files"
}

// evaluate runs the instructions through buildah's own evaluator, which expands variables.
func (s *Stage) evaluate(env []string) (*Append, error) {
	builder := imagebuilder.NewBuilder(nil)
	builder.RunConfig = docker.Config{Env: env, Labels: map[string]string{}}
	plan := &Append{}
	for _, in := range s.Instructions {
		step := builder.Step()
		if err := step.Resolve(in.node); err != nil {
			return nil, fmt.Errorf("line %d: %w", in.Line, err)
		}
		collect := &collector{line: in.Line, text: in.Text}
		if err := builder.Run(step, collect, true); err != nil {
			return nil, fmt.Errorf("line %d: %w", in.Line, err)
		}
		plan.Files = append(plan.Files, collect.files...)
		if in.Keyword != "COPY" {
			plan.Empty = append(plan.Empty, in.Text)
		}
	}
	plan.Labels, plan.Env = builder.RunConfig.Labels, builder.RunConfig.Env
	return plan, nil
}

// collector takes what the evaluator would do to a container.
type collector struct {
	line  int
	text  string
	files []CopiedFile
}

// Copy records inline files; buildah gives them mode 0644, owner root and a final newline.
func (c *collector) Copy(_ []string, copies ...imagebuilder.Copy) error {
	for _, cp := range copies {
		if cp.Link || cp.Parents || cp.Checksum != "" {
			return fmt.Errorf("line %d: flags of COPY: %w", c.line, errNeedsContainer)
		}
		uid, gid, err := numericOwner(cp.Chown)
		if err != nil {
			return fmt.Errorf("line %d: %w", c.line, err)
		}
		mode := int64(0o644)
		if cp.Chmod != "" {
			if mode, err = strconv.ParseInt(cp.Chmod, 8, 32); err != nil {
				return fmt.Errorf("line %d: --chmod=%s: %w", c.line, cp.Chmod, errNeedsContainer)
			}
		}
		for _, f := range cp.Files {
			dest := cp.Dest
			if strings.HasSuffix(dest, "/") || len(cp.Files) > 1 {
				dest = path.Join(dest, f.Name)
			}
			content := strings.TrimPrefix(f.Data, "\n") + "\n"
			c.files = append(c.files, CopiedFile{Path: path.Clean(dest), Content: []byte(content), Mode: mode, UID: uid,
				GID: gid, Instruction: c.text, Line: c.line})
		}
	}
	return nil
}

func numericOwner(chown string) (uid, gid int, err error) {
	if chown == "" {
		return 0, 0, nil
	}
	user, group, both := strings.Cut(chown, ":")
	if uid, err = strconv.Atoi(user); err != nil {
		return 0, 0, fmt.Errorf("--chown by name: %w", errNeedsContainer)
	}
	if !both {
		return uid, uid, nil
	}
	if gid, err = strconv.Atoi(group); err != nil {
		return 0, 0, fmt.Errorf("--chown by name: %w", errNeedsContainer)
	}
	return uid, gid, nil
}

func (c *collector) Preserve(string) error            { return errNeedsContainer }
func (c *collector) EnsureContainerPath(string) error { return errNeedsContainer }
func (c *collector) EnsureContainerPathAs(string, string, *os.FileMode) error {
	return errNeedsContainer
}
func (c *collector) Run(imagebuilder.Run, docker.Config) error        { return errNeedsContainer }
func (c *collector) UnrecognizedInstruction(*imagebuilder.Step) error { return errNeedsContainer }
