package analyze

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/gather/bundle"
)

// made opens a bundle of the given files.
func made(t testing.TB, files map[string]string) *bundle.Bundle {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		full := filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
		require.NoError(t, os.WriteFile(full, []byte(text), 0o600))
	}
	b, err := bundle.Open(dir)
	require.NoError(t, err)
	return b
}

const running = `{"version":1,"phases":[{"name":"base","title":"import the base image","status":"done",` +
	`"started":"2026-01-02T10:00:00Z","finished":"2026-01-02T10:01:00Z"},
{"name":"build-master","title":"build the image of pool master",
"status": "running","started":"2026-01-02T10:01:00Z"}]}`

func TestVerdictsOfOtherBundles(t *testing.T) {
	records := func(entries ...string) string { return "[" + strings.Join(entries, ",\n") + "]" }
	const start = `{"timestamp":"2026-01-02T10:00:00Z","phase":"service start"}`
	stage := func(name, result, message string) string {
		return `{"timestamp":"2026-01-02T10:00:01Z","phase":"stage start","stage":"` + name +
			`"},{"timestamp":"2026-01-02T10:00:09Z","phase":"stage end","stage":"` + name +
			`","result":"` + result + `","errorMessage":"` + message + `"}`
	}
	for _, c := range []struct {
		name           string
		files          map[string]string
		status         Status
		phase, cause   string
		evidenceInFile string
	}{
		{"nothing at all", map[string]string{}, StatusUnknown, "", "", ""},
		{"no bundle", map[string]string{"install-config.yaml": "a: b"}, StatusUnknown, "", "", ""},
		{"a host without dayone", map[string]string{"bootstrap/network/ip-addr.txt": "lo"}, StatusNotStarted, "", "", ""},
		{"a cluster", map[string]string{"resources/nodes.json": "{}"}, StatusCluster, "", "", ""},
		{"at work", map[string]string{journalName: running, statusName: `{"running":true}`}, StatusRunning,
			"build-master", "", ""},
		{"cut off", map[string]string{journalName: running, statusName: `{"running":false}`}, StatusCutOff,
			"build-master", "killed", journalName},
		{"killed for memory", map[string]string{journalName: running,
			"bootstrap/journals/kernel.log": "x\nkernel: Out of memory: Killed process 77 (dayone)\n"},
			StatusCutOff, "build-master", "out-of-memory", "bootstrap/journals/kernel.log"},
		{"killed by hand", map[string]string{journalName: running,
			"bootstrap/journals/dayone-bootstrap.log": "systemd: Main process exited, code=killed, status=9/KILL\n"},
			StatusCutOff, "build-master", "killed", "bootstrap/journals/dayone-bootstrap.log"},
		{"the installer's stage", map[string]string{"bootstrap/services/bootkube.json": records(start,
			stage("cvo-bootstrap", "success", ""), stage("cb-bootstrap", "failure", "timed out creating manifests"))},
			StatusFailed, "bootkube/cb-bootstrap", "service-failed", "bootstrap/services/bootkube.json"},
		{"a stage that went well at last", map[string]string{"bootstrap/services/bootkube.json": records(start,
			stage("cb-bootstrap", "failure", "x"), start, stage("cb-bootstrap", "success", ""))},
			StatusUnknown, "", "", ""},
		{"dayone's service before the installer's that waits for it", map[string]string{
			"bootstrap/services/bootkube.json": records(start, stage("cb-bootstrap", "failure", "no masters")),
			"bootstrap/services/dayone-bootstrap.json": records(start, stage("build-master", "failure", "push: 403 Forbidden"),
				`{"phase":"service end","result":"failure"}`)},
			StatusFailed, "dayone-bootstrap/build-master", "registry-credentials", "bootstrap/services/dayone-bootstrap.json"},
		{"kept for the installer's bundle", map[string]string{keptDir + "/journal.json": running,
			keptDir + "/status.json": `{"running":false}`}, StatusCutOff, "build-master", "killed",
			keptDir + "/journal.json"},
		{"kept, and the service has ended since", map[string]string{keptDir + "/journal.json": running,
			keptDir + "/status.json": `{"running":true}`, "bootstrap/services/dayone-bootstrap.json": records(start,
				stage("build-master", "failure", "push: 403 Forbidden"), `{"phase":"service end","result":"failure"}`)},
			StatusFailed, "dayone-bootstrap/build-master", "registry-credentials", "bootstrap/services/dayone-bootstrap.json"},
		{"kept, and the unit has failed since", map[string]string{keptDir + "/journal.json": running,
			keptDir + "/status.json": `{"running":true}`, "bootstrap/unit-status/dayone-bootstrap.service.log": "systemd[1]: " +
				"dayone-bootstrap.service: Main process exited, code=killed, status=9/KILL"},
			StatusCutOff, "build-master", "killed", "bootstrap/unit-status/dayone-bootstrap.service.log"},
		{"kept, and it has got on since", map[string]string{keptDir + "/journal.json": running,
			keptDir + "/status.json": `{"running":true}`, "bootstrap/services/dayone-bootstrap.json": records(start,
				stage("build-master", "success", ""), `{"phase":"stage start","stage":"render-second"}`)},
			StatusRunning, "render-second", "", ""},
		{"a journal that is damaged", map[string]string{journalName: `{"version":`}, StatusNotStarted, "", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := Bundle(made(t, c.files))
			assert.Equal(t, c.status, r.Verdict.Status, "%+v", r.Verdict)
			assert.Equal(t, c.phase, r.Verdict.Phase)
			assert.Equal(t, c.cause, r.Verdict.Cause)
			assert.Equal(t, c.evidenceInFile, r.Verdict.Evidence.File)
			var text strings.Builder
			require.NoError(t, r.WriteText(&text))
			assert.True(t, strings.HasPrefix(text.String(), "verdict: "))
			_, err := json.Marshal(r)
			require.NoError(t, err)
		})
	}
}

