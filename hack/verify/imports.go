package main

import (
	"fmt"
	"slices"
	"strings"
)

// floors are the rooms that each top-level folder may import, besides itself. See docs/developers/ARCHITECTURE.md.
var floors = map[string][]string{
	"installconfig": {},
	"registry":      {},
	"manifests":     {"installconfig"},
	"build":         {"installconfig", "manifests", "registry"},
	"rebase": {"installconfig", "manifests", "registry/authority", "registry/certs", "registry/credentials",
		"registry/imagepolicy", "registry/peers", "registry/places", "registry/poolaccounts", "registry/wanted"},
	"bootstrap": {"installconfig", "manifests", "registry", "build", "rebase"},
	"docs":      {},
	"cmd":       {"docs", "installconfig", "manifests", "registry", "build", "rebase", "bootstrap"},
	"hack":      {"installconfig", "manifests", "registry", "build", "rebase", "bootstrap"},
}

// clusterClient and controllerRuntime talk to a cluster: besides the rooms below, every controller may.
const (
	clusterClient     = "k8s.io/client-go"
	controllerRuntime = "sigs.k8s.io/controller-runtime"
)

// clusterRooms talk to a cluster without being controllers.
var clusterRooms = []string{"build/optin", "build/buildcontroller", "bootstrap/handover", "bootstrap/gather",
	"bootstrap/openshift/loopback", "bootstrap/registryimages", "manifests/clusterinstall",
	"manifests/rendercontroller", "rebase/daemon", "rebase/drain", "rebase/fleet", "cmd", "hack/kube", "hack/e2e",
	"hack/bench", "hack/demo-life"}

// keptIn says which folders alone may import an outside package (and what lies below it).
var keptIn = map[string][]string{
	"github.com/containers/buildah":           {"build/buildahengine"},
	"github.com/containers/storage":           {"build/buildahengine"},
	"github.com/distribution/distribution/v3": {"registry/storage"},
	clusterClient:     clusterRooms,
	controllerRuntime: clusterRooms,
}

func importDirection(t *tree) ([]string, error) {
	var bad []string
	for _, p := range t.packages {
		top, _, _ := strings.Cut(p.rel(), "/")
		allowed, known := floors[top]
		if !known {
			bad = append(bad, fmt.Sprintf("%s lies in no known top-level folder", p.rel()))
			continue
		}
		for _, imported := range p.Imports {
			if inside, ok := strings.CutPrefix(imported, module+"/"); ok {
				if !below(inside, append(slices.Clone(allowed), top)) {
					bad = append(bad, fmt.Sprintf("%s imports %s: imports go down only", p.rel(), inside))
				}
				continue
			}
			if fault := kept(p.rel(), imported); fault != "" {
				bad = append(bad, fault)
			}
		}
	}
	return bad, nil
}

// below tells whether a folder is one of the rooms or lies in one.
func below(folder string, rooms []string) bool {
	return slices.ContainsFunc(rooms, func(room string) bool {
		return folder == room || strings.HasPrefix(folder, room+"/")
	})
}

func kept(from, imported string) string {
	for outside, rooms := range keptIn {
		if imported != outside && !strings.HasPrefix(imported, outside+"/") {
			continue
		}
		if below(from, rooms) {
			return ""
		}
		if (outside == clusterClient || outside == controllerRuntime) && strings.HasSuffix(from, "controller") {
			return ""
		}
		return fmt.Sprintf("%s imports %s, which belongs to %s", from, imported, strings.Join(rooms, ", "))
	}
	return ""
}

// agentDependencies keeps builder and registry out of the program that every node carries.
func agentDependencies(t *tree) ([]string, error) {
	out, err := run(t.root, "go", "list", "-deps", "./cmd/dayone-daemon")
	if err != nil {
		return nil, err
	}
	var bad []string
	for _, dep := range strings.Fields(string(out)) {
		for _, heavy := range []string{"github.com/containers/buildah", "github.com/containers/storage/drivers",
			"github.com/distribution/distribution/v3"} {
			if dep == heavy || strings.HasPrefix(dep, heavy+"/") {
				bad = append(bad, "dayone-daemon links "+dep)
			}
		}
	}
	return bad, nil
}
