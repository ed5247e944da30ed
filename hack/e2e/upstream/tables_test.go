package upstream_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	opv1 "github.com/openshift/api/operator/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/rebase/disruption"
)

// sourceEnv names a checkout of MCO's source with its vendor directory.
const sourceEnv = "DAYONE_TEST_MCO_SOURCE"

// heard is one case of MCO's own tests, and what MCO's daemon makes of it.
type heard struct {
	Table    string                `json:"table"`
	Old, New *mcfgv1.MachineConfig `json:",omitempty"`
	// Was and Is are the nodes' own images.
	Was, Is string `json:",omitempty"`
	// Path and Policies are those of the table of paths.
	Path     string                                `json:",omitempty"`
	Policies []opv1.NodeDisruptionPolicyStatusFile `json:",omitempty"`
	Actions  []opv1.NodeDisruptionPolicyStatusAction
	Found    bool `json:",omitempty"`
	Drain    bool `json:",omitempty"`
	OS       bool `json:",omitempty"`
	Reverts  bool `json:",omitempty"`
	Passwd   bool `json:",omitempty"`
}

// ears goes into MCO's package of tests: it writes down each case.
const ears = `package daemon

import (
	"encoding/json"
	"os"

	ign3types "github.com/coreos/ignition/v2/config/v3_5/types"
	opv1 "github.com/openshift/api/operator/v1"

	"github.com/openshift/machine-config-operator/pkg/apihelpers"
)

func hear(table string, c map[string]any) {
	c["table"] = table
	f, err := os.OpenFile(os.Getenv("HEARD"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	if err := json.NewEncoder(f).Encode(c); err != nil {
		panic(err)
	}
}

func hearActions(old, new any, diff *machineConfigDiff, files []string, was, is ign3types.Config) {
	actions := []opv1.NodeDisruptionPolicyStatusAction{{Type: opv1.RebootStatusAction}}
	if !diff.osUpdate && !diff.kargs && !diff.fips && !diff.kernelType && !diff.extensions {
		actions = calculatePostConfigChangeNodeDisruptionActionFromMCDiffs(diff.passwd, files, nil,
			apihelpers.MergeClusterPolicies(opv1.NodeDisruptionPolicyConfig{}))
	}
	drain, err := isDrainRequiredForNodeDisruptionActions(actions, was, is)
	if err == nil { // it cannot read the tables' made-up files
		hear("actions", map[string]any{"Old": old, "New": new, "Actions": actions, "Drain": drain})
	}
}
`

// asks are the lines of MCO's tests after which a case is written down, by file.
var asks = map[string]map[string]string{
	"drain_test.go": {"drain, err := isDrainRequired(test.actions, diffFileSet, oldIgnConfig, newIgnConfig)": `
		if len(test.actions) == 1 {
			hear("drain", map[string]any{"Old": test.oldConfig, "New": test.newConfig, "Drain": drain})
		}`},
	"update_test.go": {
		"pathFound, actionsFound := ctrlcommon.FindClosestFilePolicyPathMatch(test.diffPath, test.filePolicies)": `
		hear("paths", map[string]any{"Path": test.diffPath, "Policies": test.filePolicies, "Found": pathFound,
			"Actions": actionsFound})`,
		"calculatedAction, err := calculatePostConfigChangeAction(mcDiff, diffFileSet)": `
		hearActions(test.oldConfig, test.newConfig, mcDiff, diffFileSet, oldIgnConfig, newIgnConfig)`,
		"diff, err = newMachineConfigDiff(testCase.baseMC, newMC)": `
		hear("passwd", map[string]any{"Old": testCase.baseMC, "New": newMC, "Passwd": diff.passwd})`,
		"diff, err := newMachineConfigDiff(testCase.oldMC, testCase.newMC)": `
		oldMC, was := extractOCLImageFromMachineConfig(testCase.oldMC)
		newMC, is := extractOCLImageFromMachineConfig(testCase.newMC)
		hear("images", map[string]any{"Old": oldMC, "New": newMC, "Was": was, "Is": is, "OS": diff.osUpdate,
			"Reverts": diff.revertFromOCL})`,
	},
}

// TestTables runs MCO's own tables (drains, paths of policies, actions, comparison of configs) with MCO's code, and
// asks the effect calculator for the same cases. MCO's files are changed in an overlay of the compiler, not on disk.
func TestTables(t *testing.T) {
	source := os.Getenv(sourceEnv)
	if source == "" {
		run.add(t.Name(), "left out: "+sourceEnv+" is not set")
		t.Skip(sourceEnv + " names no checkout of MCO's source")
	}
	counts := map[string]int{}
	run.record(t, func() string { return fmt.Sprint("equal cases: ", counts) })
	for _, c := range tablesOf(t, source) {
		counts[c.Table]++
		name := fmt.Sprintf("%s-%d", c.Table, counts[c.Table])
		switch c.Table {
		case "paths":
			assert.Equal(t, wantedOfPath(c), effectOfPath(t, c), name)
			continue
		}
		old, is := renamed(c.Old, "old"), renamed(c.New, "new")
		if c.Table == "images" && assert.ObjectsAreEqual(c.Old, c.New) {
			is.Name = old.Name
		}
		plan := effect(t, nil, disruption.Way{From: old, To: is, Was: c.Was, Is: c.Is})
		words, drain, reboots := inWords(plan)
		switch c.Table {
		case "drain":
			assert.Equal(t, c.Drain, drain, "%s: %+v", name, plan.Changes)
		case "actions":
			assert.Equal(t, c.Drain, drain, "%s: %+v", name, plan.Changes)
			assert.ElementsMatch(t, wordsOf(c.Actions), words, "%s: %+v", name, plan.Changes)
		case "passwd":
			assert.Equal(t, c.Passwd, slices.ContainsFunc(plan.Changes,
				func(change disruption.Change) bool { return change.Kind == "sshkey" }), name)
		case "images":
			assert.Equal(t, c.OS, reboots > 0, "%s: %+v", name, plan)
			assert.Equal(t, c.Reverts, reboots > 1, "%s: %+v", name, plan)
		}
	}
	for _, table := range []string{"drain", "paths", "actions", "passwd", "images"} {
		assert.NotZero(t, counts[table], "MCO's tests no longer have the lines that %s waits for", table)
	}
}