func TestQuoteKeepsCause(t *testing.T) {
	long := strings.Repeat("copy docker://one to docker://two: ", 30)
	got := quote(long + "no space left on device" + strings.Repeat(" and more", 60))
	assert.Contains(t, got, "no space left on device")
	assert.True(t, strings.HasPrefix(got, "copy docker://one"))
	assert.LessOrEqual(t, len([]rune(got)), maxText)
	assert.Equal(t, "short", quote("short"))
}

// TestFailedRunIsQuoted reads the log of a build whose RUN failed under chroot isolation, as the engine wrote it.
func TestFailedRunIsQuoted(t *testing.T) {
	const log = "20261125T231205.327-2eab280dcd8c.log"
	const failure = `build failed (user) in containerfile, line 7: RUN make: building at STEP \"RUN make\": while running ` +
		`runtime: exit status 7 (exit code 7); correct it; full log: /var/lib/dayone/build/master/logs/` + log
	const text = "PHASE: containerfile\nRUN uses isolation chroot: no runtime works here\nSTEP: FROM base\n" +
		"Copying blob sha256:1\nSTEP: RUN make\ngcc: thing.c: no such thing\nmake: *** [thing] Error 7\n" +
		"subprocess exited with status 7\n"
	const failed = `{"version":1,"phases":[{"name":"build-master","title":"t","status":"failed",` +
		`"started":"2026-01-02T10:00:00Z","error":"` + failure + `"}]}`
	const records = `[{"phase":"service start"},{"phase":"stage start","stage":"build-master"},{"phase":"stage end",` +
		`"stage":"build-master","result":"failure","errorMessage":"` + failure + `"},` +
		`{"phase":"service end","result":"failure"}]`
	for _, c := range []struct {
		name, logFile string
		files         map[string]string
	}{
		{"what dayone keeps for the installer's bundle", keptDir + "/build-logs/master/logs/" + log,
			map[string]string{keptDir + "/journal.json": failed}},
		{"dayone's bundle", logsName + "/master/logs/" + log, map[string]string{journalName: failed}},
		{"the installer's bundle", keptDir + "/build-logs/master/logs/" + log,
			map[string]string{"bootstrap/services/dayone-bootstrap.json": records}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.files[c.logFile] = text
			v := Bundle(made(t, c.files)).Verdict
			assert.Equal(t, "a command of the Containerfile failed at line 7: RUN make (exit code 7)", v.Summary)
			assert.Equal(t, Evidence{c.logFile, 7, "make: *** [thing] Error 7"}, v.Evidence)
			assert.Equal(t, []string{"gcc: thing.c: no such thing", "make: *** [thing] Error 7"}, v.Output)
			assert.Equal(t, "correct line 7 of the Containerfile of pool master; try it with dayone build --dir DIR --pool "+
				"master, then start the installation again", v.Next)
		})
	}
}

