package image

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/sbom"
	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/registry/transfer"
)

// Commands are those about one or two images.
func Commands(version string) []*cobra.Command {
	return []*cobra.Command{newSBOMCommand(version), newDiffCommand(), newSignCommand(), newVerifyCommand(),
		newKeygenCommand()}
}

// source is how images are reached.
type source struct {
	endpoint transfer.Endpoint
	platform string
}

func (s *source) flags(cmd *cobra.Command) {
	s.registryFlags(cmd)
	cmd.Flags().StringVar(&s.platform, "platform", "",
		"of an index the image of this OS/ARCH[/VARIANT], default this host's")
}

func (s *source) registryFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&s.endpoint.CAFile, "ca", "", "CA of the registry (PEM)")
	cli.AuthFile(cmd, &s.endpoint.AuthFile, "authfile", "pull secret for the registry")
	flags.BoolVar(&s.endpoint.Insecure, "insecure", false, "allow plain HTTP and any certificate")
}

// read lets use have the image as sbom takes it.
func (s *source) read(ctx context.Context, reference string, use func(context.Context, sbom.Image) error) error {
	e := s.endpoint
	e.Reference = reference
	return transfer.Read(ctx, e, s.platform, func(ctx context.Context, w transfer.Whole) error {
		img := sbom.Image{Name: strings.TrimPrefix(reference, "docker://"), Digest: string(w.Digest), Created: w.Created,
			BaseDigest: w.Labels[build.LabelBaseDigest], BaseLayers: build.BaseLayers(w.CreatedBy, len(w.Layers))}
		for _, l := range w.Layers {
			img.Layers = append(img.Layers, func(ctx context.Context) (io.ReadCloser, error) { return w.Open(ctx, l) })
		}
		return use(ctx, img)
	})
}

const imageForms = "IMAGE is HOST/REPOSITORY[:TAG|@DIGEST], oci:DIRECTORY[:REF] or docker-archive:FILE."

func newSBOMCommand(version string) *cobra.Command {
	var from source
	var format string
	cmd := &cobra.Command{
		Use:   "sbom IMAGE",
		Short: "Write a bill of materials of an image: packages, kernels, and the files that a build added",
		Long: imageForms + " Packages come from the image's own databases\n" +
			"(rpm's in SQLite's form, dpkg's). Files are those above the base, with mode and owner; those that not every " +
			"user\nmay read have no checksum.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			write := map[string]func(io.Writer, sbom.Image, *sbom.Contents, string) error{"spdx": sbom.WriteSPDX,
				"cyclonedx": sbom.WriteCycloneDX}[format]
			if write == nil {
				return cli.Usagef("--format %s: must be spdx or cyclonedx", format)
			}
			return from.read(cmd.Context(), args[0], func(ctx context.Context, img sbom.Image) error {
				contents, err := sbom.Read(ctx, img, "")
				if err != nil {
					return err
				}
				warnUnread(cmd.ErrOrStderr(), img.Name, contents.Unread)
				return write(cmd.OutOrStdout(), img, contents, version)
			})
		},
	}
	from.flags(cmd)
	cmd.Flags().StringVar(&format, "format", "spdx", "spdx (SPDX 2.3) or cyclonedx (CycloneDX 1.6), both in JSON")
	return cmd
}

func warnUnread(w io.Writer, image string, unread []string) {
	for _, u := range unread {
		fmt.Fprintf(w, "warning: %s: the packages of %s are left out\n", image, u)
	}
}

func newDiffCommand() *cobra.Command {
	var from source
	var files bool
	cmd := &cobra.Command{
		Use:   "diff IMAGE IMAGE",
		Short: "Show what the second image has otherwise than the first: packages, kernels, files",
		Long: imageForms + " It reads both wholly. The table counts\nfiles; --files and -o json name each. Directories are " +
			"not compared.",
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return from.read(cmd.Context(), args[0], func(ctx context.Context, a sbom.Image) error {
				return from.read(ctx, args[1], func(ctx context.Context, b sbom.Image) error {
					d, err := sbom.Compare(ctx, a, b, "")
					if err != nil {
						return err
					}
					for _, side := range []sbom.Side{d.From, d.To} {
						warnUnread(cmd.ErrOrStderr(), side.Name, side.Unread)
						if side.Packages == 0 && len(side.Unread) == 0 {
							fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s has no database of rpm or dpkg: its packages are not known\n",
								side.Name)
						}
					}
					return cli.PrintTable(cmd, "ImageDifference", d, func(w io.Writer) { printDifference(w, d, files) })
				})
			})
		},
	}
	from.flags(cmd)
	cmd.Flags().BoolVar(&files, "files", false, "name each file that differs")
	return cmd
}

func printDifference(w io.Writer, d *sbom.Difference, files bool) {
	if a, b := d.From.OS.Name, d.To.OS.Name; a != b {
		fmt.Fprintf(w, "OS\t%s\t%s\n", orNone(a), orNone(b))
	}
	if a, b := strings.Join(d.From.Kernels, ", "), strings.Join(d.To.Kernels, ", "); a != b {
		fmt.Fprintf(w, "kernel\t%s\t%s\n", orNone(a), orNone(b))
	}
	for _, p := range d.Packages {
		name := p.Name
		if p.Arch != "" {
			name += "." + p.Arch
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", name, orNone(p.From), orNone(p.To))
	}
	counts := map[string]int{}
	for _, f := range d.Files {
		counts[f.Change]++
		if files {
			fmt.Fprintf(w, "%s\t%s\t%s\n", f.Path, f.Change, strings.Join(f.Aspects, ", "))
		}
	}
	packages := "packages are not known"
	if n := len(d.Packages); d.From.Packages > 0 || d.To.Packages > 0 {
		packages = fmt.Sprintf("%d packages differ", n)
		if n == 1 {
			packages = "1 package differs"
		}
	}
	fmt.Fprintf(w, "%s; files: %d added, %d removed, %d changed\n", packages, counts["added"], counts["removed"],
		counts["changed"])
}

func orNone(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
