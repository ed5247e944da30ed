package pull

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containers/image/v5/docker"
	"github.com/containers/image/v5/docker/reference"
	"github.com/containers/image/v5/image"
	"github.com/containers/image/v5/manifest"
	"github.com/containers/image/v5/signature"
	"github.com/containers/image/v5/types"
	"github.com/opencontainers/go-digest"

	"dayone.dev/dayone/rebase/deploy"
	"dayone.dev/dayone/rebase/nodedisk"
	"dayone.dev/dayone/registry/imagepolicy"
)

// Files that decide whose images a node takes, below its root. Sources: containers-policy.json(5),
// containers-registries.d(5).
const (
	// PolicyPath is the node's own policy, which podman, CRI-O and skopeo follow, too.
	PolicyPath = "/etc/containers/policy.json"
	// ServedPolicyPath is what signaturePolicyFile in install-config.yaml names, for the node's own images alone.
	ServedPolicyPath = "/etc/dayone/policy.json"
	registriesDir    = "/etc/containers/registries.d"
	// VerifiedPath remembers which images satisfied which requirements.
	VerifiedPath = "/var/lib/dayone/verified.json"
)

const (
	// maxSignatures bounds the signatures that one image may have: the client takes up to 4 MiB for each, whatever the
	// registry said of their sizes.
	maxSignatures = 32
	// maxSignature bounds each, in bytes: a payload names an image and a digest, and takes about 300.
	maxSignature = 64 << 10
	// maxVerified bounds what is remembered: the booted image, the one before, the next and one prefetched.
	maxVerified = 8
)

