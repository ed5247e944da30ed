package pages

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dayone.dev/dayone/build/appendengine"
	"dayone.dev/dayone/build/buildlog"
	"dayone.dev/dayone/build/machineosbuild"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/assets/bootstrapnode"
	"dayone.dev/dayone/manifests/assets/cluster"
	"dayone.dev/dayone/rebase/fleet/registrystatus"
)

// allPrograms fills in an image's digest.
var allPrograms = digestOf("os/worker:v1")

// clusterChapter is the life of a cluster: dayone comes into it, the bootstrap hands over, nodes are asked about.
func clusterChapter() chapter {
	return chapter{name: "a cluster", goesOn: true, before: (*world).startCluster, acts: slices.Concat([]act{
		{page: "docs/operators/log-bundles.md", begins: "sudo dayone gather", hows: []how{
			{begins: "sudo dayone gather", fill: func(*world) []string { return []string{"CLUSTER", "cluster"} }},
			{begins: "dayone gather --host core@192.0.2.10 --every", serves: keeps("spool")},
			{begins: "dayone gather --url", serves: keeps("spool")}}},
		{command: "cluster manifests", hows: []how{{says: "objects written"}}},
		{page: "docs/users/installing.md", begins: "dayone registry copy", before: all(releaseImages,
			has("cp -r dayone-base kustomize")), after: has("grep -L CustomResourceDefinition kustomize/[0-9]*.yaml | " +
			"sed 's/^/-f /' | xargs kubectl delete")},
		{command: "cluster install", begins: "dayone cluster install --image", hows: []how{{fill: allPrograms}}},
		{command: "cluster install", begins: "dayone cluster install --dry-run", hows: []how{{says: "kind: Deployment"}}},
		{command: "bootstrap", begins: "dayone bootstrap --dir cluster --kubeconfig", before: func(w *world) {
			w.plane.join()
			w.bootstrap.ends(0)
		}},
		{command: "handover"},
		{command: "bootstrap hold"},
		{command: "bootstrap carry", before: disk},
		{command: "verify", begins: "dayone verify registry.example.com/ocp"},
		{command: "cluster install", begins: "dayone cluster install --take-over", hows: []how{{fill: allPrograms,
			terminal: true}}},
		{command: "cluster upgrade", hows: []how{{fill: allPrograms}}},
		{command: "cluster status", hows: []how{{begins: "dayone cluster status --nodes --watch", serves: prints("worker-0")},
			{says: "dayone-controller"}}},
		{command: "cluster why", hows: []how{{says: "worker-0"}}},
		{command: "cluster logs", before: built, hows: []how{
			{begins: "dayone cluster logs worker --build", fill: buildOfWorkers, says: "no such package"},
			{says: "no such package"}}},
		{command: "render parity", before: dump},
		{command: "cluster plan", before: changes, hows: []how{{begins: "dayone cluster plan -f", code: 4}}},
		{command: "cluster policies"},
		{command: "gather", begins: "dayone gather --cluster"},
	}, pagesOfTheCluster(), []act{
		{command: "cluster file agent-unit"},
		{command: "cluster file seccomp-profile"},
		{command: "cluster file kubelet-agent-rights"},
		{command: "cluster registry status", before: registries},
		{command: "cluster registry rotate"},
		{command: "cluster registry rotate-ca", before: shared, hows: []how{rotatesCA,
			{fill: func(*world) []string { return []string{"worker-7", "worker-0"} }}}},
		{command: "cluster registry add", before: all(has("rm -rf images"), releaseImages)},
		{command: "cluster registry export"},
	}, pagesOfRegistries(), []act{{command: "cluster uninstall"}})}
}

// disk is one that coreos-installer has written, with its Ignition config.
func disk(w *world) {
	w.must("mkdir -p /run/dayone-disk/ostree/deploy/rhcos/var /opt/openshift")
	w.write("/opt/openshift/master.ign", `{"ignition":{"version":"3.2.0"}}`)
	require.FileExists(w, bootstrapnode.RegistryProgram)
}

