package sbom

import (
	"context"
	"maps"
	"slices"
	"strings"
)

// Difference is what one image has otherwise than another.
type Difference struct {
	From Side `json:"from"`
	To   Side `json:"to"`
	// Packages by type, name and architecture.
	Packages []PackageChange `json:"packages"`
	// Files by path. Directories are not compared.
	Files []FileChange `json:"files"`
}

// Side is what a Difference says of each image.
type Side struct {
	Name    string   `json:"name"`
	Digest  string   `json:"digest"`
	OS      OS       `json:"os"`
	Kernels []string `json:"kernels"`
	// Packages is how many the image's package databases name; 0: none of a package manager that is known was found.
	Packages int      `json:"packages"`
	Unread   []string `json:"unread,omitempty"`
}

// PackageChange has the versions in both images, separated by commas where several are installed; none is empty.
type PackageChange struct {
	Type string `json:"type"`
	Name string `json:"name"`
	Arch string `json:"arch,omitempty"`
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
}

// FileChange is a path whose file is otherwise: added, removed, or changed in what Aspects say.
type FileChange struct {
	Path string `json:"path"`
	// Change is added, removed or changed.
	Change string `json:"change"`
	// Aspects of a change: content, link, mode, owner.
	Aspects []string `json:"aspects,omitempty"`
}

// Compare reads both images wholly. dir is for temporary files.
func Compare(ctx context.Context, from, to Image, dir string) (*Difference, error) {
	a, err := read(ctx, from, dir, true)
	if err != nil {
		return nil, err
	}
	b, err := read(ctx, to, dir, true)
	if err != nil {
		return nil, err
	}
	return &Difference{From: side(from, a), To: side(to, b), Packages: comparePackageLists(a.Packages, b.Packages),
		Files: compareFiles(a.files, b.files)}, nil
}

func side(img Image, c *Contents) Side {
	return Side{Name: img.Name, Digest: img.Digest, OS: c.OS, Kernels: c.Kernels, Packages: len(c.Packages),
		Unread: c.Unread}
}

func comparePackageLists(a, b []Package) []PackageChange {
	type key struct{ kind, name, arch string }
	versions := func(list []Package) map[key]string {
		out := map[key]string{}
		for _, p := range list { // they are sorted
			k := key{p.Type, p.Name, p.Arch}
			out[k] = strings.TrimPrefix(out[k]+", "+p.Version, ", ")
		}
		return out
	}
	from, to := versions(a), versions(b)
	out := []PackageChange{}
	both := maps.Clone(from)
	maps.Copy(both, to)
	for k := range both {
		if from[k] != to[k] {
			out = append(out, PackageChange{Type: k.kind, Name: k.name, Arch: k.arch, From: from[k], To: to[k]})
		}
	}
	slices.SortFunc(out, func(a, b PackageChange) int {
		return comparePackages(Package{Type: a.Type, Name: a.Name, Arch: a.Arch},
			Package{Type: b.Type, Name: b.Name, Arch: b.Arch})
	})
	return out
}

func compareFiles(a, b map[string]File) []FileChange {
	out := []FileChange{}
	for p, old := range a {
		if now, ok := b[p]; !ok {
			out = append(out, FileChange{Path: p, Change: "removed"})
		} else if aspects := aspects(old, now); len(aspects) > 0 {
			out = append(out, FileChange{Path: p, Change: "changed", Aspects: aspects})
		}
	}
	for p := range b {
		if _, ok := a[p]; !ok {
			out = append(out, FileChange{Path: p, Change: "added"})
		}
	}
	slices.SortFunc(out, func(a, b FileChange) int { return strings.Compare(a.Path, b.Path) })
	return out
}

func aspects(a, b File) []string {
	var out []string
	for _, aspect := range []struct {
		name  string
		equal bool
	}{{"content", a.content == b.content}, {"link", a.Link == b.Link}, {"mode", a.Mode == b.Mode},
		{"owner", a.UID == b.UID && a.GID == b.GID}} {
		if !aspect.equal {
			out = append(out, aspect.name)
		}
	}
	return out
}