// TestNodesAreNamed: which master is stuck, and why.
func TestNodesAreNamed(t *testing.T) {
	const served = `{"version":1,"phases":[{"name":"serve","title":"t","status":"done"}],"endpoints":{"registry":"r"}}`
	const state = `{"running":true,"gathered":"2026-01-02T10:05:00Z"}`
	row := func(name, stage, more string) string {
		return `{"address":"10.0.0.` + name + `","name":"master-` + name + `","pool":"master","stage":"` + stage +
			`","since":"2026-01-02T10:01:00Z","seen":"2026-01-02T10:03:00Z"` + more + `}`
	}
	well := row("0", "booted", `,"boots":2`)
	silent := row("1", "pulling", `,"bytes":310000000,"total":900000000,"lastByte":"2026-01-02T10:03:00Z"`)
	failed := row("2", "failed", `,"class":"DiskFull","reason":"import layer: no space left on device"`)
	const mco = `,"byMCO":true,"total":900000000,"lastByte":"2026-01-02T10:03:00Z"`
	reboots := row("3", "pulling", mco+`,"bytes":310000000`)
	over := row("4", "pulling", mco+`,"bytes":310000000,"tries":6`)
	gaveUp := row("5", "failed", mco+`,"reason":"unexpected on-disk state"`)
	for _, c := range []struct {
		name, rows             string
		status                 Status
		phase, cause, evidence string
		next                   string
	}{
		{"all is well", well, StatusServing, "", "", "", "boot the nodes"},
		{"one is silent", well + "," + silent, StatusWaiting, "node master-1", causeNodeStuck,
			"pulls since 4m, 310 of 900 MB, no byte for 2m", "check the network"},
		{"one failed", silent + "," + failed, StatusFailed, "node master-2", causeNodeFailed,
			"failed 4m ago: import layer: no space left on device", "make room"},
		{"MCO's may reboot", reboots, StatusServing, "", "", "", "boot the nodes"},
		{"MCO's starts over", reboots + "," + over, StatusWaiting, "node master-4", causeNodeStuck,
			"pulls since 4m, 310 of 900 MB, came for it 6 times, no byte for 2m (this host does not see whether it stages or " +
				"reboots)", "machine-config-daemon-firstboot"},
		{"MCO's daemon gave up", over + "," + gaveUp, StatusFailed, "node master-5", causeNodeFailed,
			"failed 4m ago, says MCO's daemon on it: unexpected on-disk state", "oc describe node master-5"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := Bundle(made(t, map[string]string{journalName: served, statusName: state,
				nodesName: `{"version":1,"nodes":[` + c.rows + `]}`}))
			v := r.Verdict
			assert.Equal(t, []any{c.status, c.phase, c.cause, c.evidence},
				[]any{v.Status, v.Phase, v.Cause, v.Evidence.Text})
			assert.Contains(t, v.Next, c.next)
			var text strings.Builder
			require.NoError(t, r.WriteText(&text))
			assert.Contains(t, text.String(), "nodes:\n")
		})
	}
}