// dump is what the pages save of a cluster.
func dump(w *world) {
	w.must("mkdir -p dump; kubectl get nodes,machineconfigpools,machineosconfigs,machineosbuilds,machineconfignodes " +
		"-o json >dump/cluster.json; kubectl get machineconfigs,controllerconfigs -o json >dump/configs.json; " +
		"rm -rf rendered; cp -r /var/lib/dayone/rendered .")
}

const appConfig = `apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata: {name: NAME, labels: {machineconfiguration.openshift.io/role: worker}}
spec: {config: {ignition: {version: 3.4.0}, storage: {files: [{path: /etc/NAME, contents: {source: "data:,1"}}]}}}
`

// changes are files that would change the workers, and a MachineConfig that they have.
func changes(w *world) {
	w.write("50-app.yaml", strings.ReplaceAll(appConfig, "NAME", "50-app"))
	w.write("old.yaml", strings.ReplaceAll(appConfig, "NAME", "50-old"))
	w.must("kubectl apply -f old.yaml")
}

// built lets the builder stop with a build of the workers that has failed, and keeps its log as builders do.
func built(w *world) {
	w.plane.hold("dayone-builder", true)
	c := w.plane.env.Client
	var list mcfgv1.MachineOSBuildList
	w.eventually("a build of the workers", func() bool {
		return c.List(w.Context(), &list, client.MatchingLabels{manifests.LabelMachineOSConfig: "worker"}) == nil &&
			len(list.Items) == 1
	})
	b := &list.Items[0]
	require.NoError(w, machineosbuild.Move(b, machineosbuild.Failed, machineosbuild.Cause{Message: "no such package"},
		time.Now()))
	require.NoError(w, c.Status().Update(w.Context(), b))
	registry, err := appendengine.NewClient(appendengine.Access{CAFile: filepath.Join(w.home, "trusted.pem"),
		AuthFile: w.file("push-secret.json")})
	require.NoError(w, err)
	defer registry.Close()
	_, err = buildlog.Push(w.Context(), registry, registryName+"/ocp/worker-os", buildlog.Log{Build: b.Name,
		Pool: "worker", Outcome: "Failed", Created: time.Now(), Text: []byte("STEP 1\nno such package\n")})
	require.NoError(w, err)
}

// registries are the control plane's own, as the page sets them up.
func registries(w *world) {
	w.must("dayone registry node-config --registry " + planeRegistry + ":22626 --to registry-files")
	w.must("kubectl apply -f registry-files/push-secret.yaml")
	w.must("dayone cluster upgrade --cluster-registry " + planeRegistry + ":22626")
	w.start("dayone-registry --config registry-files --root " + w.whole.TempDir() + " --state " + w.whole.TempDir() +
		" --listen " + bootstrapHost + ":22626 --host " + planeRegistry + " --node master-0 --min-free 0 --auth none.json")
	accountsAre(w)
}

// shared is the Secret with the CA's key, of a cluster whose installation has left it in the MachineConfig.
func shared(w *world) {
	w.must("dayone registry node-config --node-agent --registry " + planeRegistry + ":22626 --to registry-files")
	w.must("kubectl apply -f registry-files/shared-secret.yaml")
	look(w)
	w.eventually("the CA", func() bool {
		have, err := registrystatus.ReadPublished(w.Context(), w.plane.env.Client, cluster.DefaultNamespace)
		return err == nil && have.CA != nil
	})
}

// look lets the controllers look at once at what they would look at within a minute.
func look(w *world) { w.must("dayone cluster registry rotate --pool worker") }

// rotatesCA waits for the rotation, which gives nodes that boot a quarter of an hour: until the reader has typed the
// rest of the block, and does not want to wait for such any more.
var rotatesCA = how{begins: "dayone cluster registry rotate-ca --wait", stays: true,
	serves: func(w *world, s *server) {
		s.says("asked|step")
		look(w)
		s.says("step Trusting")
	},
	ends: func(w *world, s *server) {
		w.must("dayone cluster registry rotate-ca --now")
		look(w)
		s.says("is in use, nothing trusts")
	}}
