package upstream_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"strconv"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

const (
	// seedEnv and casesEnv repeat a run or make it longer.
	seedEnv  = "DAYONE_SEED"
	casesEnv = "DAYONE_TEST_CASES"
	// cases is how many random directories one run renders.
	cases = 25
)

// number is that of an environment variable.
func number(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	raw := os.Getenv(name)
	if raw == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(raw, 10, 64)
	require.NoError(t, err, name)
	return n
}

// some makes random values.
type some struct{ *rand.Rand }

// one of the values.
func one[T any](r some, values ...T) T { return values[r.IntN(len(values))] }

// often says yes in so many of a hundred cases.
func (r some) often(percent int) bool { return r.IntN(100) < percent }

// words are texts that YAML and systemd write in different ways.
func (r some) words() string {
	return one(r, "x\n", "yes", "0x1f", "12:30", "a: b # c", " lead", "trail ", "tab\there", "line one\nline two\n",
		"\n\n", "ü € 漢", "'single' \"double\"", "1e3", "~", "- item", "{a: b}", "%h/x", "back\\slash",
		"a long line that goes on and on, past the column at which writers of YAML begin to fold plain text\nnext")
}

// contents is what a file entry says of its bytes.
func (r some) contents(v3 bool) map[string]any {
	content := r.words()
	switch {
	case r.often(15):
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		_, _ = w.Write([]byte(content))
		_ = w.Close()
		out := map[string]any{"source": "data:;base64," + base64.StdEncoding.EncodeToString(packed.Bytes())}
		if v3 {
			out["compression"] = "gzip"
		}
		return out
	case r.often(40):
		return map[string]any{"source": "data:text/plain;charset=utf-8;base64," +
			base64.StdEncoding.EncodeToString([]byte(content))}
	case r.often(5):
		return map[string]any{"source": "https://example.com/file", "verification": map[string]any{
			"hash": fmt.Sprintf("sha512-%0128x", 7)}}
	default:
		return map[string]any{"source": "data:," + url.PathEscape(content)}
	}
}

func (r some) file(v3 bool) map[string]any {
	f := map[string]any{"path": fmt.Sprintf("/etc/random/%c", 'a'+rune(r.IntN(6))),
		"mode": one(r, 420, 384, 493, 256, 0o1644), "contents": r.contents(v3)}
	if !v3 {
		f["filesystem"] = "root"
		return f
	}
	if r.often(50) {
		f["overwrite"] = r.often(70)
	}
	if r.often(20) {
		f["user"] = one(r, map[string]any{"name": "core"}, map[string]any{"id": 1000})
		f["group"] = map[string]any{"name": "root"}
	}
	return f
}

func (r some) unit() map[string]any {
	u := map[string]any{"name": one(r, "a.service", "b.timer", "kubelet.service", "c@d.service")}
	switch r.IntN(4) {
	case 0:
		u["mask"] = true
	case 1:
		u["dropins"] = []any{map[string]any{"name": one(r, "10-x.conf", "50-y.conf"),
			"contents": "[Service]\nEnvironment=\"A=" + one(r, "b", "c d") + "\"\n"}}
	default:
		u["contents"] = "[Unit]\nDescription=" + one(r, "a", "b: c", "'d'") + "\n[Install]\nWantedBy=multi-user.target\n"
		u["enabled"] = r.often(50)
	}
	return u
}

// ignition is a config in one of the versions that the operator reads, or now and then in one that it does not.
func (r some) ignition() map[string]any {
	version := one(r, "2.2.0", "3.0.0", "3.1.0", "3.2.0", "3.3.0", "3.4.0", "3.5.0")
	if r.often(4) {
		version = one(r, "2.4.0", "3.6.0", "1.0.0", "")
	}
	v3 := version >= "3"
	files, units := []any{}, []any{}
	for range r.IntN(4) {
		files = append(files, r.file(v3))
	}
	for range r.IntN(3) {
		units = append(units, r.unit())
	}
	c := map[string]any{"ignition": map[string]any{"version": version}, "storage": map[string]any{"files": files},
		"systemd": map[string]any{"units": units}}
	if r.often(20) {
		c["passwd"] = map[string]any{"users": []any{map[string]any{"name": one(r, "core", "core", "other"),
			"sshAuthorizedKeys": []any{"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI" + strconv.Itoa(r.IntN(9))}}}}
	}
	return c
}

// spec is that of a MachineConfig.
func (r some) spec() map[string]any {
	spec := map[string]any{}
	if r.often(85) {
		spec["config"] = r.ignition()
	}
	if r.often(30) {
		spec["kernelArguments"] = []any{one(r, "audit=1", "quiet", "a='b c'", "on", "rd.x=0x10"), "nosmt"}[:1+r.IntN(2)]
	}
	if r.often(10) {
		spec["extensions"] = []any{one(r, "usbguard", "usbguard", "kerberos", "ipsec", "nonsense")}
	}
	if r.often(10) {
		spec["kernelType"] = one(r, "default", "realtime", "64k-pages", "odd")
	}
	if r.often(10) {
		spec["fips"] = r.often(70)
	}
	if r.often(8) {
		spec["osImageURL"] = one(r, image("own"), "registry.example.com/ocp/own:1", "")
	}
	return spec
}

// directory is what a user adds to an installation.
func (r some) directory(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	write := func(name string, o any) {
		raw, err := yaml.Marshal(o)
		require.NoError(t, err)
		files[name] = string(raw)
	}
	pools := []string{"master", "worker"}
	if r.often(50) {
		files["99_infra-pool.yaml"] = infraPool
		pools = append(pools, "infra")
	}
	for _, pool := range pools {
		if r.often(50) {
			files["99_mosc-"+pool+".yaml"] = layered(pool)
		}
		for range r.IntN(4) {
			name := fmt.Sprintf("%s-%s-%d", one(r, "00-a", "99-y", "99-z"), pool, r.IntN(3))
			write("99_"+name+".yaml", map[string]any{"apiVersion": "machineconfiguration.openshift.io/v1",
				"kind": "MachineConfig", "metadata": map[string]any{"name": name,
					"labels": map[string]any{"machineconfiguration.openshift.io/role": pool}}, "spec": r.spec()})
		}
	}
	return files
}

// TestRandomDirectories gives the real controller and dayone the same random directories: both refuse, or both write
// the same.
func TestRandomDirectories(t *testing.T) {
	m := run.mco(t)
	rendered, refused := 0, 0
	seed := number(t, seedEnv, uint64(time.Now().UnixNano()))
	t.Logf("%s=%d", seedEnv, seed)
	run.record(t, func() string {
		return fmt.Sprintf("%d rendered the same, %d refused by both; seed %d", rendered, refused, seed)
	})
	b := m.operator(t, arrangement{name: "none", platform: configv1.PlatformStatus{Type: configv1.NonePlatformType}})
	plain, out, err := m.controller(t, b.with(t, poolsOnly()))
	require.NoError(t, err, out)
	brought, versions := components(t, plain), versionsIn(t, b, plain)
	for i := range number(t, casesEnv, cases) {
		t.Run(strconv.FormatUint(i, 10), func(t *testing.T) {
			files := some{rand.New(rand.NewPCG(seed, i))}.directory(t)
			theirs, said, refusal := m.controller(t, b.with(t, files))
			ours, out, err := run.render(t, b.with(t, brought).with(t, files), versions)
			if refusal != nil {
				if assert.Error(t, err, "the controller refuses this: %s\n%v", said, files) {
					refused++
				}
				return
			}
			require.NoError(t, err, "%s\n%v", out, files)
			same(t, theirs, ours)
			rendered++
		})
	}
}
