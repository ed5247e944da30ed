package wanted

import (
	"encoding/json"
	"fmt"
	"math/bits"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"github.com/opencontainers/go-digest"
)

const (
	// maxReportBytes of an encoded report: it is an annotation of a node, of which all together have 256 KiB.
	maxReportBytes = 16 << 10
	// maxMissing is how many missing images a report names.
	maxMissing = 16
	// maxWhy bounds the text of a reason, in bytes, and maxLines how many lines it has: one for each registry that was
	// asked.
	maxWhy   = 600
	maxLines = 5
	// lineHead is how much of a long line's beginning stays, in bytes: whose it is.
	lineHead = 30
	// staleAfter is how old a report may be whose registry still works: it writes one each half minute.
	staleAfter = 5 * time.Minute
	// roundBytes keeps what a disk has free from changing the report all the time.
	roundBytes = 256 << 20
	// roomDigits is how many binary digits of RoomBytes count: it changes with each sixteenth to eighth of the room.
	roomDigits = 4
)

// Report is how far one registry is with a list.
type Report struct {
	// List is the Hash of the list, "" before the registry has one.
	List string `json:"list"`
	// Ready: every image of the list is here with all its blobs.
	Ready bool `json:"ready"`
	// Problem is why the registry cannot tell, or does not run; "" is none.
	Problem string `json:"problem,omitempty"`
	Wanted  int    `json:"wanted"`
	Held    int    `json:"held"`
	// Missing are the first of those that are not here, with the reason.
	Missing []Missing `json:"missing,omitempty"`
	// FreeBytes of the disk, and StoredBytes of images, rounded down to 256 MiB.
	FreeBytes   int64 `json:"freeBytes"`
	StoredBytes int64 `json:"storedBytes"`
	// RoomBytes is how much more the registry may store, of which it keeps the first four binary digits; nil where an
	// older registry does not say it.
	RoomBytes *int64 `json:"roomBytes,omitempty"`
	// Accounts is the AccountsHash of the controller's accounts that the registry accepts; "" where it has none.
	Accounts string `json:"accounts,omitempty"`
	// Shared is the hash of what all registries share (poolaccounts.Shared), which this one has from its node's agent and
	// works by; "" where it has it from a MachineConfig, or is older.
	Shared string `json:"shared,omitempty"`
}

// Missing is an image that a registry must hold and does not.
type Missing struct {
	Image string `json:"image"`
	Why   string `json:"why"`
}

// NewReport bounds what a report says.
func NewReport(l List, missing []Missing, free, stored int64) Report {
	all := len(l.Fetched())
	r := Report{List: l.Hash(), Ready: len(missing) == 0, Wanted: all, Held: all - len(missing),
		FreeBytes: free - free%roundBytes, StoredBytes: stored - stored%roundBytes}
	for _, m := range missing[:min(len(missing), maxMissing)] {
		m.Why = shorten(m.Why)
		r.Missing = append(r.Missing, m)
	}
	return r
}

// shorten bounds a reason. The ends of its lines stay: there is the cause, and what to do next.
func shorten(why string) string {
	lines := strings.Split(why, "\n")
	lines = lines[:min(len(lines), maxLines)]
	byLength := slices.Clone(lines)
	slices.SortFunc(byLength, func(a, b string) int { return len(a) - len(b) })
	left, share := maxWhy-len(lines), 0
	for i, l := range byLength { // what short lines leave is for the long ones
		if share = left / (len(byLength) - i); len(l) > share {
			break
		}
		left -= len(l)
	}
	const cut = "…"
	for i, l := range lines {
		if len(l) > share {
			lines[i] = l[:lineHead] + cut + l[len(l)-(share-lineHead-len(cut)):]
		}
	}
	return strings.ToValidUTF8(strings.Join(lines, "\n"), "")
}

// SetRoom notes how many more bytes the registry may store, rounded down so that the report rarely changes.
func (r *Report) SetRoom(n int64) {
	n &^= 1<<max(bits.Len64(uint64(n))-roomDigits, 0) - 1
	r.RoomBytes = &n
}

