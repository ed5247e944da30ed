package releasecontroller

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/render"
)

const (
	// keySize is AES-256's, in bytes.
	keySize = 32
	// maxSealed bounds the sealed result in its log, in bytes: kubelets keep 10 MiB of a container's log before they begin
	// another file (containerLogMaxSize).
	maxSealed = 8 << 20
	// maxPlain bounds the result once it is unpacked, in bytes.
	maxPlain = 64 << 20
	// lineBytes is how much a line of the log holds before it is encoded; runtimes split lines of more than 16 KiB.
	lineBytes = 3 << 10
	// The first and the last line of a whole result.
	firstLine = "dayone release result 1"
	lastLine  = "end"
)

// result is what MCO's program has made.
type result struct {
	// Raw is the version of the program (generated-by-version).
	Raw string `json:"raw"`
	// OS and Extensions are the base images that the program's ControllerConfig names: the default stream's.
	OS         string `json:"os"`
	Extensions string `json:"extensions"`
	// Configs holds for each role all that the program makes for it, as one MachineConfig.
	Configs map[string]*mcfgv1.MachineConfig `json:"configs"`
}

// hash is the version that the program's MachineConfigs bear.
func (r *result) hash() string {
	for _, m := range r.Configs {
		return m.Annotations[manifests.AnnotationGeneratedByController]
	}
	return ""
}

// Send reads what the Job's program has left in a directory, seals it with a key of keySize bytes and writes it in
// lines of text. The result holds the cluster's pull secret, and logs are read by many: who has not the key reads
// nothing.
func Send(dir string, key []byte, to io.Writer) error {
	r, err := readResult(dir)
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	if err := errors.Join(json.NewEncoder(zip).Encode(r), zip.Close()); err != nil {
		return fmt.Errorf("pack result: %w", err)
	}
	lock, err := aead(key)
	if err != nil {
		return err
	}
	nonce := make([]byte, lock.NonceSize())
	if _, err := rand.Read(nonce); err != nil {
		return fmt.Errorf("make nonce: %w", err)
	}
	sealed := lock.Seal(nonce, nonce, packed.Bytes(), []byte(firstLine))
	if n := base64.StdEncoding.EncodedLen(len(sealed)); n > maxSealed {
		return fmt.Errorf("the result has %d bytes, more than %d fit into a log: are there hundreds of pools?", n, maxSealed)
	}
	out := bufio.NewWriter(to)
	fmt.Fprintln(out, firstLine)
	for len(sealed) > 0 {
		n := min(len(sealed), lineBytes)
		fmt.Fprintln(out, base64.StdEncoding.EncodeToString(sealed[:n]))
		sealed = sealed[n:]
	}
	fmt.Fprintln(out, lastLine)
	return out.Flush()
}

// open reads what Send wrote.
func open(log io.Reader, key []byte) (*result, error) {
	lines := bufio.NewScanner(io.LimitReader(log, maxSealed+maxSealed/64))
	if !lines.Scan() || lines.Text() != firstLine {
		return nil, errors.New("the log of its container does not begin with a result")
	}
	var sealed []byte
	whole := false
	for lines.Scan() {
		if lines.Text() == lastLine {
			whole = true
			break
		}
		raw, err := base64.StdEncoding.DecodeString(lines.Text())
		if err != nil {
			return nil, fmt.Errorf("decode result: %w", err)
		}
		sealed = append(sealed, raw...)
	}
	if !whole {
		return nil, errors.Join(fmt.Errorf("the result has no end within %d bytes", maxSealed), lines.Err())
	}
	lock, err := aead(key)
	if err != nil {
		return nil, err
	}
	if len(sealed) < lock.NonceSize() {
		return nil, errors.New("the result is empty")
	}
	packed, err := lock.Open(nil, sealed[:lock.NonceSize()], sealed[lock.NonceSize():], []byte(firstLine))
	if err != nil {
		return nil, fmt.Errorf("unseal result: %w", err)
	}
	unzip, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("unpack result: %w", err)
	}
	raw, err := io.ReadAll(io.LimitReader(unzip, maxPlain+1))
	if err != nil || len(raw) > maxPlain {
		return nil, errors.Join(fmt.Errorf("unpack result: more than %d bytes, or damaged", maxPlain), err)
	}
	r := &result{}
	if err := json.Unmarshal(raw, r); err != nil {
		return nil, fmt.Errorf("read result: %w", err)
	}
	return r, r.check()
}

func aead(key []byte) (cipher.AEAD, error) {
	if len(key) != keySize {
		return nil, fmt.Errorf("the key has %d bytes, not %d", len(key), keySize)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("use key: %w", err)
	}
	return cipher.NewGCM(block)
}

// check refuses a result that lacks something. A key of its own is made for each state, so it is of no other one.
func (r *result) check() error {
	if r.Raw == "" || r.OS == "" {
		return errors.New("the result names no version or no OS image")
	}
	for _, role := range []string{"master", "worker"} {
		if r.Configs[role] == nil {
			return fmt.Errorf("the result has nothing for the role %s", role)
		}
	}
	for role, m := range r.Configs {
		if m == nil || m.Annotations[manifests.AnnotationGeneratedByController] != r.hash() || r.hash() == "" {
			return fmt.Errorf("the result for the role %s does not say which version made it, or not the same as another's",
				role)
		}
	}
	return nil
}

// readResult reads MCO's layout below dir.
func readResult(dir string) (*result, error) {
	raw, err := os.ReadFile(filepath.Join(dir, "raw"))
	if err != nil {
		return nil, fmt.Errorf("read version: %w", err)
	}
	r := &result{Raw: strings.TrimSpace(string(raw)), Configs: map[string]*mcfgv1.MachineConfig{}}
	set := &manifests.Set{}
	for _, folder := range []string{render.PoolsDir, render.ConfigsDir, render.ControllerDir} {
		part, err := manifests.ReadDir(filepath.Join(dir, "out", folder), manifests.ReadOptions{})
		if err != nil {
			return nil, fmt.Errorf("read result: %w", err)
		}
		set.Append(part)
	}
	for _, c := range set.ControllerConfigs {
		r.OS, r.Extensions = c.Object.Spec.BaseOSContainerImage, c.Object.Spec.BaseOSExtensionsContainerImage
	}
	configs := map[string]*mcfgv1.MachineConfig{}
	for _, c := range set.MachineConfigs {
		configs[c.Object.Name] = c.Object
	}
	for _, p := range set.Pools {
		m := configs[p.Object.Spec.Configuration.Name]
		if m == nil {
			return nil, fmt.Errorf("pool %s names %q, which is not there", p.Object.Name, p.Object.Spec.Configuration.Name)
		}
		r.Configs[p.Object.Name] = m
	}
	return r, r.check()
}
