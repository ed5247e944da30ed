package standalone_test

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/bootstrap/phasetest"
	"dayone.dev/dayone/build/sign"
	"dayone.dev/dayone/hack/cmdlines"
	"dayone.dev/dayone/installconfig"
)

// plant puts the canaries wherever an install directory has secrets, and lets a RUN print those that it can read.
func plant(t *testing.T, c phasetest.Canaries, b *bench) {
	t.Helper()
	edit := func(name string, pairs ...string) {
		file := filepath.Join(b.order.Dir, name)
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		for i := 0; i < len(pairs); i += 2 {
			require.Contains(t, string(raw), pairs[i])
		}
		require.NoError(t, os.WriteFile(file, []byte(strings.NewReplacer(pairs...).Replace(string(raw))), 0o600))
	}
	const sampleAuths = `{"auths":{"registry.example.com":{"auth":"%s="}}}`
	push, pull := fmt.Sprintf(sampleAuths, "ZGVtby1wdXNoOm5vdC1hLXJlYWwtcGFzc3dvcmQ"),
		fmt.Sprintf(sampleAuths, "ZGVtby1wdWxsOm5vdC1hLXJlYWwtcGFzc3dvcmQ")
	edit("layering/secrets.yaml", push, phasetest.Auths(c["push"]), pull, phasetest.Auths(c["base"]))
	edit(installconfig.FileName, pull, phasetest.Auths(c["pull"]), "sshKey:", "proxy:\n  httpProxy: http://proxy:"+
		url.QueryEscape(c["proxy"])+"@192.0.2.1:3128\n  noProxy: .example.com,192.168.77.1,127.0.0.1,"+
		phasetest.HostAddress(t)+"\nsshKey:")
	edit("layering/master.yaml", "RUN GREETING", phasetest.PrintCanaries+"\n      RUN GREETING")
	require.NoError(t, os.WriteFile(filepath.Join(b.order.Dir, "openshift/70-canary.json"), c.MachineConfig(t), 0o600))
}

// TestCanariesStayInside runs a Day 1 whose install directory has a canary wherever there are secrets, and finds none
// in output, in logs and journal, in files that others may read, in arguments of processes, in image configs.
func TestCanariesStayInside(t *testing.T) {
	b := newBench(t)
	c := phasetest.NewCanaries("push", "base", "pull", "proxy", "file", "unit", "hash")
	plant(t, c, b)
	stop := cmdlines.Watch()
	t.Cleanup(func() { stop() })
	ended := phasetest.Start(t, b.order)()
	arguments := stop()
	require.NoError(t, ended.Err, ended.Log)

	state := b.order.State
	c.Made(t, state)
	for _, line := range arguments {
		assert.Empty(t, c.Found(line), line)
	}
	assert.Contains(t, c, sign.KeyFile)
	assert.Contains(t, c, sign.PassphraseFile)
	assert.Empty(t, c.Found(ended.Log+strings.Join(ended.Events, "\n")), "output")
	c.Inside(t, state)
	assert.NotEmpty(t, c.Found(readBelow(t, filepath.Join(state, "rendered"))), "what nodes get has them")
}

func readBelow(t *testing.T, dir string) string {
	t.Helper()
	var out strings.Builder
	require.NoError(t, filepath.WalkDir(dir, func(file string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			var raw []byte
			raw, err = os.ReadFile(file)
			out.Write(raw)
		}
		return err
	}))
	return out.String()
}
