package day1

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// unitFlag prints the unit.
const unitFlag = "print-unit"

// unitText has the working directory and the command line. A start may take as long as the builds: the program tells
// the service manager when nodes may come.
const unitText = `[Unit]
Description=Build the nodes' OS images and serve their configs
Documentation=https://dayone.dev/docs/users/day1-standalone.md
Wants=network-online.target
After=network-online.target
# A failure that may pass is tried again, five times an hour.
StartLimitIntervalSec=1h
StartLimitBurst=5

[Service]
Type=notify
NotifyAccess=main
WorkingDirectory=%s
ExecStart=%s
Restart=on-failure
RestartSec=10
# 2: wrong command line, 3: refused input. Trying again would not help.
RestartPreventExitStatus=2 3
TimeoutStartSec=infinity
TimeoutStopSec=30
KillMode=mixed
UMask=0077
LimitNOFILE=65536

[Install]
WantedBy=multi-user.target
`

// printUnit writes a unit that runs this command as it was given, from the directory where it was given.
func printUnit(cmd *cobra.Command) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	dir, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("find working directory: %w", err)
	}
	words := append([]string{self}, strings.Fields(cmd.CommandPath())[1:]...)
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Name != unitFlag {
			words = append(words, "--"+f.Name+"="+f.Value.String())
		}
	})
	for i, w := range words {
		words[i] = unitWord(w)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), unitText, strings.ReplaceAll(dir, "%", "%%"), strings.Join(words, " "))
	return err
}

// unitWord quotes a word of a command line where systemd would read anything else (systemd.service(5)).
func unitWord(w string) string {
	w = strings.NewReplacer("%", "%%", "$", "$$").Replace(w)
	if w == "" || strings.ContainsAny(w, " \t\"'\\;") {
		w = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(w) + `"`
	}
	return w
}
