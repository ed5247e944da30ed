package registry

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"dayone.dev/dayone/bootstrap/board"
	"dayone.dev/dayone/cmd/internal/cli"
	"dayone.dev/dayone/registry/transfer"
)

type copyFlags struct {
	src, dst transfer.Endpoint
	options  transfer.Options
	attached bool
}

func newCopyCommand() *cobra.Command {
	f := &copyFlags{}
	cmd := &cobra.Command{
		Use:   "copy SRC DST",
		Short: "Copy an image without changing its digest",
		Long: "SRC and DST are HOST/REPOSITORY[:TAG|@DIGEST] or oci:DIRECTORY[:REF]; SRC may be docker-archive:FILE " +
			"too. An interrupted copy goes on\n" +
			"where it was when it is started again. Prints the digest.",
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.src.Reference, f.dst.Reference = args[0], args[1]
			return f.run(cmd)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.src.CAFile, "src-ca", "", "CA of the source's registry (PEM)")
	flags.StringVar(&f.dst.CAFile, "dest-ca", "", "CA of the destination's registry (PEM)")
	cli.AuthFile(cmd, &f.src.AuthFile, "src-authfile", "pull secret for the source")
	cli.AuthFile(cmd, &f.dst.AuthFile, "dest-authfile", "pull secret for the destination")
	flags.BoolVar(&f.src.Insecure, "src-insecure", false, "allow plain HTTP and any certificate at the source")
	flags.BoolVar(&f.dst.Insecure, "dest-insecure", false, "allow plain HTTP and any certificate at the destination")
	flags.StringVar(&f.options.Platform, "platform", "", "copy only this OS/ARCH[/VARIANT] of an index")
	flags.BoolVar(&f.attached, "attached", true, "copy the image's referrers and cosign's signatures, attestations and "+
		"bills of materials too")
	flags.IntVar(&f.options.Parallel, "parallel", 0, "blobs at once, 0 for 6")
	flags.IntVar(&f.options.Attempts, "attempts", 0, "attempts when connections fail or a registry answers 5xx, 0 for 5")
	return cmd
}

func (f *copyFlags) run(cmd *cobra.Command) error {
	f.options.Log = cli.Log(cmd)
	f.options.OnProgress = printCopyProgress(cmd.ErrOrStderr())
	res, err := transfer.Copy(cmd.Context(), f.src, f.dst, f.options)
	if err != nil {
		return err
	}
	if f.attached {
		if _, err := transfer.Attach(cmd.Context(), f.src, f.dst, res.Digest, f.options); err != nil {
			return fmt.Errorf("the image is copied, what is attached to it is not (--attached=false leaves it): %w", err)
		}
	}
	return cli.PrintLine(cmd, "ImageCopy", res, "%s", res.Digest)
}

// printCopyProgress writes a line per finished blob, and on a terminal a line that moves.
func printCopyProgress(w io.Writer) func(transfer.Progress) {
	live := board.Live(w, os.Getenv("TERM"))
	return func(p transfer.Progress) {
		id := p.Digest.Encoded()
		if len(id) > 12 {
			id = id[:12]
		}
		switch {
		case p.Skipped:
			fmt.Fprintf(w, "%s  there already\n", id)
		case p.Finished:
			fmt.Fprintf(w, "%s  %d bytes\n", id, p.Done)
		case live:
			fmt.Fprintf(w, "%s  %d of %d bytes\r", id, p.Done, p.Size)
		}
	}
}