// Policies lists the policies that a node's image must satisfy, as far as they are there: the node's own one, the one
// that was served on Day 1, and more.
func Policies(root string, more ...string) (out []string) {
	for _, name := range append([]string{PolicyPath, ServedPolicyPath}, more...) {
		file := filepath.Join(root, name)
		if _, err := os.Lstat(file); err == nil || !errors.Is(err, fs.ErrNotExist) || slices.Contains(more, name) {
			out = append(out, file)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Verify refuses an image that a policy of the node at root does not allow under its own name, whatever the deployer
// and wherever the image's bytes come from. A registry is asked only where a signature is required and this image has
// not satisfied the same requirement before: what was prefetched can be staged without its registry. Errors are Faults.
func Verify(ctx context.Context, root string, i deploy.Image) error {
	o := Options{Root: root, Policies: Policies(root), AllowUnbootable: true}
	required, err := requirements(o.Policies, i.String())
	if err != nil || len(required) == 0 {
		return err
	}
	mark, known := required.mark(), readVerified(root)
	if mark != "" && slices.Contains(known, verified{i.String(), mark}) {
		return nil
	}
	if _, err := Inspect(ctx, i.String(), o); err != nil || mark == "" {
		return err
	}
	return writeVerified(root, append(known, verified{i.String(), mark}))
}

// Attachments is a file of registries.d: signatures of images that come through these registries, HOST:PORT, are beside
// the images. Signatures of a mirror's copies are not found without it.
func Attachments(hosts ...string) []byte {
	out := []byte("# Written by dayone.\ndocker:\n")
	for _, h := range hosts {
		out = fmt.Appendf(out, "  %q:\n    use-sigstore-attachments: true\n", h)
	}
	return out
}

// required is what a policy asks of one image.
type required struct {
	file string
	reqs signature.PolicyRequirements
}

type requiredAll []required

// requirements are those of the policies for the image name, without policies that take anything. One that takes
// nothing is refused here.
func requirements(policies []string, name string) (out requiredAll, err error) {
	for _, file := range policies {
		policy, err := signature.NewPolicyFromFile(file)
		if err != nil {
			return nil, unsigned(deploy.ClassConfig, name, err,
				"repair "+file+" (containers-policy.json(5)): nothing can be pulled on this node meanwhile")
		}
		logical, err := logicalReference(name)
		if err != nil {
			return nil, unsigned(deploy.ClassConfig, name, err, "")
		}
		scope, reqs := imagepolicy.For(policy, logical)
		switch {
		case imagepolicy.Contains(reqs, signature.NewPRReject()):
			return nil, unsigned(deploy.ClassUnsigned, name, fmt.Errorf("%s rejects it by its %s", file, scope),
				fmt.Sprintf("add the scope %s with the key of its signatures to the policy, as a ClusterImagePolicy does",
					reference.TrimNamed(logical.DockerReference())))
		case imagepolicy.Anything(reqs):
			continue
		}
		out = append(out, required{file, reqs})
	}
	return out, nil
}

// mark tells requirements from others; empty: they depend on other files, so that they cannot be told.
func (r requiredAll) mark() string {
	hash := digest.SHA256.Digester()
	for _, one := range r {
		raw := imagepolicy.Text(one.reqs)
		if raw == nil {
			return ""
		}
		_, _ = hash.Hash().Write(raw) // never fails, see its documentation
	}
	return hash.Digest().String()
}

// check asks the requirements about a copy of the image under its own name: what a mirror holds must be signed as the
// final registry's would be.
func (r requiredAll) check(ctx context.Context, name string, c candidate, src types.ImageSource) error {
	logical, err := logicalReference(name)
	if err != nil {
		return err
	}
	found, err := c.countSignatures(ctx)
	if err != nil {
		return unsigned(deploy.ClassUnsigned, name, err, "remove the signatures that are none from the registry")
	}
	unparsed := image.UnparsedInstanceWithReference(image.UnparsedInstance(src, nil), logical)
	for _, one := range r {
		err := allows(ctx, one.reqs, unparsed)
		switch {
		case err == nil:
		case errors.Is(err, fs.ErrNotExist):
			return unsigned(deploy.ClassConfig, name, err, "bring the key that "+one.file+" names, or repair the policy")
		case isNetwork(err) || httpStatus(err) != 0:
			return classify("read signatures of "+name, err)
		default:
			next := "sign the image with a key of the policy (dayone sign), or add its key to the policy (ClusterImagePolicy)"
			if found > 0 && strings.Contains(err.Error(), "no signature exists") {
				next = fmt.Sprintf("set use-sigstore-attachments for %s in %s: there are signatures that nothing reads",
					reference.Domain(c.ref.DockerReference()), registriesDir)
			}
			return unsigned(deploy.ClassUnsigned, name, fmt.Errorf("%s does not allow it from %s: %w", one.file,
				reference.Domain(c.ref.DockerReference()), err), next)
		}
	}
	return nil
}

func allows(ctx context.Context, reqs signature.PolicyRequirements, i types.UnparsedImage) (err error) {
	judge, err := signature.NewPolicyContext(&signature.Policy{Default: reqs})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, judge.Destroy()) }()
	allowed, err := judge.IsRunningImageAllowed(ctx, i)
	if err == nil && !allowed {
		err = errors.New("the policy does not allow it")
	}
	return err
}

// countSignatures counts the signatures beside the image, and refuses more and larger ones than any image has before
// they are read.
func (c candidate) countSignatures(ctx context.Context) (n int, err error) {
	tag, err := reference.WithTag(reference.TrimNamed(c.ref.DockerReference()),
		strings.Replace(c.digest.String(), ":", "-", 1)+".sig")
	if err != nil {
		return 0, err
	}
	ref, err := docker.NewReference(tag)
	if err != nil {
		return 0, err
	}
	src, err := ref.NewImageSource(ctx, c.sys)
	if err != nil {
		return 0, nil //nolint:nilerr // there are none, or the policy's own look says why they cannot be had
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	raw, _, err := src.GetManifest(ctx, nil)
	if err != nil {
		return 0, nil //nolint:nilerr // as above
	}
	m, err := manifest.OCI1FromManifest(raw)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", tag, err)
	}
	for _, l := range m.Layers {
		if l.Size > maxSignature {
			return 0, fmt.Errorf("%s has a signature of %d bytes; %d is the limit", tag, l.Size, maxSignature)
		}
	}
	if len(m.Layers) > maxSignatures {
		return 0, fmt.Errorf("%s has %d signatures; %d is the limit", tag, len(m.Layers), maxSignatures)
	}
	return len(m.Layers), nil
}

func unsigned(class deploy.Class, name string, err error, next string) error {
	return &deploy.Fault{Class: class, Op: "check signatures of " + name, Err: err, Next: next}
}

func logicalReference(name string) (types.ImageReference, error) {
	i, err := deploy.ParseImage(name)
	if err != nil {
		return nil, err
	}
	named, err := reference.ParseNamed(i.String())
	if err != nil {
		return nil, fmt.Errorf("read image reference %q: %w", name, err)
	}
	return docker.NewReference(named)
}

// verified is an image that satisfied requirements.
type verified struct {
	Image        string `json:"image"`
	Requirements string `json:"requirements"`
}

// readVerified gives what is remembered; a file that cannot be read remembers nothing.
func readVerified(root string) (out []verified) {
	raw, err := os.ReadFile(filepath.Join(root, VerifiedPath))
	if err != nil || json.Unmarshal(raw, &out) != nil {
		return nil
	}
	return out
}

func writeVerified(root string, all []verified) error {
	raw, err := json.Marshal(all[max(0, len(all)-maxVerified):])
	if err == nil {
		err = nodedisk.WriteFile(filepath.Join(root, VerifiedPath), raw, 0o600)
	}
	if err != nil {
		return unsigned(deploy.ClassInternal, all[len(all)-1].Image, err, "look at "+VerifiedPath)
	}
	return nil
}
