package ostreerepo

import (
	"encoding/binary"
	"errors"
)

// The few forms of GVariant that ostree's objects have. Source: "GVariant Specification", serialised form; numbers
// within ostree's own data are big endian, framing offsets are little endian.

var errForm = errors.New("not in GVariant's normal form")

// offsetWidth is the number of bytes of a framing offset in a container of size bytes.
func offsetWidth(size int) int {
	switch {
	case size <= 0xff:
		return 1
	case size <= 0xffff:
		return 2
	default:
		return 4
	}
}

// appendOffsets ends a container with the ends of its members.
func appendOffsets(body []byte, ends []int) []byte {
	if len(ends) == 0 {
		return body
	}
	width := offsetWidth(len(body) + len(ends))
	for offsetWidth(len(body)+len(ends)*width) > width {
		width *= 2
	}
	for _, end := range ends {
		var b [4]byte
		binary.LittleEndian.PutUint32(b[:], uint32(end))
		body = append(body, b[:width]...)
	}
	return body
}

func pad(b []byte, align int) []byte {
	for len(b)%align != 0 {
		b = append(b, 0)
	}
	return b
}

// member is one value in a tuple.
type member struct {
	data  []byte
	align int // 0 counts as 1
	fixed bool
}

func tuple(members ...member) []byte {
	var body []byte
	var ends []int
	for i, m := range members {
		body = append(pad(body, max(1, m.align)), m.data...)
		if !m.fixed && i < len(members)-1 {
			ends = append([]int{len(body)}, ends...) // a tuple's offsets are in reverse order
		}
	}
	return appendOffsets(body, ends)
}

func array(align int, elements ...[]byte) []byte {
	var body []byte
	ends := make([]int, 0, len(elements))
	for _, e := range elements {
		body = append(pad(body, align), e...)
		ends = append(ends, len(body))
	}
	return appendOffsets(body, ends)
}

func text(s string) []byte { return append([]byte(s), 0) }

// offset reads the framing offset that is n-th from the end, counted from 1, and checks that it lies within the
// container.
func offset(b []byte, n int) (int, error) {
	width := offsetWidth(len(b))
	at := len(b) - n*width
	if at < 0 {
		return 0, errForm
	}
	var raw [4]byte
	copy(raw[:], b[at:at+width])
	v := int(binary.LittleEndian.Uint32(raw[:]))
	if v > at {
		return 0, errForm
	}
	return v, nil
}

// split gives the elements of an array whose elements have framing offsets.
func split(b []byte, align int) ([][]byte, error) {
	if len(b) == 0 {
		return nil, nil
	}
	table, err := offset(b, 1)
	if err != nil {
		return nil, err
	}
	width := offsetWidth(len(b))
	n := (len(b) - table) / width
	if n*width != len(b)-table {
		return nil, errForm
	}
	elements := make([][]byte, 0, n)
	start := 0
	for i := n; i >= 1; i-- {
		end, err := offset(b, i)
		if err != nil {
			return nil, err
		}
		start = (start + align - 1) / align * align
		if end < start || end > table {
			return nil, errForm
		}
		elements = append(elements, b[start:end])
		start = end
	}
	return elements, nil
}

// fields cuts a tuple of variable-sized members of alignment 1, of which all but the last have offsets.
func fields(b []byte, count int) ([][]byte, error) {
	last := len(b) - (count-1)*offsetWidth(len(b))
	if last < 0 {
		return nil, errForm
	}
	parts := make([][]byte, 0, count)
	start := 0
	for i := 1; i < count; i++ {
		end, err := offset(b, i)
		if err != nil {
			return nil, err
		}
		if end < start || end > last {
			return nil, errForm
		}
		parts = append(parts, b[start:end])
		start = end
	}
	return append(parts, b[start:last]), nil
}

// unterminated takes the zero byte off a string.
func unterminated(b []byte) (string, error) {
	if len(b) == 0 || b[len(b)-1] != 0 {
		return "", errForm
	}
	return string(b[:len(b)-1]), nil
}
