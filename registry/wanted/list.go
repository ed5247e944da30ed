package wanted

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"github.com/opencontainers/go-digest"

	"dayone.dev/dayone/registry/route"
)

const (
	// Dir is where the agent and the registry of a node have these files: the list, which the agent writes, and the report
	// that the registry writes.
	Dir        = "/var/lib/dayone/replica"
	ListFile   = "list.json"
	ReportFile = "report.json"
	// AccountsFile has accounts beside those of the registry's own users file, in the same form: the controller's.
	AccountsFile = "accounts"
	// PeersFile has the addresses of the registries (registry/peers) beside the list, where it is published.
	PeersFile = "peers.json"

	// MaxBytes of an encoded list: what a ConfigMap takes (Kubernetes: 1 MiB), less room for its metadata.
	MaxBytes = 900 << 10
	// MaxImages of a list: a hundred pools with ten revisions each.
	MaxImages = 1000
	// maxAccountsBytes of AccountsFile: a thousand accounts, beside a full list in one ConfigMap.
	maxAccountsBytes = 100 << 10
	// maxBy is how many of those who want an image its entry names.
	maxBy = 8
)

// ErrNewer is of a list by which this version cannot work.
var ErrNewer = errors.New("it is of a newer version of dayone: bring dayone-registry of that version to the node")

// List is what the registries of a cluster must hold.
type List struct {
	// Version is 0. One that gives what is here another meaning raises it, and older registries keep the list before;
	// keys that say something new beside it do not.
	Version int `json:"version,omitempty"`
	// Issued is when it was made, by its maker's clock. A maker that works renews it, also when nothing else changes.
	Issued time.Time `json:"issued"`
	Images []Image   `json:"images"`
}

// Image is one image of a list.
type Image struct {
	// Repository has no host, Digest names the manifest or index.
	Repository string        `json:"repository"`
	Digest     digest.Digest `json:"digest"`
	// By is who runs it, shall run it or may return to it, in words: "node worker-3 (current)". A long list is cut.
	By []string `json:"by"`
	// OnlyKeep: it stays where it is and is not fetched: nobody but a node names it.
	OnlyKeep bool `json:"onlyKeep,omitempty"`
}

// Name is REPOSITORY@DIGEST.
func (i Image) Name() string { return i.Repository + "@" + string(i.Digest) }

// New makes a list of images in a fixed order. Who wants the same image is joined.
func New(issued time.Time, images []Image) List {
	byName := map[string]*Image{}
	for _, i := range images {
		have := byName[i.Name()]
		if have == nil {
			have = &Image{Repository: i.Repository, Digest: i.Digest, OnlyKeep: true}
			byName[i.Name()] = have
		}
		have.OnlyKeep = have.OnlyKeep && i.OnlyKeep
		have.By = append(have.By, i.By...)
	}
	l := List{Issued: issued.UTC().Truncate(time.Second), Images: []Image{}}
	for _, i := range byName {
		slices.Sort(i.By)
		if i.By = slices.Compact(i.By); len(i.By) > maxBy {
			i.By = append(i.By[:maxBy-1:maxBy-1], fmt.Sprintf("and %d more", len(i.By)-maxBy+1))
		}
		l.Images = append(l.Images, *i)
	}
	slices.SortFunc(l.Images, func(a, b Image) int { return cmp.Compare(a.Name(), b.Name()) })
	return l
}

// Hash is the same for lists of which the same images are to be fetched, whoever wants them and whenever they were
// made.
func (l List) Hash() string {
	names := make([]string, 0, len(l.Images))
	for _, i := range l.Fetched() {
		names = append(names, i.Name())
	}
	slices.Sort(names)
	sum := sha256.Sum256([]byte(strings.Join(names, "\n")))
	return hex.EncodeToString(sum[:16])
}

// Fetched are the images that every registry must have.
func (l List) Fetched() []Image {
	return slices.DeleteFunc(slices.Clone(l.Images), func(i Image) bool { return i.OnlyKeep })
}

