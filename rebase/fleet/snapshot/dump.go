package snapshot

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	"dayone.dev/dayone/manifests"
)

// Bounds of a dump. A must-gather of a large cluster has some ten thousand objects; the largest are lists of all nodes.
const (
	maxDumpFile = 256 << 20
	maxDumpAll  = 2 << 30
)

// Dump is objects as `kubectl get -o yaml`, `-o json` or must-gather write them.
type Dump struct {
	scheme *runtime.Scheme
	// adding guards objects while a list is read: its items are taken in side by side.
	adding sync.Mutex
	// objects are those of each kind, by namespace and name; of one that is there twice the newer one.
	objects map[schema.GroupKind]map[string]dumped
	// removed are objects that go, by kind, and namespace and name.
	removed map[schema.GroupKind]map[string]bool
}

// dumped is an object with the file that has it; err says why it cannot be read, if somebody asks for it.
type dumped struct {
	object  runtime.Object
	err     error
	file    string
	version int64
}

// dumpedHeader says what an object is. Items makes it a list.
type dumpedHeader struct {
	APIVersion string
	Kind       string
	Items      []json.RawMessage
}

// decoding reads as encoding/json does and passes over what no plan looks at and is most of a large dump. An error ends
// it: encoding/json reads everything once more before, to find those of the form first.
var decoding = jsonv2.JoinOptions(jsonv1.DefaultOptionsV1(), jsonv1.ReportErrorsWithLegacySemantics(false),
	jsonv2.WithUnmarshalers(jsonv2.JoinUnmarshalers(
		jsonv2.UnmarshalFromFunc(func(in *jsontext.Decoder, _ *[]metav1.ManagedFieldsEntry) error { return in.SkipValue() }),
		jsonv2.UnmarshalFromFunc(func(in *jsontext.Decoder, _ *[]corev1.ContainerImage) error { return in.SkipValue() }))))

// headerOf reads what stands before an object's metadata, spec and status, which are most of it, and the items of a
// list.
func headerOf(raw []byte) (h dumpedHeader, err error) {
	in := jsontext.NewDecoder(bytes.NewBuffer(raw), jsonv1.DefaultOptionsV1())
	if token, err := in.ReadToken(); err != nil || token.Kind() != '{' {
		return h, err
	}
	for in.PeekKind() != '}' && (h.APIVersion == "" || h.Kind == "" || strings.HasSuffix(h.Kind, "List")) {
		key, err := in.ReadToken()
		if err != nil {
			return h, err
		}
		var into any
		switch key.String() {
		case "apiVersion":
			into = &h.APIVersion
		case "kind":
			into = &h.Kind
		case "items":
			into = &h.Items
		default:
			if err := in.SkipValue(); err != nil {
				return h, err
			}
			continue
		}
		if err := jsonv2.UnmarshalDecode(in, into); err != nil {
			return h, err
		}
	}
	return h, nil
}

// NewDump is a dump without objects.
func NewDump() (*Dump, error) {
	scheme, err := manifests.Scheme()
	if err != nil {
		return nil, err
	}
	if err := operatorv1.Install(scheme); err != nil {
		return nil, fmt.Errorf("register API types: %w", err)
	}
	return &Dump{scheme: scheme, objects: map[schema.GroupKind]map[string]dumped{},
		removed: map[schema.GroupKind]map[string]bool{}}, nil
}

// Scheme has the kinds that a dump takes in.
func (d *Dump) Scheme() *runtime.Scheme { return d.scheme }

// Remove says that an object goes: where the dump stands over a cluster, it is not there.
func (d *Dump) Remove(kind schema.GroupKind, namespace, name string) {
	if d.removed[kind] == nil {
		d.removed[kind] = map[string]bool{}
	}
	d.removed[kind][namespace+"/"+name] = true
}

// Extensions are those of files with objects.
func Extensions() []string { return []string{".yaml", ".yml", ".json"} }

// ReadDump reads every .yaml, .yml and .json file below dir. Kinds that dayone does not know are passed over, and so
// are files that hold no objects at all; links are not followed.
func ReadDump(dir string) (*Dump, error) {
	d, err := NewDump()
	if err != nil {
		return nil, err
	}
	left := int64(maxDumpAll)
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("read dump: %w", err)
		}
		if !e.Type().IsRegular() || !slices.Contains(Extensions(), filepath.Ext(path)) {
			return nil
		}
		info, err := e.Info()
		if err != nil {
			return fmt.Errorf("read dump: %w", err)
		}
		if left -= info.Size(); info.Size() > maxDumpFile || left < 0 {
			return fmt.Errorf(
				"read dump: with %s it is larger than can be read: give the directory of its cluster-scoped objects "+
					"alone", path)
		}
		return d.readFile(path)
	})
	if err != nil {
		return nil, err
	}
	return d, nil
}

func (d *Dump) readFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read objects: %w", err)
	}
	defer f.Close()
	r := bufio.NewReader(f)
	isJSON, err := beginsJSON(r)
	if err != nil {
		return fmt.Errorf("read objects: %s: %w", path, err)
	}
	if isJSON {
		return d.readJSON(r, path)
	}
	raw, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("read objects: %s: %w", path, err)
	}
	if items, is := cutList(raw); is {
		for _, item := range items {
			if err := d.addYAML(item, path); err != nil {
				return err
			}
		}
		return nil
	}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(raw)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read objects: %s: %w", path, err)
		}
		if err := d.addYAML(document, path); err != nil {
			return err
		}
	}
}