// tablesOf runs MCO's tests and gives what they wrote down.
func tablesOf(t *testing.T, source string) []heard {
	t.Helper()
	dir := t.TempDir()
	replace := map[string]string{}
	lay := func(name string, text string) {
		at := filepath.Join(dir, filepath.Base(name))
		require.NoError(t, os.WriteFile(at, []byte(text), 0o600))
		replace[filepath.Join(source, "pkg/daemon", name)] = at
	}
	lay("dayone_ears_test.go", ears)
	for name, lines := range asks {
		raw, err := os.ReadFile(filepath.Join(source, "pkg/daemon", name))
		require.NoError(t, err)
		text := string(raw)
		for line, then := range lines {
			text = strings.ReplaceAll(text, line+"\n", line+"\n"+then+"\n")
		}
		lay(name, text)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	at := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(at, overlay, 0o600))
	tests := "^(" + strings.Join([]string{"TestIsDrainRequired", "TestFindClosestFilePolicyPathMatch",
		"TestCalculatePostConfigChangeAction", "TestMachineConfigDiff"}, "|") + ")$"
	cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-overlay", at, "-run", tests, "./pkg/daemon")
	said := filepath.Join(dir, "heard")
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "HEARD="+said, "GOFLAGS=-mod=vendor -buildvcs=false -trimpath -ldflags=-w "+
		"-tags=containers_image_openpgp,exclude_graphdriver_btrfs,exclude_graphdriver_devicemapper")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	raw, err := os.ReadFile(said)
	require.NoError(t, err)
	var all []heard
	for lines := bufio.NewReader(bytes.NewReader(raw)); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return all
		}
		var c heard
		require.NoError(t, json.Unmarshal(line, &c), "%s", line)
		all = append(all, c)
	}
}

func renamed(mc *mcfgv1.MachineConfig, name string) *mcfgv1.MachineConfig {
	out := mc.DeepCopy()
	out.Name = "rendered-worker-" + name
	return out
}

func effect(t *testing.T, object *opv1.MachineConfiguration, way disruption.Way) disruption.Plan {
	t.Helper()
	settings, err := disruption.ReadFor(disruption.ActorMCO, object)
	require.NoError(t, err)
	plan, err := disruption.Effect(way.Input(settings))
	require.NoError(t, err)
	return plan
}

// inWords are the steps of a plan beside drains.
func inWords(p disruption.Plan) (words []string, drain bool, reboots int) {
	for _, s := range p.Steps {
		switch s.Type {
		case disruption.Drain:
			drain = true
			continue
		case disruption.Reboot:
			reboots++
		}
		words = append(words, s.String())
	}
	return words, drain, reboots
}

// wordsOf are actions as the calculator writes them; None is no step.
func wordsOf(actions []opv1.NodeDisruptionPolicyStatusAction) (words []string) {
	for _, a := range actions {
		switch a.Type {
		case opv1.NoneStatusAction, opv1.DrainStatusAction:
		case opv1.SpecialStatusAction:
			words = append(words, "Reload crio.service")
		case opv1.RestartStatusAction:
			words = append(words, "Restart "+string(a.Restart.ServiceName))
		case opv1.ReloadStatusAction:
			words = append(words, "Reload "+string(a.Reload.ServiceName))
		default:
			words = append(words, string(a.Type))
		}
	}
	return words
}

func wantedOfPath(c heard) []string {
	if !c.Found {
		return []string{"Reboot"}
	}
	return wordsOf(c.Actions)
}

// effectOfPath adds the file to a node whose only policies are the case's.
func effectOfPath(t *testing.T, c heard) []string {
	t.Helper()
	raw, err := json.Marshal(map[string]any{"spec": map[string]any{"nodeDisruptionPolicy": map[string]any{
		"files": c.Policies}}})
	require.NoError(t, err)
	object := &opv1.MachineConfiguration{}
	require.NoError(t, json.Unmarshal(raw, object))
	config := func(files string) *mcfgv1.MachineConfig {
		mc := &mcfgv1.MachineConfig{}
		mc.Spec.Config.Raw = []byte(`{"ignition":{"version":"3.5.0"},"storage":{"files":[` + files + `]}}`)
		return mc
	}
	plan := effect(t, object, disruption.Way{From: renamed(config(""), "old"),
		To: renamed(config(fmt.Sprintf(`{"path":%q,"contents":{"source":"data:,x"}}`, c.Path)), "new")})
	words, _, _ := inWords(plan)
	return words
}
