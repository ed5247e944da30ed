package machineosbuild_test

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/machineosbuild"
)

func at(seconds int) time.Time { return time.Unix(1_700_000_000+int64(seconds), 600_000_000) }

func TestMoves(t *testing.T) {
	legal := map[string]string{
		"Initial":  "Prepared Building Succeeded Failed Interrupted",
		"Prepared": "Building Succeeded Failed Interrupted",
		"Building": "Succeeded Failed Interrupted",
	}
	states := []machineosbuild.State{machineosbuild.Initial, machineosbuild.Prepared, machineosbuild.Building,
		machineosbuild.Succeeded, machineosbuild.Failed, machineosbuild.Interrupted}
	for _, from := range states {
		for _, to := range states {
			b := &mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: "worker-1"}}
			require.NoError(t, machineosbuild.Move(b, machineosbuild.Initial, machineosbuild.Cause{}, at(0)))
			if from != machineosbuild.Initial {
				require.NoError(t, machineosbuild.Move(b, from, machineosbuild.Cause{}, at(1)))
			}
			before := b.DeepCopy()
			err := machineosbuild.Move(b, to, machineosbuild.Cause{Message: "because"}, at(2))
			if strings.Contains(legal[string(from)], string(to)) {
				require.NoError(t, err, "%s to %s", from, to)
				assert.Equal(t, to, machineosbuild.StateOf(b))
				continue
			}
			require.Error(t, err, "%s to %s", from, to)
			assert.Equal(t, before, b, "an illegal move changes nothing")
			assert.Contains(t, err.Error(), "worker-1")
		}
	}
}

func TestMoveStatus(t *testing.T) {
	for name, path := range map[string][]machineosbuild.State{
		"a build that was refused before it began": {machineosbuild.Failed},
		"a build that found its image":             {machineosbuild.Succeeded},
		"a whole build": {machineosbuild.Initial, machineosbuild.Prepared,
			machineosbuild.Building, machineosbuild.Succeeded},
		"a build that was interrupted while it ran": {machineosbuild.Prepared, machineosbuild.Building,
			machineosbuild.Interrupted},
		"a build whose pod nobody saw while it ran":   {machineosbuild.Prepared, machineosbuild.Failed},
		"a build that was seen building at the first": {machineosbuild.Building, machineosbuild.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			b := &mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Generation: 1}}
			for _, s := range path { // all in the same second: the quickest build there can be
				require.NoError(t, machineosbuild.Move(b, s, machineosbuild.Cause{}, at(0)))
				assert.Len(t, b.Status.Conditions, 5)
				yes := 0
				for _, c := range b.Status.Conditions {
					assert.NotEmpty(t, c.Reason)
					assert.NotEmpty(t, c.Message)
					assert.False(t, c.LastTransitionTime.IsZero())
					if c.Status == metav1.ConditionTrue {
						yes++
						assert.Equal(t, string(s), c.Type)
					}
				}
				if s != machineosbuild.Initial {
					assert.Equal(t, 1, yes, "one condition is True")
					require.NotNil(t, b.Status.BuildStart)
				}
			}
			require.NotNil(t, b.Status.BuildEnd)
			assert.GreaterOrEqual(t, b.Status.BuildEnd.Unix(), b.Status.BuildStart.Unix()+1, "strictly later in whole seconds")
		})
	}
}

func TestMoveClockSetBack(t *testing.T) {
	b := &mcfgv1.MachineOSBuild{}
	require.NoError(t, machineosbuild.Move(b, machineosbuild.Building, machineosbuild.Cause{}, at(100)))
	require.NoError(t, machineosbuild.Move(b, machineosbuild.Succeeded, machineosbuild.Cause{}, at(0)))
	assert.Equal(t, b.Status.BuildStart.Unix()+1, b.Status.BuildEnd.Unix())
}

func TestMoveKeepsTimes(t *testing.T) {
	b := &mcfgv1.MachineOSBuild{}
	require.NoError(t, machineosbuild.Move(b, machineosbuild.Prepared, machineosbuild.Cause{}, at(0)))
	start := *b.Status.BuildStart
	require.NoError(t, machineosbuild.Move(b, machineosbuild.Building, machineosbuild.Cause{}, at(10)))
	require.NoError(t, machineosbuild.Move(b, machineosbuild.Failed, machineosbuild.Cause{}, at(20)))
	assert.Equal(t, start, *b.Status.BuildStart)
	assert.Equal(t, at(20).Unix(), b.Status.BuildEnd.Unix())
	for _, c := range b.Status.Conditions {
		switch c.Type {
		case "Building", "Failed":
			// Building became False and Failed True in the last move.
			assert.Equal(t, at(20).Unix(), c.LastTransitionTime.Unix(), c.Type)
		case "Succeeded", "Interrupted":
			assert.Equal(t, at(0).Unix(), c.LastTransitionTime.Unix(), c.Type)
		}
	}
}