// Holds reports whether the registry has said that it has an image of the list.
func (r Report) Holds(l List, repository string, d digest.Digest) bool {
	if r.Problem != "" || r.List != l.Hash() || !l.Has(repository, d) {
		return false
	}
	if r.Ready {
		return true
	}
	if r.Wanted-r.Held > len(r.Missing) { // it may be one that is not named
		return false
	}
	name := Image{Repository: repository, Digest: d}.Name()
	for _, m := range r.Missing {
		if m.Image == name {
			return false
		}
	}
	return true
}

// Copies says which nodes hold an image of a list and which do not, by their reports; a node without one has an empty
// one. lacks says why a node does not, in words.
func Copies(l List, repository string, d digest.Digest, reports map[string]Report) (held []string,
	lacks map[string]string) {
	lacks = map[string]string{}
	for node, r := range reports {
		switch {
		case r.Holds(l, repository, d):
			held = append(held, node)
		default:
			lacks[node] = r.Behind(l)
			for _, m := range r.Missing {
				if r.List == l.Hash() && m.Image == (Image{Repository: repository, Digest: d}).Name() {
					lacks[node] = m.Why
				}
			}
		}
	}
	slices.Sort(held)
	return held, lacks
}

// Behind says, in words, why a registry may lack images of a list.
func (r Report) Behind(l List) string {
	switch {
	case r.Problem != "":
		return r.Problem
	case r.List == "":
		return "its registry has not reported yet: does dayone-registry run there?"
	case r.List != l.Hash():
		return "its registry has not seen the newest list yet"
	}
	return fmt.Sprintf("its registry lacks %d images", r.Wanted-r.Held)
}

// Reported reads a node's annotation. What cannot be read is a problem of the node; "" is an empty report.
func Reported(annotation string) Report {
	if annotation == "" {
		return Report{}
	}
	r, err := DecodeReport([]byte(annotation))
	if err != nil {
		return Report{Problem: err.Error()}
	}
	return r
}

// DecodeReport reads a report. It comes from a node, which may say anything.
func DecodeReport(raw []byte) (Report, error) {
	var r Report
	if len(raw) > maxReportBytes {
		return r, fmt.Errorf("read report of a registry: it has %d bytes, more than %d", len(raw), maxReportBytes)
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return Report{}, fmt.Errorf("read report of a registry: %w", err)
	}
	if r.RoomBytes != nil && *r.RoomBytes < 0 {
		return Report{}, fmt.Errorf("read report of a registry: it says %d bytes of room", *r.RoomBytes)
	}
	if r.Held < 0 || r.Wanted < r.Held || r.Ready && (r.Held != r.Wanted || len(r.Missing) > 0) {
		return Report{}, fmt.Errorf("read report of a registry: it says %d of %d held and ready %t", r.Held, r.Wanted,
			r.Ready)
	}
	return r, nil
}

// WriteReport keeps a report. The file's time says when the registry last wrote, also the same.
func WriteReport(path string, r Report) error {
	raw, err := json.Marshal(r)
	if err == nil {
		err = renameio.WriteFile(path, raw, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write report of the registry: %w", err)
	}
	return nil
}

// ReadReport reads what WriteReport kept. One that is older than staleAfter comes with a problem: nobody writes it any
// more. there is false where no registry has ever written one.
func ReadReport(path string, now time.Time) (r Report, there bool, err error) {
	fi, err := os.Stat(path)
	if os.IsNotExist(err) {
		return r, false, nil
	}
	var raw []byte
	if err == nil {
		raw, err = readBounded(path, maxReportBytes+1)
	}
	if err != nil {
		return r, false, fmt.Errorf("read report of the registry: %w", err)
	}
	if r, err = DecodeReport(raw); err != nil {
		return r, true, err
	}
	if age := now.Sub(fi.ModTime()); age.Abs() > staleAfter {
		r.Ready, r.Problem = false, "the registry has not reported since "+fi.ModTime().UTC().Format(time.RFC3339)+
			": see journalctl -u dayone-registry on the node"
	}
	return r, true, nil
}

// Encode writes the report for an annotation.
func (r Report) Encode() (string, error) {
	raw, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("encode report of a registry: %w", err)
	}
	return string(raw), nil
}
