package hostjournal

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestAHostWithoutSystemd has no journal: whoever follows it is told so, and gives up.
func TestAHostWithoutSystemd(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := Journal{}.FinalizeFailure(t.Context())
	require.ErrorIs(t, err, exec.ErrNotFound)
	err = Journal{}.Logins(t.Context(), "", func(string) { t.Error("nobody can have logged in") })
	require.ErrorIs(t, err, exec.ErrNotFound)
}

func TestTheLastComplaintOfAFinalizationCounts(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"nothing", "", ""},
		{"went well", "Finalizing staged deployment\nCopying /etc changes: 3 modified\nFinalized deployment\n", ""},
		{"failed", "Finalizing staged deployment\nerror: opendir(boot): No space left\nother: x\n",
			"error: opendir(boot): No space left"},
		{"two", "error: one\n  error: two\n", "error: two"},
		{"the next soft reboot of this boot went well", "error: one\nFinalized deployment\n", ""},
		{"in a line", "no error: here", ""},
	} {
		t.Run(c.name, func(t *testing.T) { assert.Equal(t, c.want, failureIn(c.text)) })
	}
}

func TestEntriesOfSessions(t *testing.T) {
	for _, c := range []struct {
		name, entry, cursor string
		is                  bool
	}{
		{"session", `{"__CURSOR":"s=1;i=2","MESSAGE":"New session 3 of user core.","_PID":"1"}`, "s=1;i=2", true},
		{"service manager", `{"__CURSOR":"s=1;i=2","MESSAGE":"New session '4' of user 'core' with class 'manager' and type 'x'."}`,
			"s=1;i=2", false},
		{"early service manager", `{"__CURSOR":"s","MESSAGE":"New session '4' of user 'core' with class 'manager-early'."}`,
			"s", false},
		{"no entry", `{"MESSAGE":"New session 3 of user core."}`, "", false},
		{"bytes", `{"__CURSOR":"s","MESSAGE":[1,2]}`, "", false},
		{"spoiled", `{"__CURSOR":`, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			cursor, is := login([]byte(c.entry))
			assert.Equal(t, c.is, is)
			if is {
				assert.Equal(t, c.cursor, cursor)
			}
		})
	}
}

func FuzzLogin(f *testing.F) {
	f.Add([]byte(`{"__CURSOR":"s=1;i=2","MESSAGE":"New session 3 of user core."}`))
	f.Fuzz(func(t *testing.T, entry []byte) {
		if cursor, is := login(entry); is {
			assert.NotEmpty(t, cursor)
		}
	})
}
