package image

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"dayone.dev/dayone/build/sign"
	"dayone.dev/dayone/cmd/internal/cli"
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

func newSignCommand() *cobra.Command {
	var s signed
	var key, passphrase string
	cmd := &cobra.Command{
		Use:   "sign IMAGE",
		Short: "Add a signature to an image that a registry has",
		Long: "IMAGE is HOST/REPOSITORY@DIGEST. No blob moves and the digest stays. The signatures that the image has stay, " +
			"too:\nso nodes can be given a new key while images are signed with the old and the new one.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !strings.Contains(args[0], "@") {
				return cli.Usagef("%s: name the image by digest (HOST/REPOSITORY@sha256:…): a tag may name another one by then",
					args[0])
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
			return cli.PrintLine(cmd, map[string]any{"image": image.Endpoint.Reference, "repository": image.Repository,
				"key": k.Public.Fingerprint(), "added": added}, "%s %s as %s with key %s", image.Endpoint.Reference, done,
				image.Repository, k.Public.Fingerprint())
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

func newVerifyCommand() *cobra.Command {
	var s signed
	var files []string
	cmd := &cobra.Command{
		Use:   "verify IMAGE",
		Short: "Tell whether an image is signed as nodes demand it",
		Long: "IMAGE is HOST/REPOSITORY[:TAG|@DIGEST]. One of the keys must have signed it. The exit code is 0 if all is " +
			"well\nand 1 if not.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(files) == 0 {
				return cli.Usagef("give --key with a public key (cosign.pub)")
			}
			keys := make([]sign.PublicKey, len(files))
			for i, file := range files {
				var err error
				if keys[i], err = sign.ReadPublicKey(file); err != nil {
					return err
				}
			}
			image, err := s.image(cmd, args[0])
			if err != nil {
				return err
			}
			out := verification{Image: image.Endpoint.Reference, Repository: image.Repository}
			for i, key := range keys {
				v, err := signatureOf(cmd, image, files[i], key)
				if err != nil {
					return err
				}
				out.Checks, out.OK = append(out.Checks, v), out.OK || v.OK
			}
			if err := cli.PrintTable(cmd, out, out.print); err != nil || out.OK {
				return err
			}
			return cli.Answer(cli.ExitFailed)
		},
	}
	s.flags(cmd)
	cmd.Flags().StringArrayVar(&files, "key", nil, "a public key (PEM); may be repeated")
	return cmd
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
		Long: "It writes " + sign.KeyFile + " (encrypted as cosign does it) and " + sign.PassphraseFile + ", both mode 0600, " +
			"and " + sign.PublicFile + ".\nA key that is there stays.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			k, err := sign.LoadOrCreate(args[0])
			if err != nil {
				return err
			}
			return cli.PrintLine(cmd, map[string]string{"directory": args[0], "key": k.Public.Fingerprint()}, "%s: key %s",
				args[0], k.Public.Fingerprint())
		},
	}
}
