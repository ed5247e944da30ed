package sbom

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
)

// Tags and types of an rpm header that a Package is made of. Source: rpm's format documentation, "Header".
const (
	tagName      = 1000
	tagVersion   = 1001
	tagRelease   = 1002
	tagEpoch     = 1003
	tagVendor    = 1011
	tagLicense   = 1014
	tagArch      = 1022
	tagSourceRPM = 1044

	typeInt32  = 4
	typeString = 6

	entrySize = 16
)

var errHeader = errors.New("its header is damaged")

// parseRPMHeader reads a header as the database has it: numbers of entries and of bytes, the entries (tag, type,
// offset, count; all big-endian), the bytes. It takes no number at its word: room is never made for what a header says
// that it has.
func parseRPMHeader(raw []byte) (Package, error) {
	if len(raw) < 8 {
		return Package{}, fmt.Errorf("%w: %d bytes", errHeader, len(raw))
	}
	entries, size := uint64(binary.BigEndian.Uint32(raw)), uint64(binary.BigEndian.Uint32(raw[4:]))
	if uint64(len(raw)) != 8+entries*entrySize+size {
		return Package{}, fmt.Errorf("%w: %d entries and %d bytes do not make its %d bytes", errHeader, entries, size,
			len(raw))
	}
	index, data := raw[8:8+entries*entrySize], raw[8+entries*entrySize:]
	p := Package{Type: "rpm"}
	var release, epoch string
	texts := map[uint32]*string{tagName: &p.Name, tagVersion: &p.Version, tagRelease: &release, tagVendor: &p.Supplier,
		tagLicense: &p.License, tagArch: &p.Arch, tagSourceRPM: &p.Source}
	for ; len(index) > 0; index = index[entrySize:] {
		tag, kind := binary.BigEndian.Uint32(index), binary.BigEndian.Uint32(index[4:])
		offset := binary.BigEndian.Uint32(index[8:])
		inside := true
		if to := texts[tag]; to != nil && kind == typeString {
			*to, inside = textAt(data, offset)
		} else if tag == tagEpoch && kind == typeInt32 {
			if inside = uint64(offset)+4 <= size; inside {
				epoch = strconv.FormatUint(uint64(binary.BigEndian.Uint32(data[offset:])), 10) + ":"
			}
		}
		if !inside {
			return p, fmt.Errorf("%w: tag %d leads outside", errHeader, tag)
		}
	}
	if p.Name == "" || p.Version == "" {
		return p, fmt.Errorf("%w: it has no name or no version", errHeader)
	}
	if release != "" {
		p.Version += "-" + release
	}
	p.Version = epoch + p.Version
	return p, nil
}

// textAt is the text that begins at offset and ends with a zero byte; ok is false if it leads outside.
func textAt(data []byte, offset uint32) (text string, ok bool) {
	if uint64(offset) >= uint64(len(data)) {
		return "", false
	}
	before, _, ok := bytes.Cut(data[offset:], []byte{0})
	return string(before), ok
}
