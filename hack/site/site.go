package main

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// index is the page that lists all others by reader; the website begins with it.
const index = "docs/README.md"

// rootPages are the pages of the tree outside of docs.
func rootPages() []string {
	return []string{"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"}
}

//go:embed page.html
var layout string

// site is all pages, by their Markdown files' paths below the root.
type site struct {
	pages map[string]*page
	// pictures are all that pages show, by their files' paths below the root.
	pictures map[string][]byte
	// sections are the index's, in its order.
	sections []section
}

// section is a part of the navigation.
type section struct {
	Title string
	Links []link
}

// link leads to a page.
type link struct{ Title, Page string }

func read(root string) (*site, error) {
	files := rootPages()
	err := fs.WalkDir(os.DirFS(root), "docs", func(p string, _ fs.DirEntry, err error) error {
		if path.Ext(p) == ".md" {
			files = append(files, p)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the documentation: %w", err)
	}
	s := &site{pages: map[string]*page{}, pictures: map[string][]byte{}}
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return nil, fmt.Errorf("read the documentation: %w", err)
		}
		s.pages[file] = parse(file, text)
		for _, picture := range s.pages[file].pictures() {
			if s.pictures[picture], err = os.ReadFile(filepath.Join(root, picture)); err != nil {
				return nil, fmt.Errorf("read a picture of %s: %w", file, err)
			}
		}
	}
	first := s.pages[index]
	if first == nil {
		return nil, fmt.Errorf("there is no %s, which lists the pages", index)
	}
	s.sections = first.sections()
	return s, nil
}

// check says which links lead to no page, or to no heading of it.
func (s *site) check() error {
	var errs []error
	for _, file := range slices.Sorted(maps.Keys(s.pages)) {
		for _, to := range s.pages[file].links() {
			target, heading, ok := s.target(file, to)
			switch {
			case !ok:
			case s.pages[target] == nil:
				errs = append(errs, fmt.Errorf("%s: link to %s: there is no such page", file, to))
			case heading != "" && !s.pages[target].headings[heading]:
				errs = append(errs, fmt.Errorf("%s: link to %s: %s has no such heading", file, to, target))
			}
		}
	}
	return errors.Join(errs...)
}

// target is the page that a link of a page leads to; ok is false where it leads to no page of ours: another website, a
// source file, a picture.
func (s *site) target(from, to string) (file, heading string, ok bool) {
	if strings.Contains(to, ":") {
		return "", "", false
	}
	to, heading, _ = strings.Cut(to, "#")
	if to == "" {
		return from, heading, true
	}
	file = path.Join(path.Dir(from), to)
	return file, heading, path.Ext(file) == ".md"
}

// output is the HTML file of a page.
func output(file string) string {
	if file == index {
		return "index.html"
	}
	file = strings.TrimPrefix(file, "docs/")
	if path.Ext(file) != ".md" {
		return file // a picture
	}
	file = strings.TrimSuffix(file, ".md")
	if path.Base(file) == "README" && file != "README" {
		file = path.Join(path.Dir(file), "index")
	}
	return strings.ToLower(file) + ".html"
}

// href is a link between two pages of the website.
func href(from, to, heading string) string {
	if heading != "" {
		heading = "#" + heading
	}
	if from == to && heading != "" {
		return heading
	}
	up := strings.Repeat("../", strings.Count(output(from), "/"))
	return up + output(to) + heading
}

// write makes the website below a directory.
func (s *site) write(out string) error {
	t, err := template.New("page").Parse(layout)
	if err != nil {
		return fmt.Errorf("read the layout: %w", err)
	}
	for file, p := range s.pages {
		body, err := p.render(func(to string) string {
			target, heading, ok := s.target(file, to)
			if _, picture := s.pictures[target]; ok || picture {
				return href(file, target, heading)
			}
			if strings.Contains(to, ":") {
				return to
			}
			return "" // source code is not on the website
		})
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		var html bytes.Buffer
		err = t.Execute(&html, map[string]any{"Title": p.title, "Body": template.HTML(body), //nolint:gosec // our own text
			"Sections": s.navigation(file), "Home": href(file, index, ""), "Here": href(file, file, "")})
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if err := put(out, file, html.Bytes()); err != nil {
			return err
		}
	}
	for file, picture := range s.pictures {
		if err := put(out, file, picture); err != nil {
			return err
		}
	}
	return nil
}

// put writes the file of the website for one of the tree.
func put(out, file string, content []byte) error {
	at := filepath.Join(out, filepath.FromSlash(output(file)))
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return fmt.Errorf("write the website: %w", err)
	}
	if err := os.WriteFile(at, content, 0o644); err != nil {
		return fmt.Errorf("write the website: %w", err)
	}
	return nil
}

// navigation is the index's sections with links from a page.
func (s *site) navigation(from string) []section {
	var out []section
	for _, part := range s.sections {
		to := section{Title: part.Title}
		for _, l := range part.Links {
			to.Links = append(to.Links, link{l.Title, href(from, l.Page, "")})
		}
		out = append(out, to)
	}
	return out
}
