// Command site writes the documentation as a website: HTML files without scripts, which need nothing from elsewhere.
//
//	*.md of the tree -> pages with GitHub's names of headings -> links checked -> OUT/*.html
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	root := flag.String("root", ".", "the source tree")
	out := flag.String("out", "out/site", "the directory for the website; it is created")
	flag.Parse()
	if err := run(*root, *out); err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
}

func run(root, out string) error {
	s, err := read(root)
	if err != nil {
		return err
	}
	if err := s.check(); err != nil {
		return err
	}
	if err := s.write(out); err != nil {
		return err
	}
	fmt.Printf("%d pages in %s; begin with %s/index.html\n", len(s.pages), out, out)
	return nil
}
