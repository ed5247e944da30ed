package machineconfig

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	ign35 "github.com/coreos/ignition/v2/config/v3_5/types"
)

// Encode writes a config as JSON without anything empty: no null, no empty object, no empty list. That is the form in
// which MCO keeps configs in MachineConfigs, and the rendered name depends on it. size is the expected length in bytes,
// 0 if unknown.
func Encode(c ign35.Config, size int) ([]byte, error) { return encode(c, size) }

// EncodeAny is Encode for a config of any 3.x version.
func EncodeAny(config any) ([]byte, error) { return encode(config, 0) }

func encode(config any, size int) ([]byte, error) {
	var b bytes.Buffer
	b.Grow(size + size/8)
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	w := encoder{b: &b, json: e}
	if err := w.value(reflect.ValueOf(config)); err != nil {
		return nil, fmt.Errorf("write Ignition config: %w", err)
	}
	return b.Bytes(), nil
}

type encoder struct {
	b    *bytes.Buffer
	json *json.Encoder
}

func (e *encoder) value(v reflect.Value) error {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			e.b.WriteString("null")
			return nil
		}
		return e.value(v.Elem())
	case reflect.Struct:
		e.b.WriteByte('{')
		if _, err := e.fields(v, true); err != nil {
			return err
		}
		e.b.WriteByte('}')
		return nil
	case reflect.Slice:
		e.b.WriteByte('[')
		for i := range v.Len() {
			if i > 0 {
				e.b.WriteByte(',')
			}
			if err := e.value(v.Index(i)); err != nil {
				return err
			}
		}
		e.b.WriteByte(']')
		return nil
	default:
		if err := e.json.Encode(v.Interface()); err != nil {
			return err
		}
		e.b.Truncate(e.b.Len() - 1) // the encoder's line feed
		return nil
	}
}

// fields writes the members of a struct, those of embedded structs among them; first says whether none was written
// before.
func (e *encoder) fields(v reflect.Value, first bool) (bool, error) {
	for i := range v.NumField() {
		field, value := v.Type().Field(i), v.Field(i)
		if field.Anonymous {
			var err error
			if first, err = e.fields(value, first); err != nil {
				return first, err
			}
			continue
		}
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "-" || strings.Contains(options, "omitempty") && empty(value) {
			continue
		}
		if !first {
			e.b.WriteByte(',')
		}
		first = false
		fmt.Fprintf(e.b, "%q:", name)
		if err := e.value(value); err != nil {
			return first, err
		}
	}
	return first, nil
}

// empty says whether nothing would be written for v: structs count as empty when all their members are.
func empty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i)
			if !field.Anonymous && !strings.Contains(field.Tag.Get("json"), "omitempty") && !v.Field(i).IsZero() {
				return false
			}
			if !empty(v.Field(i)) {
				return false
			}
		}
		return true
	case reflect.Slice, reflect.Map:
		return v.Len() == 0
	case reflect.Pointer:
		return v.IsNil()
	default:
		return v.IsZero()
	}
}
