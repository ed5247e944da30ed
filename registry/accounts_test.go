package registry

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"
)

func login(t *testing.T, a *accounts, from, name, password string, now time.Time) int {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/v2/", nil)
	r.RemoteAddr = from + ":1"
	r.SetBasicAuth(name, password)
	if _, err := a.authenticate(r, now); err != nil {
		return err.status
	}
	return http.StatusOK
}

func TestBcryptOncePerPassword(t *testing.T) {
	hash, err := bcrypt.GenerateFromPassword([]byte("p"), bcrypt.MinCost)
	require.NoError(t, err)
	a, err := newAccounts([]User{{Name: "u", PasswordHash: string(hash), Role: RolePull}})
	require.NoError(t, err)
	now := time.Now()
	assert.Equal(t, http.StatusUnauthorized, login(t, a, "192.0.2.1", "u", "x", now))
	assert.Equal(t, http.StatusOK, login(t, a, "192.0.2.1", "u", "p", now))
	a.table.Load().byName["u"].hash = []byte("no hash: bcrypt would refuse it")
	assert.Equal(t, http.StatusOK, login(t, a, "192.0.2.1", "u", "p", now))
	assert.Equal(t, http.StatusUnauthorized, login(t, a, "192.0.2.1", "u", "x", now))
}

// TestOtherAccountsCostNoBcrypt: a password that was verified is verified for as long as the account has its hash.
func TestOtherAccountsCostNoBcrypt(t *testing.T) {
	hash := func(password string) string {
		h, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
		require.NoError(t, err)
		return string(h)
	}
	user := User{Name: "u", PasswordHash: hash("p"), Role: RolePush}
	a, err := newAccounts([]User{user})
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, login(t, a, "192.0.2.1", "u", "p", time.Now()))
	verified := func() (names []string) {
		a.table.Load().verified.Range(func(_, acc any) bool {
			names = append(names, acc.(*account).name+" "+string(acc.(*account).role))
			return true
		})
		return names
	}

	user.Role = RolePull
	require.NoError(t, a.set([]User{user, {Name: "v", PasswordHash: hash("q"), Role: RolePull}}))
	assert.Equal(t, []string{"u " + string(RolePull)}, verified(), "with the role of now")
	user.PasswordHash = hash("p2")
	require.NoError(t, a.set([]User{user}))
	assert.Empty(t, verified(), "another password")
	assert.Equal(t, http.StatusUnauthorized, login(t, a, "192.0.2.1", "u", "p", time.Now()))
	require.Equal(t, http.StatusOK, login(t, a, "192.0.2.1", "u", "p2", time.Now()))
	require.NoError(t, a.set([]User{{Name: "v", PasswordHash: user.PasswordHash, Role: RolePull}}))
	assert.Empty(t, verified(), "another account, though with this hash")
	assert.Equal(t, http.StatusUnauthorized, login(t, a, "192.0.2.1", "u", "p2", time.Now()))
}

// TestNamesTakeTheSameWork counts allocations: bcrypt makes its tables anew each time.
func TestNamesTakeTheSameWork(t *testing.T) {
	hash, err := bcrypt.GenerateFromPassword([]byte("p"), bcrypt.MinCost)
	require.NoError(t, err)
	a, err := newAccounts([]User{{Name: "known", PasswordHash: string(hash), Role: RolePull},
		{Name: "clear", Password: "p", Role: RolePull}})
	require.NoError(t, err)
	work := func(name string) float64 {
		from := 0
		return testing.AllocsPerRun(10, func() {
			from++
			assert.Equal(t, http.StatusUnauthorized, login(t, a, fmt.Sprintf("192.0.2.%d", from), name, "wrong", time.Now()))
		})
	}
	want := work("known")
	assert.InDelta(t, want, work("nobody"), 1)
	assert.InDelta(t, want, work("clear"), 1)
}

func TestFailedLogins(t *testing.T) {
	a, err := newAccounts([]User{{Name: "u", Password: "p", Role: RolePull}})
	require.NoError(t, err)
	now := time.Now()
	for range failureBurst {
		require.Equal(t, http.StatusUnauthorized, login(t, a, "192.0.2.1", "u", "x", now))
	}
	assert.Equal(t, http.StatusTooManyRequests, login(t, a, "192.0.2.1", "u", "p", now))
	assert.Equal(t, http.StatusOK, login(t, a, "192.0.2.2", "u", "p", now), "another address")
	assert.Equal(t, http.StatusOK, login(t, a, "192.0.2.1", "u", "p", now.Add(failureInterval)),
		"logged in from elsewhere meanwhile")
	assert.Equal(t, http.StatusUnauthorized, login(t, a, "192.0.2.1", "u", "y", now.Add(failureInterval)))
	assert.Equal(t, http.StatusTooManyRequests, login(t, a, "192.0.2.1", "u", "y", now.Add(failureInterval)))
	assert.Equal(t, http.StatusUnauthorized, login(t, a, "192.0.2.1", "u", "y", now.Add(-time.Hour).
		Add(time.Hour+2*failureInterval)))
}

func TestFailedLoginsMemory(t *testing.T) {
	f := failures{at: map[string]*failure{}}
	now := time.Now()
	for i := range 3 * maxFailureAddresses {
		f.add(fmt.Sprint("address", i), now)
	}
	assert.LessOrEqual(t, len(f.at), maxFailureAddresses)
}

