package snapshot

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
	"golang.org/x/sync/errgroup"
)

// beginsJSON tells whether the first character that is no space begins a JSON object. It does not consume it.
func beginsJSON(r *bufio.Reader) (bool, error) {
	for {
		c, _, err := r.ReadRune()
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if !unicode.IsSpace(c) {
			return c == '{', r.UnreadRune()
		}
	}
}

// readJSON takes in objects that follow each other, and the items of lists one by one, as many at a time as there are
// processors: a list of all nodes is never in memory as a whole. What is no JSON is passed over, unless it began as a
// list: then it is cut short.
func (d *Dump) readJSON(r io.Reader, file string) error {
	adds := &errgroup.Group{}
	adds.SetLimit(runtime.GOMAXPROCS(0))
	err := d.readObjects(jsontext.NewDecoder(r, jsonv1.DefaultOptionsV1()), file, adds)
	return errors.Join(err, adds.Wait())
}

func (d *Dump) readObjects(in *jsontext.Decoder, file string, adds *errgroup.Group) error {
	for {
		token, err := in.ReadToken()
		if err != nil || token.Kind() != '{' {
			return nil //nolint:nilerr // no object: notes and reports lie beside them
		}
		if again, err := d.readObject(in, file, adds); err != nil || !again {
			return err
		}
	}
}

// readObject reads what follows the opening brace of an object; again is false where nothing after it can be read.
func (d *Dump) readObject(in *jsontext.Decoder, file string, adds *errgroup.Group) (again bool, err error) {
	fields, list := map[string]json.RawMessage{}, false
	for in.PeekKind() != '}' {
		token, err := in.ReadToken()
		if err != nil {
			return false, cutShort(list, file, err)
		}
		key := token.String()
		if key == "items" {
			if list, err = d.readItems(in, file, adds); err != nil || !list {
				return false, err
			}
			continue
		}
		value, err := in.ReadValue()
		if err != nil {
			return false, cutShort(list, file, err)
		}
		fields[key] = json.RawMessage(value.Clone())
	}
	if _, err := in.ReadToken(); err != nil {
		return false, cutShort(list, file, err)
	}
	if list {
		return true, nil
	}
	object, err := json.Marshal(fields)
	if err != nil {
		return false, fmt.Errorf("read objects: %s: %w", file, err)
	}
	return true, d.Add(object, file)
}

// readItems reads the items of a list; list is false when they are none.
func (d *Dump) readItems(in *jsontext.Decoder, file string, adds *errgroup.Group) (list bool, err error) {
	if token, err := in.ReadToken(); err != nil || token.Kind() != '[' {
		return false, nil //nolint:nilerr // no list
	}
	var free sync.Pool // *[]byte
	for in.PeekKind() != ']' {
		value, err := in.ReadValue()
		if err != nil {
			return false, cutShort(true, file, err)
		}
		if !mayConcern(value) {
			continue
		}
		item, ok := free.Get().(*[]byte)
		if !ok {
			item = new([]byte)
		}
		*item = append((*item)[:0], value...) // the decoder reads the next one into its place
		adds.Go(func() error {
			defer free.Put(item)
			return d.Add(*item, file)
		})
	}
	if _, err := in.ReadToken(); err != nil {
		return false, cutShort(true, file, err)
	}
	return true, nil
}

// cutShort is the error of a list that does not end; other files that are no JSON are none of the objects.
func cutShort(list bool, file string, err error) error {
	if !list {
		return nil
	}
	return fmt.Errorf("read objects: %s is damaged or cut short: %w: write it again", file, err)
}

// cutList cuts a YAML list into its items, as kubectl get -o yaml writes one, because the library takes many times the
// memory of a list that it reads as a whole. ok is false for every other document. An item begins with its "- ".
func cutList(document []byte) (items [][]byte, ok bool) {
	const head = "\nitems:\n- "
	at := bytes.Index(document, []byte(head))
	if at < 0 || bytes.Count(document[:at], []byte("\n")) > 1 || !bytes.HasPrefix(document, []byte("apiVersion: ")) ||
		bytes.Contains(document, []byte("\n---")) {
		return nil, false
	}
	rest := document[at+len(head)-len("- "):]
	for bytes.HasPrefix(rest, []byte("- ")) {
		end := 0
		for {
			next := bytes.IndexByte(rest[end:], '\n')
			if next < 0 {
				return nil, false // nothing says that the list is whole
			}
			end += next + 1
			if !bytes.HasPrefix(rest[end:], []byte("  ")) && !bytes.HasPrefix(rest[end:], []byte("\n")) {
				break
			}
		}
		items, rest = append(items, rest[:end]), rest[end:]
	}
	return items, bytes.HasPrefix(rest, []byte("kind: List\n"))
}
