package proposal

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/validation"
	"dayone.dev/dayone/rebase/fleet/snapshot"
)

// Stdin stands for standard input among the files.
const Stdin = "-"

// Options say what to read.
type Options struct {
	// Files are files and directories of objects, Stdin among them; of a directory its own files count.
	Files []string
	// Remove are the objects to delete, KIND/NAME or KIND/NAMESPACE/NAME.
	Remove []string
	// Stdin is read for the file of that name. Default: there is none.
	Stdin io.Reader
	// Checked: the files were checked before, as those of an install directory are. What is still found in them is a
	// hint.
	Checked bool
}

// Empty tells that nothing is asked for.
func (o Options) Empty() bool { return len(o.Files)+len(o.Remove) == 0 }

// Proposal is what a user would apply and delete.
type Proposal struct {
	// Dump holds the objects, and which ones go.
	*snapshot.Dump
	objects []object
	removed []removal
	// hints are what is accepted and yet has no effect.
	hints []string
}

// Read reads and checks the files. The error is a report of all that is wrong in them.
func Read(ctx context.Context, o Options) (*Proposal, error) {
	dump, err := snapshot.NewDump()
	if err != nil {
		return nil, err
	}
	var api *validation.Validator
	if !o.Checked {
		if api, err = validation.New(); err != nil {
			return nil, err
		}
	}
	known, err := knownKinds()
	if err != nil {
		return nil, err
	}
	p := &Proposal{Dump: dump}
	var bad report.Report
	files, err := p.files(o)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		r := reader{kinds: known, api: api}
		if err := r.read(ctx, f); err != nil {
			return nil, err
		}
		bad.Add(r.bad.Findings...)
		p.objects = append(p.objects, r.objects...)
	}
	p.twice(&bad)
	if err := bad.Err(); err != nil && !o.Checked {
		return nil, err
	}
	for _, f := range bad.Findings {
		p.hints = append(p.hints, f.Error())
	}
	if len(o.Files) > 0 && len(p.objects) == 0 && !o.Checked {
		return nil, errors.New("read files: there is no object in them")
	}
	for i := range p.objects {
		if err := dump.Add(p.objects[i].raw, p.objects[i].origin.File); err != nil {
			return nil, err
		}
	}
	return p, p.remove(known, o.Remove)
}

// file is one file's name and content.
type file struct {
	name string
	raw  []byte
}

// files reads what is named.
func (p *Proposal) files(o Options) ([]file, error) {
	var out []file
	for _, name := range o.Files {
		if name == Stdin {
			raw, err := bounded(cmp.Or[io.Reader](o.Stdin, strings.NewReader("")))
			if err != nil {
				return nil, fmt.Errorf("read standard input: %w", err)
			}
			out = append(out, file{"standard input", raw})
			continue
		}
		names, err := p.below(name)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			raw, err := readFile(name)
			if err != nil {
				return nil, fmt.Errorf("read objects: %w", err)
			}
			out = append(out, file{name, raw})
		}
	}
	return out, nil
}

// below are the files that a name stands for. What a directory has besides is named.
func (p *Proposal) below(name string) ([]string, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("read objects: %w", err)
	}
	if !info.IsDir() {
		return []string{name}, nil
	}
	entries, err := os.ReadDir(name)
	if err != nil {
		return nil, fmt.Errorf("read objects: %w", err)
	}
	var out []string
	for _, e := range entries {
		at := filepath.Join(name, e.Name())
		if slices.Contains(snapshot.Extensions(), filepath.Ext(at)) && !e.IsDir() {
			out = append(out, at)
			continue
		}
		p.hints = append(p.hints, at+": not read: give directories and files of other names with -f of their own")
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("read objects: %s has no file that ends in .yaml, .yml or .json", name)
	}
	return out, nil
}

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw, err := bounded(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return raw, nil
}

func bounded(r io.Reader) ([]byte, error) {
	raw, err := io.ReadAll(io.LimitReader(r, manifests.MaxFileBytes+1))
	if err == nil && len(raw) > manifests.MaxFileBytes {
		err = fmt.Errorf("it has more than %d bytes: divide it", manifests.MaxFileBytes)
	}
	return raw, err
}

// reader takes the objects out of a file. Without api it compares them with nothing.
type reader struct {
	kinds   *kinds
	api     *validation.Validator
	objects []object
	bad     report.Report
}

func (r *reader) read(ctx context.Context, f file) error {
	documents, err := manifests.Documents(f.raw, f.name, manifests.ReadOptions{})
	if err != nil {
		found := report.Of(err)
		if found == nil {
			return err
		}
		r.bad.Add(found...)
	}
	for _, d := range documents {
		o := object{raw: d.JSON, origin: d.Origin, node: d.Node, placed: d.Node != nil}
		if o.node == nil { // JSON that YAML cannot read has no places, and is looked at all the same
			var root yaml.Node
			if err := yaml.Unmarshal(d.JSON, &root); err != nil || len(root.Content) != 1 {
				return errors.Join(fmt.Errorf("read objects: %s: a document is neither YAML nor JSON", f.name), err)
			}
			o.node = root.Content[0]
		}
		if err := r.object(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// object takes in an object, or the items of a list.
func (r *reader) object(ctx context.Context, o object) error {
	var head map[string]any
	if string(o.raw) == "null" {
		return nil
	}
	if json.Unmarshal(o.raw, &head) != nil {
		place := o.at("", "wrong-type")
		place.Next = "write an object with apiVersion, kind and metadata"
		r.bad.Errorf(place, "the document is no object")
		return nil
	}
	if !r.kinds.of(&o, head, &r.bad) {
		return nil
	}
	if _, isList := head["items"].([]any); isList && strings.HasSuffix(o.kind.Kind, "List") {
		return r.list(ctx, o)
	}
	metadata, _ := head["metadata"].(map[string]any)
	o.name, _ = metadata["name"].(string)
	o.namespace, _ = metadata["namespace"].(string)
	t, known := r.kinds.types[o.kind]
	before := len(r.bad.Findings)
	if known && r.api != nil {
		if err := o.check(ctx, t, r.api, &r.bad); err != nil {
			return err
		}
	}
	if o.name == "" && len(r.bad.Findings) == before {
		place := o.at("metadata.name", "name")
		place.Next = "give the object a name"
		r.bad.Errorf(place, "a %s without a name cannot be applied", o.kind.Kind)
	}
	r.objects = append(r.objects, o)
	return nil
}

// list takes in the items of a list.
func (r *reader) list(ctx context.Context, o object) error {
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(o.raw, &list); err != nil {
		return fmt.Errorf("read objects: %s: %w", o.at("items", "").Place(), err)
	}
	r.listFields(o)
	for i, raw := range list.Items {
		item := o
		item.raw, item.prefix = raw, fmt.Sprintf("%s[%d]", joined(o.prefix, "items"), i)
		item.node = entry(o.node, "items", i)
		if item.node == nil {
			var root yaml.Node
			if err := yaml.Unmarshal(raw, &root); err != nil || len(root.Content) != 1 {
				return errors.Join(fmt.Errorf("read objects: %s cannot be read", item.at("", "").Place()), err)
			}
			item.node, item.placed = root.Content[0], false
		}
		if err := r.object(ctx, item); err != nil {
			return err
		}
	}
	return nil
}
