package main

import (
	"bytes"
	"fmt"
	"strings"
)

const ledgerHeading = `# What becomes of each field

<!-- Generated from hack/gendocs/ledger.yaml and the types of openshift/api by make generate. Do not edit. -->

This page is for operators who want to know whether a field of an object does something here. It has every field of
every object that dayone reads; ` + "`make verify`" + ` fails where the API has one that is not here, and where a test
that is named does not exist. A path that ends in .* stands for all that lies below.

| verdict | means |
|---|---|
| honoured | the package does what the field says; the test shows it |
| refused | dayone refuses the object with this message |
| named | the field has no effect, and dayone says so there |
| written | dayone writes the field |
| passed on | other programs read or write the field |
| ignored | nothing tells you that the field has no effect |

Fields that the API does not have are refused: in files for ` + "`dayone cluster plan -f`" + ` and in install
directories. Of install-config.yaml there is [a table of its own](../users/install-config.md#the-installers-fields). The
` + "`config`" + ` of a MachineConfig is Ignition's, and each of its fields is honoured as Ignition does.
`

// ledgerPage writes the ledgers for people.
func ledgerPage(ledgers []ledger) []byte {
	var b bytes.Buffer
	b.WriteString(ledgerHeading)
	counts := map[string]int{}
	for _, l := range ledgers {
		fmt.Fprintf(&b, "\n## %s\n\n", l.Kind)
		if l.Says != "" {
			b.WriteString(strings.TrimSpace(l.Says) + "\n\n")
		}
		b.WriteString("| field | verdict | | where | test |\n|---|---|---|---|---|\n")
		for _, r := range l.Rows {
			counts[r.Is]++
			where, test := "", ""
			if r.In != "" {
				where, test = "`"+r.In+"`", "`"+r.Test+"`"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", r.Field, r.Is, escape(r.Says), where, test)
		}
	}
	fmt.Fprintf(&b, "\nRows: %d honoured, %d refused, %d named, %d written, %d passed on, %d ignored.\n",
		counts["honoured"], counts["refused"], counts["named"], counts["written"], counts["passed on"], counts["ignored"])
	return b.Bytes()
}
