// Command gencrds writes the slim CustomResourceDefinitions in manifests/assets/cluster/crds from those of
// github.com/openshift/api: schemas, validations, CEL rules and printer columns stay, prose goes.
//
//	openshift/api payload-manifests -> typed CRD -> descriptions dropped -> one YAML file per kind
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
)

// target is relative to the module's root, where make runs this program.
const target = "manifests/assets/cluster/crds"

func main() {
	check := flag.Bool("check", false, "write nothing; fail when a file is not up to date")
	flag.Parse()
	if err := run(context.Background(), *check); err != nil {
		fmt.Fprintln(os.Stderr, "gencrds:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, check bool) error {
	from, err := locate(ctx)
	if err != nil {
		return err
	}
	files, err := generate(from, sources())
	if err != nil {
		return err
	}
	if check {
		return compare(target, files)
	}
	return write(target, files)
}
