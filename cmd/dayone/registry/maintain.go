package registry

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/registry"
	"dayone.dev/dayone/registry/storage"
	"dayone.dev/dayone/registry/transfer"
)

func rootCommand(use, short string, run func(cmd *cobra.Command, root string) error) *cobra.Command {
	var root string
	cmd := &cobra.Command{
		Use: use + " --root DIR", Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd, root) },
	}
	cmd.Flags().StringVar(&root, "root", "", "directory of the images (required)")
	_ = cmd.MarkFlagRequired("root")
	return cmd
}

func newListCommand() *cobra.Command {
	return rootCommand("ls", "List images with tags, digests and sizes",
		func(cmd *cobra.Command, root string) error {
			images, err := registry.List(cmd.Context(), root)
			if err != nil {
				return err
			}
			return cli.PrintTable(cmd, "RegistryImageList", images, func(t io.Writer) {
				fmt.Fprintln(t, "REPOSITORY\tDIGEST\tTAGS\tBYTES\tPROBLEM")
				for _, i := range images {
					if i.Orphaned != "" {
						i.Problem = "refers to " + string(i.Orphaned) + ", which is not here"
					}
					fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\n", i.Repository, i.Digest, strings.Join(i.Tags, ","), i.Bytes, i.Problem)
				}
			})
		})
}

// diskUsage is what dayone registry du says.
type diskUsage struct {
	Repositories []storage.Usage `json:"repositories"`
	// Total is how many bytes all of them take together.
	Total int64 `json:"total"`
}

func newUsageCommand() *cobra.Command {
	return rootCommand("du", "Show what repositories take on disk", func(cmd *cobra.Command, root string) error {
		usage, total, err := registry.DiskUsage(cmd.Context(), root)
		if err != nil {
			return err
		}
		return cli.PrintTable(cmd, "RegistryUsage", diskUsage{usage, total}, func(t io.Writer) {
			fmt.Fprintln(t, "REPOSITORY\tBYTES\tNOT SHARED")
			for _, u := range usage {
				fmt.Fprintf(t, "%s\t%d\t%d\n", u.Repository, u.Bytes, u.Own)
			}
			fmt.Fprintf(t, "total\t%d\t\n", total)
		})
	})
}

func newCollectCommand() *cobra.Command {
	var o storage.CollectOptions
	cmd := rootCommand("gc", "Remove blobs that no image names; a server may run on the root",
		func(cmd *cobra.Command, root string) error {
			r, err := registry.OpenRoot(cmd.Context(), root, cli.Log(cmd))
			if err != nil {
				return err
			}
			report, err := r.Collect(cmd.Context(), o)
			if err := errors.Join(err, r.Close()); err != nil {
				return err
			}
			warnDamaged(cmd, report.Damaged)
			return cli.PrintLine(cmd, "RegistryCollection", report, "%d blobs removed, %d bytes; %d kept",
				len(report.Removed), report.Bytes, report.Kept)
		})
	cmd.Flags().DurationVar(&o.Grace, "grace", 0, "keep unreferenced blobs younger than this, 0 for 1h, negative for "+
		"none")
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false, "only report what would be removed")
	return cmd
}

func newVerifyCommand() *cobra.Command {
	var other transfer.Endpoint
	cmd := rootCommand("verify", "Hash every blob and look for missing ones; a server may run on the root",
		func(cmd *cobra.Command, root string) error {
			r, err := registry.OpenRoot(cmd.Context(), root, cli.Log(cmd))
			if err != nil {
				return err
			}
			start := time.Now()
			result := verified{Restored: []string{}}
			if other.Reference == "" {
				result.VerifyReport, err = r.Verify(cmd.Context())
			} else {
				err = result.repair(cmd, r, other)
			}
			if err := errors.Join(err, r.Close()); err != nil {
				return err
			}
			took := time.Since(start)
			err = cli.PrintTable(cmd, "RegistryVerification", result, func(w io.Writer) { result.print(w, took) })
			if err != nil {
				return err
			}
			bad := len(result.Missing) + len(result.Damaged)
			if other.Reference == "" {
				bad += len(result.Corrupt)
			}
			if bad > 0 {
				return fmt.Errorf("verify registry %s: %d corrupt, %d missing and %d damaged: push the images again", root,
					len(result.Corrupt), len(result.Missing), len(result.Damaged))
			}
			return nil
		})
	flags := cmd.Flags()
	flags.StringVar(&other.Reference, "repair-from", "", "HOST[/PREFIX] of a registry with the same repositories: take "+
		"what is missing from it")
	flags.StringVar(&other.CAFile, "repair-ca", "", "CA of that registry (PEM)")
	cli.AuthFile(cmd, &other.AuthFile, "repair-authfile", "pull secret for that registry")
	flags.BoolVar(&other.Insecure, "repair-insecure", false, "allow plain HTTP and any certificate there")
	return cmd
}

// verified is what verify prints. Restored are blobs and manifests that came from another registry.
type verified struct {
	storage.VerifyReport
	Restored []string `json:"restored"`
}

