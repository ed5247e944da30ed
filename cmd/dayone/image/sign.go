package image

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/sign"
	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/cmd/internal/connect"
	"dayone.dev/dayone/registry/transfer"
)

// signed are the flags of commands on an image's signatures.
type signed struct {
	from       source
	repository string
}

func (s *signed) flags(cmd *cobra.Command) {
	s.from.registryFlags(cmd)
	cmd.Flags().StringVar(&s.repository, "repository", "", "the image's final repository, which its signatures name, "+
		"if this is a copy elsewhere")
}

// image names it by digest.
func (s *signed) image(cmd *cobra.Command, name string) (sign.Image, error) {
	name = strings.TrimPrefix(name, "docker://")
	e := s.from.endpoint
	e.Reference = name
	repository, _, ok := strings.Cut(name, "@")
	if !ok {
		d, err := transfer.Find(cmd.Context(), e)
		if err != nil {
			return sign.Image{}, err
		}
		if at := strings.LastIndex(name, ":"); at > strings.LastIndex(name, "/") {
			repository = name[:at]
		}
		e.Reference = repository + "@" + d.String()
	}
	if s.repository != "" {
		repository = s.repository
	}
	return sign.Image{Endpoint: e, Repository: repository}, nil
}

// signature is what dayone sign says.
type signature struct {
	// Image is the image by digest.
	Image string `json:"image"`
	// Repository is the one that the signature names.
	Repository string `json:"repository"`
	// Key is the public key's fingerprint.
	Key string `json:"key"`
	// Added is false when the image was signed already.
	Added bool `json:"added"`
}

// signingKey is what dayone keygen says.
type signingKey struct {
	// Directory has the key.
	Directory string `json:"directory"`
	// Key is the public key's fingerprint.
	Key string `json:"key"`
}

func newSignCommand() *cobra.Command {
	var s signed
	var key, passphrase string
	cmd := &cobra.Command{
		Use:   "sign IMAGE",
		Short: "Add a signature to an image that a registry has",
		Long: "IMAGE is HOST/REPOSITORY@DIGEST. No blob moves and the digest stays. The signatures that the image has " +
			"stay, too: so nodes can be given a new key while images are signed with the old and the new one.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !strings.Contains(args[0], "@") {
				return cli.Usagef("%s: name the image by digest (HOST/REPOSITORY@sha256:DIGEST): a tag may name another one "+
					"by then", args[0])
			}
			if key == "" || passphrase == "" {
				return cli.Usagef("give --key and --passphrase-file")
			}
			image, err := s.image(cmd, args[0])
			if err != nil {
				return err
			}
			k, err := sign.Load(key, passphrase)
			if err != nil {
				return err
			}
			added, err := k.Sign(cmd.Context(), image)
			if err != nil {
				return err
			}
			done := "signed"
			if !added {
				done = "was signed already"
			}
			out := signature{image.Endpoint.Reference, image.Repository, k.Public.Fingerprint(), added}
			return cli.PrintLine(cmd, "ImageSignature", out, "%s %s as %s with key %s", out.Image, done, out.Repository, out.Key)
		},
	}
	s.flags(cmd)
	cmd.Flags().StringVar(&key, "key", "", "the private key, encrypted as cosign does it (mode 0600)")
	cmd.Flags().StringVar(&passphrase, "passphrase-file", "", "a file with the key's passphrase (mode 0600)")
	return cmd
}

// verdict is what dayone verify says of one thing that was looked at.
type verdict struct {
	Check string `json:"check"`
	OK    bool   `json:"ok"`
	// Detail is what was found, or why it is not accepted.
	Detail string `json:"detail"`
}

// verification is the whole answer.
type verification struct {
	Image      string    `json:"image"`
	Repository string    `json:"repository"`
	OK         bool      `json:"ok"`
	Checks     []verdict `json:"checks"`
}

// verify checks the signatures by the keys, of which one is enough, and all of the provenance that is wanted.
func (s *signed) verify(cmd *cobra.Command, image sign.Image, named []namedKey, wanted origin) (verification, error) {
	out := verification{Image: image.Endpoint.Reference, Repository: image.Repository}
	keys := make([]sign.PublicKey, len(named))
	for i, n := range named {
		keys[i] = n.key
		v, err := signatureOf(cmd, image, n.from, n.key)
		if err != nil {
			return out, err
		}
		out.Checks, out.OK = append(out.Checks, v), out.OK || v.OK
	}
	found, err := wanted.compare(cmd, image, keys)
	for _, v := range found {
		out.Checks, out.OK = append(out.Checks, v), out.OK && v.OK
	}
	return out, err
}