// Has reports whether every registry must have an image.
func (l List) Has(repository string, d digest.Digest) bool {
	return slices.ContainsFunc(l.Fetched(), func(i Image) bool { return i.Repository == repository && i.Digest == d })
}

// Encode writes the list, and refuses one that Decode would refuse.
func (l List) Encode() ([]byte, error) {
	raw, err := json.Marshal(l)
	if err == nil {
		_, err = Decode(raw)
	}
	if err != nil {
		return nil, fmt.Errorf("encode list of wanted images: %w", err)
	}
	return raw, nil
}

// Decode reads a list. What is too long, or has a reference that is none, is refused as a whole: half a list would let
// images go. Keys that a later version adds are left alone, and a list of another meaning is ErrNewer.
func Decode(raw []byte) (List, error) {
	var l List
	if len(raw) > MaxBytes {
		return l, fmt.Errorf("read list of wanted images: it has %d bytes, more than %d", len(raw), MaxBytes)
	}
	in := json.NewDecoder(bytes.NewReader(raw))
	if err := in.Decode(&l); err != nil {
		return List{}, fmt.Errorf("read list of wanted images: %w", err)
	}
	if _, err := in.Token(); !errors.Is(err, io.EOF) {
		return List{}, errors.New("read list of wanted images: something follows it")
	}
	if l.Version != 0 {
		return List{}, fmt.Errorf("read list of wanted images: %w", ErrNewer)
	}
	if len(l.Images) > MaxImages {
		return List{}, fmt.Errorf("read list of wanted images: it has %d images, more than %d", len(l.Images), MaxImages)
	}
	for _, i := range l.Images {
		if err := i.Validate(); err != nil {
			return List{}, fmt.Errorf("read list of wanted images: %w", err)
		}
	}
	return l, nil
}

// Validate says what keeps a registry from having such an image.
func (i Image) Validate() error {
	if i.Digest.Validate() != nil || i.Digest.Algorithm() != digest.SHA256 {
		return fmt.Errorf("%q has no sha256 digest", i.Name())
	}
	if !route.ValidName(i.Repository) {
		return fmt.Errorf("%q is no name of a repository", i.Repository)
	}
	return nil
}

// ReadFile reads a list that WriteFile or an administrator has written.
func ReadFile(path string) (List, error) {
	raw, err := readBounded(path, MaxBytes+1)
	if err != nil {
		return List{}, fmt.Errorf("read list of wanted images: %w", err)
	}
	return Decode(raw)
}

// WriteFile keeps an encoded list, whole or not at all, mode 0600. It leaves a file with the same content as it is: the
// file's time is when the list last changed. It reports whether it wrote.
func WriteFile(path string, raw []byte) (bool, error) {
	if _, err := Decode(raw); err != nil {
		return false, err
	}
	if have, err := readBounded(path, MaxBytes+1); err == nil && bytes.Equal(have, raw) {
		return false, nil
	}
	if err := renameio.WriteFile(path, raw, 0o600); err != nil {
		return false, fmt.Errorf("write list of wanted images: %w", err)
	}
	return true, nil
}

// WriteAccounts keeps the content of AccountsFile, whole or not at all, mode 0600.
func WriteAccounts(path, content string) error {
	if len(content) > maxAccountsBytes {
		return fmt.Errorf("write registry accounts: %d bytes are more than %d", len(content), maxAccountsBytes)
	}
	if have, err := os.ReadFile(path); err == nil && string(have) == content {
		return nil
	}
	if err := renameio.WriteFile(path, []byte(content), 0o600); err != nil {
		return fmt.Errorf("write registry accounts: %w", err)
	}
	return nil
}

// AccountsHash tells one content of AccountsFile from another; without content it is "".
func AccountsHash(content []byte) string {
	if len(content) == 0 {
		return ""
	}
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:16])
}

func readBounded(path string, most int64) (raw []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return io.ReadAll(io.LimitReader(f, most))
}