func TestUsersFiles(t *testing.T) {
	hash, err := bcrypt.GenerateFromPassword([]byte("p"), bcrypt.MinCost)
	require.NoError(t, err)
	for _, tc := range []struct{ name, content, want string }{
		{"two users with a comment", "# users\nu:" + string(hash) + ":push\n\nv:" + string(hash) + ":pull\n", ""},
		{"no role", "u:" + string(hash), "line 1: want NAME:BCRYPT:ROLE"},
		{"other role", "u:" + string(hash) + ":admin", "role"},
		{"password in clear", "u:secret-canary:push", "not bcrypt"},
		{"nobody", "# nobody\n", "no anonymous access"},
		{"one twice", "u:" + string(hash) + ":push\nu:" + string(hash) + ":pull\n", "twice"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "users")
			require.NoError(t, os.WriteFile(path, []byte(tc.content), 0o600))
			users, err := readUsers(path, "")
			if tc.want == "" {
				require.NoError(t, err)
				assert.Len(t, users, 2)
				require.NoError(t, os.Chmod(path, 0o640))
				_, err = readUsers(path, "")
				require.ErrorContains(t, err, "chmod 600")
				return
			}
			require.ErrorContains(t, err, tc.want)
			assert.NotContains(t, err.Error(), "secret-canary")
		})
	}
}

// TestFurtherUsers: accounts of a second file count beside those of the first, and one that cannot be used leaves those
// that it had.
func TestFurtherUsers(t *testing.T) {
	dir := t.TempDir()
	hash, err := bcrypt.GenerateFromPassword([]byte("p"), bcrypt.MinCost)
	require.NoError(t, err)
	f := userFiles{file: filepath.Join(dir, "users"), more: filepath.Join(dir, "more")}
	write := func(path, text string) {
		require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(text, "HASH", string(hash))), 0o600))
	}
	write(f.file, "pull:HASH:pull\n")
	for _, tc := range []struct{ name, more, want, err string }{
		{name: "none", want: "pull"},
		{name: "one", more: "pool-a:HASH:pull\n", want: "pull pool-a"},
		{name: "damaged", more: "pool-b:HASH", want: "pull pool-a", err: "want NAME:BCRYPT:ROLE"},
		{name: "twice", more: "pool-b:HASH:pull\npool-b:HASH:push\n", want: "pull pool-a", err: "occurs twice"},
		{name: "the first file's name", more: "pull:HASH:push\npool-b:HASH:pull\n", want: "pull pool-b"},
		{name: "empty", more: "\n", want: "pull"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.more != "" {
				write(f.more, tc.more)
			}
			users, moreErr, err := f.read()
			require.NoError(t, err)
			var names []string
			for _, u := range users {
				names = append(names, u.Name)
				assert.Equal(t, RolePull, u.Role)
			}
			assert.Equal(t, tc.want, strings.Join(names, " "))
			if tc.err != "" {
				require.ErrorContains(t, moreErr, tc.err)
				assert.NotEqual(t, tc.more, string(f.accepted))
				return
			}
			require.NoError(t, moreErr)
		})
	}
	require.NoError(t, os.Chmod(f.more, 0o644))
	_, moreErr, err := f.read()
	require.NoError(t, err)
	require.ErrorContains(t, moreErr, "chmod 600")
	require.NoError(t, os.Remove(f.file))
	_, _, err = f.read()
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestGeneratedAccounts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "accounts")
	first, err := LoadOrCreateUsers(dir, "registry.example.com:5000")
	require.NoError(t, err)
	second, err := LoadOrCreateUsers(dir, "registry.example.com:5000")
	require.NoError(t, err)
	assert.Equal(t, first, second)
	a, err := newAccounts(first)
	require.NoError(t, err)
	for _, name := range []string{UsersFile, PushAuthFile, PullAuthFile} {
		fi, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), fi.Mode().Perm(), name)
	}
	b, err := os.ReadFile(filepath.Join(dir, PullAuthFile))
	require.NoError(t, err)
	var file struct {
		Auths map[string]struct{ Auth []byte }
	}
	require.NoError(t, json.Unmarshal(b, &file))
	name, password, ok := strings.Cut(string(file.Auths["registry.example.com:5000"].Auth), ":")
	require.True(t, ok)
	assert.GreaterOrEqual(t, len(password), 43, "256 bits in base64")
	assert.Equal(t, http.StatusOK, login(t, a, "192.0.2.1", name, password, time.Now()))
}

func FuzzUsers(f *testing.F) {
	f.Add([]byte("u:$2a$04$x:push\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		users, err := parseUsers(bytes.NewReader(b), "")
		if err == nil {
			assert.NotEmpty(t, users)
		}
	})
}

func FuzzManifest(f *testing.F) {
	f.Add("application/vnd.oci.image.manifest.v1+json",
		[]byte(`{"schemaVersion":2,"config":{"digest":"sha256:00","size":1},"layers":[]}`))
	f.Add("application/vnd.oci.image.index.v1+json", []byte(`{"schemaVersion":2,"manifests":[]}`))
	f.Fuzz(func(t *testing.T, contentType string, body []byte) {
		c, _, err := parseManifest(contentType, body)
		if err != nil {
			return
		}
		for _, d := range append(c.Layers, c.Manifests...) {
			assert.NoError(t, d.Digest.Validate())
		}
	})
}

func FuzzContentRange(f *testing.F) {
	for _, v := range []string{"0-9", "bytes 0-9/10", "-1", "9-0", "+1-2", ""} {
		f.Add(v)
	}
	f.Fuzz(func(t *testing.T, v string) {
		first, last, ok := parseContentRange(v)
		if ok {
			assert.GreaterOrEqual(t, first, int64(0))
			assert.GreaterOrEqual(t, last, first)
		}
	})
}