func TestADegradedClusterIsNamed(t *testing.T) {
	list := func(items string) string { return "{\n \"items\": [\n" + items + "\n ]\n}\n" }
	node := list(
		`{"metadata": {"name": "n0", "annotations": {"machineconfiguration.openshift.io/state": "Degraded", ` +
			`"machineconfiguration.openshift.io/reason": "disk: no space left on device"}}}`)
	pool := list(`{"metadata": {"name": "worker"}, "status": {"conditions": [{"type": "NodeDegraded", "status": "True",
"message": "node n0 wants something"}]}}`)
	v := Bundle(made(t, map[string]string{"resources/nodes.json": node})).Verdict
	assert.Equal(t, Verdict{Status: StatusDegraded, Phase: "node n0", Cause: "disk-full", Summary: v.Summary, Next: v.Next,
		Evidence: Evidence{"resources/nodes.json", 3, v.Evidence.Text}}, v)
	v = Bundle(made(t, map[string]string{"resources/nodes.json": node, "resources/machineconfigpools.json": pool})).Verdict
	assert.Equal(t, "pool worker", v.Phase)
	assert.Equal(t, Evidence{"resources/machineconfigpools.json", 4, "node n0 wants something"}, v.Evidence)
	assert.True(t, v.Bad())
	config := list(
		`{"metadata": {"name": "worker"}, "status": {"conditions": [{"type": "Degraded", "status": "True", "message": ` +
			`"gave up"}]}}`)
	const failed = `{"metadata": {"name": "a", "creationTimestamp": "2026-01-02T10:00:00Z"}, ` +
		`"spec": {"machineOSConfig": {"name": "worker"}}, "status": {"conditions": [{"type": "Failed", "status": "True",
"message": "RUN failed\nclass: user\nnext: mend line 3\noutput:\n  no"}]}}`
	builds := list(failed)
	v = Bundle(made(t, map[string]string{"resources/machineosconfigs.json": config, buildsFile: builds})).Verdict
	assert.Equal(t, []any{"machineosconfig worker", "containerfile", "mend line 3", 4},
		[]any{v.Phase, v.Cause, v.Next, v.Evidence.Line})
	r := Bundle(made(t, map[string]string{"resources/nodes.json": node, "resources/machineconfigpools.json": pool,
		"resources/machineosconfigs.json": list(`{"metadata": {"name": "infra"}, "status": {"conditions": [{"type": ` +
			`"Degraded", "status": "True", "message": "there is no Secret"}, {"type": "OptedIn", "status": "False"}]}},` +
			`{"metadata": {"name": "worker"}, "status": {"conditions": [{"type": "Degraded", "status": "True", "message": ` +
			`"node n0 wants something"}]}}`),
		buildsFile: list(strings.ReplaceAll(failed, "worker", "infra"))}))
	phases := []string{r.Verdict.Phase}
	for _, v := range r.Also {
		phases = append(phases, v.Phase)
	}
	assert.Equal(t, []string{"machineosconfig infra", "machineosconfig worker", "node n0"}, phases,
		"all of them, but for the pool, which says the same as its MachineOSConfig")
	assert.Equal(t, "there is no Secret", r.Verdict.Evidence.Text, "an earlier build's failure is not why")
	r = Bundle(made(t, map[string]string{"resources/nodes.json": "{"}))
	assert.Equal(t, StatusCluster, r.Verdict.Status)
	assert.NotEmpty(t, r.Notes)
}

func TestTextHasNoControlCharacters(t *testing.T) {
	journal := strings.Replace(running, "import the base image", `import\u001b[2J it`, 1)
	var text strings.Builder
	require.NoError(t, Bundle(made(t, map[string]string{journalName: journal})).WriteText(&text))
	assert.NotContains(t, text.String(), "\x1b")
}

func TestTheRenderingsAreCompared(t *testing.T) {
	pool := func(name string) string { return "status: {configuration: {name: " + name + "}}\n" }
	config := func(name, image, file string) string {
		return "metadata: {name: " + name + "}\nspec:\n  osImageURL: " + image +
			"\n  kernelArguments: [quiet]\n  config: {storage: {files: [{path: /etc/motd, mode: 420, contents: {source: " +
			file + "}}]}}\n"
	}
	r := Bundle(made(t, map[string]string{
		firstDir + "/machine-pools/master.yaml":              pool("rendered-master-a"),
		firstDir + "/machine-configs/rendered-master-a.yaml": config("rendered-master-a", "base", "same"),
		finalDir + "/machine-pools/master.yaml":              pool("rendered-master-b"),
		finalDir + "/machine-configs/rendered-master-b.yaml": config("rendered-master-b", "built", "same"),
		finalDir + "/machine-pools/worker.yaml":              pool("../../../etc/passwd"),
		finalDir + "/machine-configs/unrelated.yaml":         "spec: {}",
	}))
	assert.Equal(t, []Difference{{"master", "name", "rendered-master-a", "rendered-master-b"},
		{"master", "osImageURL", "base", "built"}}, r.Differences)
}

func FuzzBundle(f *testing.F) {
	f.Add([]byte(running), []byte(`[{"phase":"stage end","result":"failure"}]`), []byte("spec: {a: [b]}"))
	f.Fuzz(func(t *testing.T, journal, records, config []byte) {
		r := Bundle(made(t, map[string]string{journalName: string(journal), outcomeName: string(journal),
			statusName: string(records), servicesName + "/bootkube.json": string(records),
			finalDir + "/machine-pools/master.yaml": "status: {configuration: {name: a}}", finalDir +
				"/machine-configs/a.yaml": string(config),
			firstDir + "/machine-pools/master.yaml": "status: {configuration: {name: a}}", firstDir +
				"/machine-configs/a.yaml": "spec: {b: c}"}))
		var text strings.Builder
		require.NoError(t, r.WriteText(&text))
		require.NotContains(t, text.String(), "\x1b")
	})
}