func (v *verified) repair(cmd *cobra.Command, r *registry.Root, other transfer.Endpoint) error {
	from, err := transfer.NewUpstream(other)
	if err != nil {
		return err
	}
	report, restored, failed, err := r.Repair(cmd.Context(), from.Fetch)
	v.VerifyReport, v.Restored = report, append(v.Restored, restored...)
	for _, why := range failed {
		fmt.Fprintln(cmd.ErrOrStderr(), why)
	}
	return err
}

func (v *verified) print(w io.Writer, took time.Duration) {
	fmt.Fprintf(w, "%d blobs, %d bytes read in %s\n", v.Blobs, v.Bytes, took.Round(time.Millisecond))
	for _, d := range v.Corrupt {
		fmt.Fprintln(w, "corrupt, moved to quarantine:", d)
	}
	for _, m := range v.Restored {
		fmt.Fprintln(w, "restored:", m)
	}
	for _, m := range v.Missing {
		fmt.Fprintln(w, "missing:", m)
	}
	for _, m := range v.Damaged {
		fmt.Fprintln(w, "damaged:", m)
	}
}

func newStatusCommand() *cobra.Command {
	return rootCommand("status", "Show uploads, disk, upstream, collection and scrub of the server that runs on a root",
		func(cmd *cobra.Command, root string) error {
			s, err := registry.ReadStatus(cmd.Context(), root)
			if err != nil {
				return err
			}
			return cli.PrintTable(cmd, "RegistryStatus", s, func(w io.Writer) { printStatus(w, s) })
		})
}

func printStatus(w io.Writer, s registry.Status) {
	limit := "no limit"
	if s.MaxBytes > 0 {
		limit = fmt.Sprintf("of %d", s.MaxBytes)
	}
	fmt.Fprintf(w, "stored\t%d bytes, %s\n", s.StoredBytes, limit)
	fmt.Fprintf(w, "reserved\t%d bytes for %d uploads\n", s.ReservedBytes, s.Uploads)
	fmt.Fprintf(w, "disk\t%d bytes free, %d stay free\n", s.FreeBytes, s.MinFreeBytes)
	if c := s.LastCollection; c != nil {
		fmt.Fprintf(w, "last collection\t%s: %d blobs removed, %d bytes; %d kept; %d damaged manifests %s\n",
			c.At.Format(time.RFC3339), c.Removed, c.Bytes, c.Kept, len(c.Damaged), c.Error)
	}
	if l := s.LastScrub; l != nil {
		fmt.Fprintf(w, "last scrub\t%s: %d blobs, %d bytes; %d corrupt, %d missing, %d damaged %s\n",
			l.At.Format(time.RFC3339), l.Blobs, l.Bytes, len(l.Corrupt), len(l.Missing), len(l.Damaged), l.Error)
	}
	if p := s.Scrub; p != nil {
		fmt.Fprintf(w, "scrub\t%d of %d bytes read since %s\n", p.ReadBytes, p.OfBytes, p.Since.Format(time.RFC3339))
	}
	if u := s.Upstream; u != nil {
		fmt.Fprintf(w, "upstream\t%s: %s; %d blobs on their way\n", u.Name, upstreamState(*u), u.Fetches)
	}
}

func upstreamState(u registry.UpstreamStatus) string {
	answered := "no answer yet"
	if !u.LastAnswer.IsZero() {
		answered = "last answer " + u.LastAnswer.Format(time.RFC3339)
	}
	if u.Fault == "" {
		return answered
	}
	return fmt.Sprintf("%s; failed %s: %s", answered, u.FaultAt.Format(time.RFC3339), u.Fault)
}

// warnDamaged names the manifests because of which blobs stay.
func warnDamaged(cmd *cobra.Command, damaged []string) {
	for _, m := range damaged {
		fmt.Fprintf(cmd.ErrOrStderr(), "damaged: %s: nothing of its repository is removed; "+
			"push the image again, or: dayone registry rm --root DIR %s\n", m, m)
	}
}

func newRemoveCommand() *cobra.Command {
	var root string
	cmd := &cobra.Command{
		Use:   "rm --root DIR REPOSITORY@DIGEST...",
		Short: "Remove images with their tags, also damaged ones; a server may run on the root",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			r, err := registry.OpenRoot(cmd.Context(), root, cli.Log(cmd))
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, r.Close()) }()
			for _, arg := range args {
				name, ref, found := strings.Cut(arg, "@")
				if !found {
					return cli.Usagef("remove %s: write REPOSITORY@DIGEST; dayone registry ls prints both", arg)
				}
				d, err := storage.ParseDigest(ref)
				if err != nil {
					return fmt.Errorf("remove %s: %w", arg, err)
				}
				if err := r.RemoveManifest(cmd.Context(), name, d); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&root, "root", "", "directory of the images (required)")
	_ = cmd.MarkFlagRequired("root")
	return cmd
}