func newVerifyCommand() *cobra.Command {
	var s signed
	var files []string
	var wanted origin
	var pool string
	var at connect.Flags
	cmd := &cobra.Command{
		Use:   "verify IMAGE",
		Short: "Tell whether an image is signed as nodes demand it, and made from what its pool wants",
		Long: "IMAGE is HOST/REPOSITORY[:TAG|@DIGEST]. One of the keys must have signed it. What its provenance\n" +
			"says must be what you want, if you say what that is, and what its labels say. With --pool the cluster " +
			"says\nit, and which keys count: those of its ClusterImagePolicies. The exit code is 0 if all is well and 1 if not.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			image, err := s.image(cmd, args[0])
			if err != nil {
				return err
			}
			keys, err := fromFiles(files)
			if err == nil && pool != "" {
				keys, wanted, err = fromCluster(cmd.Context(), at, pool, image.Repository, keys, wanted)
			}
			if err != nil {
				return err
			}
			if len(keys) == 0 {
				return cli.Usagef("give --key with a public key (cosign.pub), or --pool")
			}
			out, err := s.verify(cmd, image, keys, wanted)
			if err != nil {
				return err
			}
			if err := cli.PrintTable(cmd, "ImageVerification", out, out.print); err != nil || out.OK {
				return err
			}
			return cli.Answer(cli.ExitFailed)
		},
	}
	s.flags(cmd)
	flags := cmd.Flags()
	flags.StringArrayVar(&files, "key", nil, "a public key (PEM); may be repeated")
	flags.StringVar(&wanted.base, "base-digest", "", "the digest of the base image that the provenance must name")
	flags.StringVar(&wanted.config, "config-hash", "", "the content hash of the rendered config that it must name "+
		"(label "+build.LabelConfigHash+")")
	flags.StringVar(&pool, "pool", "", "the MachineConfigPool whose rendered config and build the image must be of")
	flags.StringVar(&at.Kubeconfig, "kubeconfig", "",
		"kubeconfig of the pool's cluster; default: KUBECONFIG or ~/.kube/config")
	flags.StringVar(&at.Context, "context", "", "context of the kubeconfig; default: its current one")
	flags.StringVar(&wanted.address, "address", "", "the content address that it must name (label "+build.LabelAddress+")")
	return cmd
}

// origin is what an image must be made from; an empty field is not asked for.
type origin struct{ base, config, address string }

// compare tells whether the provenance says what is wanted and what the image's own labels say. An image without
// provenance passes if nothing is wanted of it.
func (o origin) compare(cmd *cobra.Command, image sign.Image, keys []sign.PublicKey) ([]verdict, error) {
	p, err := sign.ReadProvenance(cmd.Context(), image, keys...)
	if errors.Is(err, transfer.ErrNotAllowed) {
		if o == (origin{}) {
			return []verdict{{Check: "provenance", OK: true, Detail: "not asked for, and none is signed with these keys"}}, nil
		}
		return []verdict{{Check: "provenance", Detail: err.Error()}}, nil
	}
	if err != nil {
		return nil, err
	}
	img, err := transfer.Inspect(cmd.Context(), image.Endpoint, "")
	if err != nil {
		return nil, err
	}
	said := p.BuildDefinition.ExternalParameters
	base, vouched := "", ""
	for _, d := range p.BuildDefinition.ResolvedDependencies {
		if d.Name == "base" {
			base, vouched = "sha256:"+d.Digest["sha256"], "no policy demanded a signature of the base"
			if by := d.Annotations[sign.AnnotationPolicy]; by != "" {
				vouched = "the base is signed as " + by + " demands"
			}
		}
	}
	out := []verdict{{Check: "provenance", OK: true, Detail: "built by " + p.RunDetails.Builder.ID + " on " +
		p.RunDetails.Metadata.FinishedOn.Format(time.DateTime) + " UTC; " + vouched}}
	for _, c := range []struct{ name, said, label, want string }{
		{"base", base, build.LabelBaseDigest, o.base},
		{"config", said.ConfigHash, build.LabelConfigHash, o.config},
		{"address", said.Address, build.LabelAddress, o.address},
	} {
		v := verdict{Check: c.name, OK: true, Detail: c.said}
		if label := img.Labels[c.label]; label != c.said {
			v.OK, v.Detail = false, c.said+", and the image's label says "+label
		}
		if c.want != "" && c.want != c.said {
			v.OK, v.Detail = false, c.said+", and wanted is "+c.want
		}
		out = append(out, v)
	}
	return out, nil
}

// signatureOf looks for a signature by one key.
func signatureOf(cmd *cobra.Command, image sign.Image, file string, key sign.PublicKey) (verdict, error) {
	v := verdict{Check: "signature " + filepath.Base(file)}
	err := sign.Verify(cmd.Context(), image, key)
	switch {
	case err == nil:
		v.OK, v.Detail = true, "key "+key.Fingerprint()
	case errors.Is(err, transfer.ErrNotAllowed):
		v.Detail = err.Error()
	default:
		return v, err
	}
	return v, nil
}

func (v verification) print(w io.Writer) {
	fmt.Fprintf(w, "%s as %s\n", v.Image, v.Repository)
	for _, c := range v.Checks {
		result := "ok"
		if !c.OK {
			result = "NO"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", c.Check, result, c.Detail)
	}
}

func newKeygenCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "keygen DIRECTORY",
		Short: "Make a key that signs images, with a passphrase of its own",
		Long: "It writes " + sign.KeyFile + " (encrypted as cosign does it) and " + sign.PassphraseFile +
			", both mode 0600, and " + sign.PublicFile + ".\nA key that is there stays.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			k, err := sign.LoadOrCreate(args[0])
			if err != nil {
				return err
			}
			out := signingKey{args[0], k.Public.Fingerprint()}
			return cli.PrintLine(cmd, "SigningKey", out, "%s: key %s", out.Directory, out.Key)
		},
	}
}