func TestStateOf(t *testing.T) {
	assert.Equal(t, machineosbuild.Initial, machineosbuild.StateOf(nil))
	assert.Equal(t, machineosbuild.Initial, machineosbuild.StateOf(&mcfgv1.MachineOSBuild{}))
	b := &mcfgv1.MachineOSBuild{Status: mcfgv1.MachineOSBuildStatus{Conditions: []metav1.Condition{
		{Type: "Building", Status: metav1.ConditionTrue}, {Type: "Failed", Status: metav1.ConditionTrue},
		{Type: "Succeeded", Status: metav1.ConditionUnknown},
	}}}
	assert.Equal(t, machineosbuild.Failed, machineosbuild.StateOf(b), "a terminal condition beats all others")
}

func causes() map[string]machineosbuild.Cause {
	return map[string]machineosbuild.Cause{
		"nothing":       {},
		"a message":     {Message: "the registry did not answer"},
		"several lines": {Message: "two findings:\n- one\n\n- two", Next: "mend both\nand try again"},
		"a failing RUN": {
			Class: build.ClassUser, Line: 3, Instruction: "RUN dnf install -y nope \\\n  && true", ExitCode: 1,
			Message: "the command failed",
			Excerpt: []string{"Error: nothing provides nope", "", "  indented", "class: not a field", "next:"},
			Next:    "mend the command", Log: "r.example:5000/a/b@sha256:00",
		},
		"a message like a field": {Message: "class: user", Class: build.ClassPolicy},
	}
}

func TestCauseRoundTrip(t *testing.T) {
	for name, want := range causes() {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, want, machineosbuild.ParseCause(want.Text()))
			b := &mcfgv1.MachineOSBuild{}
			want.Reason = "PushFailed"
			require.NoError(t, machineosbuild.Move(b, machineosbuild.Failed, want, at(0)))
			got := machineosbuild.CauseOf(b)
			if want.Message == "" {
				want.Message = "The build failed"
			}
			assert.Equal(t, want, got)
		})
	}
}

func TestParseCauseOfOthers(t *testing.T) {
	for _, text := range []string{"Build Failed", "one\nIngress: two", "line: x", "\nclass", "a\n\nb"} {
		assert.Equal(t, machineosbuild.Cause{Message: text}, machineosbuild.ParseCause(text))
	}
}

func TestCauseBounded(t *testing.T) {
	long := strings.Repeat("é\xff", 40<<10)
	c := machineosbuild.Cause{Message: long, Instruction: long, Line: 1, Next: long, Log: long, Class: build.ClassUser}
	for range 4000 {
		c.Excerpt = append(c.Excerpt, long[:2000])
	}
	c.Excerpt = append(c.Excerpt, "the last line")
	text := c.Text()
	assert.Less(t, len(text), 32<<10)
	assert.True(t, utf8.ValidString(text))
	back := machineosbuild.ParseCause(text)
	assert.Equal(t, build.ClassUser, back.Class)
	assert.Equal(t, "the last line", back.Excerpt[len(back.Excerpt)-1])
	assert.Equal(t, text, back.Text(), "what was cut once stays as it is")
}

func TestCauseReason(t *testing.T) {
	for _, reason := range []string{"", "has space", "1st", strings.Repeat("x", 2000)} {
		b := &mcfgv1.MachineOSBuild{}
		require.NoError(t, machineosbuild.Move(b, machineosbuild.Failed, machineosbuild.Cause{Reason: reason}, at(0)))
		assert.Equal(t, "Failed", machineosbuild.CauseOf(b).Reason)
	}
	assert.Equal(t, "PushFailed", machineosbuild.FromFailure(&build.Failure{Step: "push"}).Reason)
	assert.Equal(t, "Failed", machineosbuild.FromFailure(&build.Failure{}).Reason)
}

func TestNames(t *testing.T) {
	address := strings.Repeat("0123456789abcdef", 4)
	assert.Equal(t, "worker-0123456789abcdef0123456789abcdef", machineosbuild.Name("worker", address))
	assert.Equal(t, "worker-0123456789abcdef0123456789abcdef-2", machineosbuild.AttemptName("worker", address, 2))
	long := strings.Repeat("a.b-", 63)
	for _, n := range []string{machineosbuild.Name(long, address), machineosbuild.AttemptName(long, address, 12),
		machineosbuild.Name("x", "ab")} {
		assert.Empty(t, validation.IsDNS1123Subdomain(n), n)
		assert.LessOrEqual(t, len(n), 253)
	}
	assert.NotEqual(t, machineosbuild.Name(long+"1", address), machineosbuild.Name(long+"2", address))
	for k, v := range machineosbuild.Labels(long, long, "rendered-"+long) {
		assert.Empty(t, validation.IsValidLabelValue(v), k)
		assert.Empty(t, validation.IsQualifiedName(k))
	}
}

func FuzzParseCause(f *testing.F) {
	for _, c := range causes() {
		f.Add(c.Text())
	}
	f.Add("a\nclass: x\noutput:\n  b\n  c\nline: 1")
	f.Fuzz(func(t *testing.T, text string) {
		c := machineosbuild.ParseCause(text)
		again := machineosbuild.ParseCause(c.Text())
		require.Equal(t, again, machineosbuild.ParseCause(again.Text()), "rendering what was parsed settles")
	})
}