// addYAML takes in a document, or an item that cutList has cut out of one.
func (d *Dump) addYAML(document []byte, path string) error {
	if !mayConcern(document) {
		return nil
	}
	object := bytes.TrimSpace(document)
	if !bytes.HasPrefix(object, []byte("{")) {
		var err error
		if object, err = yaml.YAMLToJSON(document); err != nil {
			return fmt.Errorf("read objects: %s: %w: mend or remove the file", path, err)
		}
	}
	if bytes.HasPrefix(object, []byte("[")) { // an item with its "- "
		object = bytes.TrimSuffix(bytes.TrimPrefix(bytes.TrimSpace(object), []byte("[")), []byte("]"))
	}
	return d.Add(object, path)
}

// mayConcern spares the documents of a must-gather that surely hold nothing of interest, most of them pods, the
// parsing.
func mayConcern(document []byte) bool {
	for _, word := range []string{"openshift.io", "Node"} {
		if bytes.Contains(document, []byte(word)) {
			return true
		}
	}
	return false
}

// Add takes in an object, or a list of them, in JSON; file says where it comes from. Several may be added at once.
func (d *Dump) Add(raw []byte, file string) error {
	h, err := headerOf(raw)
	if err != nil || h.Kind == "" {
		return nil //nolint:nilerr // no object: notes and reports lie beside them
	}
	if h.Items != nil {
		for _, item := range h.Items {
			if err := d.Add(item, file); err != nil {
				return err
			}
		}
		return nil
	}
	gvk := schema.FromAPIVersionAndKind(h.APIVersion, h.Kind)
	if !d.scheme.Recognizes(gvk) {
		return nil
	}
	object, err := d.scheme.New(gvk)
	if err != nil {
		return fmt.Errorf("read objects: %s: %w", file, err)
	}
	of, isObject := object.(metav1.Object)
	if !isObject {
		return nil
	}
	if err = jsonv2.Unmarshal(raw, object, decoding); err != nil {
		of = nameOf(raw)
	}
	// A version that is no number is the oldest.
	version, _ := strconv.ParseInt(of.GetResourceVersion(), 10, 64)
	d.keep(gvk.GroupKind(), of.GetNamespace()+"/"+of.GetName(),
		dumped{object: object, err: err, file: file, version: version})
	return nil
}

// nameOf reads which object it is, whatever is wrong with the rest.
func nameOf(raw []byte) metav1.Object {
	var o struct {
		Metadata struct{ Name, Namespace, ResourceVersion string }
	}
	_ = jsonv2.Unmarshal(raw, &o, jsonv1.DefaultOptionsV1()) // reads on after what is of another kind
	return &metav1.ObjectMeta{Name: o.Metadata.Name, Namespace: o.Metadata.Namespace,
		ResourceVersion: o.Metadata.ResourceVersion}
}

// keep takes an object in unless it has a newer one of that name.
func (d *Dump) keep(of schema.GroupKind, key string, o dumped) {
	d.adding.Lock()
	defer d.adding.Unlock()
	kind := d.objects[of]
	if kind == nil {
		kind = map[string]dumped{}
		d.objects[of] = kind
	}
	if have, found := kind[key]; !found || have.version <= o.version {
		kind[key] = o
	}
}

// List fills the list with the dump's objects of its kind, by namespace and name. Options are not looked at: they could
// only narrow.
func (d *Dump) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	_, objects, err := d.of(list)
	if err != nil {
		return err
	}
	return meta.SetList(list, objects)
}

// of gives copies of the objects of a list's kind, by namespace and name, and says which ones go.
func (d *Dump) of(list client.ObjectList) (gone map[string]bool, objects []runtime.Object, err error) {
	gvk, err := apiutil.GVKForObject(list, d.scheme)
	if err != nil {
		return nil, nil, fmt.Errorf("read dump: %w", err)
	}
	gvk.Kind = gvk.Kind[:len(gvk.Kind)-len("List")]
	kind := d.objects[gvk.GroupKind()]
	for _, key := range slices.Sorted(maps.Keys(kind)) {
		object, err := d.asVersion(kind[key], gvk)
		if err != nil {
			return nil, nil, fmt.Errorf("read dump: %s: %s %s: %w", kind[key].file, gvk.Kind, key[1:], err)
		}
		objects = append(objects, object)
	}
	return d.removed[gvk.GroupKind()], objects, nil
}

// asVersion gives a copy of an object in a version of its API. The versions of the kinds that are read here have the
// same fields.
func (d *Dump) asVersion(have dumped, gvk schema.GroupVersionKind) (runtime.Object, error) {
	if have.err != nil {
		return nil, have.err
	}
	object, err := d.scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	if reflect.TypeOf(object) == reflect.TypeOf(have.object) {
		return have.object.DeepCopyObject(), nil
	}
	raw, err := json.Marshal(have.object)
	if err != nil {
		return nil, err
	}
	return object, json.Unmarshal(raw, object)
}
