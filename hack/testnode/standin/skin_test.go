package standin

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCommandLinesAreStrict(t *testing.T) {
	for line, want := range map[string]int{
		"rpm-ostree rebase --no-such-flag ostree-unverified-registry:h/n": 1,
		"rpm-ostree rebase":                                   1,
		"rpm-ostree rebase a b":                               1,
		"rpm-ostree rebase --custom-origin-url u h":           1,
		"rpm-ostree install vim":                              1,
		"rpm-ostree status --format=json":                     1,
		"rpm-ostree kargs quiet":                              1,
		"rpm-ostree cleanup":                                  1,
		"rpm-ostree --help":                                   0,
		"bootc switch --authfile f h/n":                       2,
		"bootc switch --tls-verify=false h/n":                 2,
		"bootc switch --soft-reboot=auto h/n":                 1,
		"bootc switch --soft-reboot=maybe h/n":                2,
		"bootc upgrade --check --soft-reboot=auto":            1,
		"bootc rollback --soft-reboot":                        2,
		"bootc upgrade --check --from-downloaded":             1,
		"bootc upgrade --from-downloaded":                     1,
		"bootc status --format=xml":                           2,
		"bootc status --format=json --no-such-flag":           2,
		"bootc upgrade --check --apply":                       1,
		"bootc kargs":                                         1,
		"/usr/bin/bootc --help":                               0,
		"something-else status":                               2,
		"rpm-ostree rebase --cache-only ostree-image-signed:": 1,
	} {
		var out, errs bytes.Buffer
		got := Main(t.Context(), strings.Fields(line), &out, &errs)
		assert.Equal(t, want, got, "%s: %s", line, errs.String())
		if want == 0 {
			assert.Contains(t, out.String(), "STAND-IN", line)
		} else {
			assert.NotEmpty(t, errs.String(), line)
		}
	}
}

func TestKernelArgumentsChangeAsAsked(t *testing.T) {
	for _, c := range []struct {
		name string
		k    kargsChange
		want string // "" for a refusal
	}{
		{"appended again", kargsChange{appends: []string{"quiet"}}, "root=x rw quiet a=1 a=2 quiet"},
		{"appended if missing", kargsChange{appendsIfMissing: []string{"quiet", "b"}},
			"root=x rw quiet a=1 a=2 b"},
		{"deleted", kargsChange{deletes: []string{"a=1"}}, "root=x rw quiet a=2"},
		{"deleted, not there", kargsChange{deletes: []string{"b"}}, ""},
		{"deleted if there", kargsChange{deletesIfPresent: []string{"b", "quiet"}}, "root=x rw a=1 a=2"},
		{"replaced", kargsChange{replaces: []string{"root=y"}}, "root=y rw quiet a=1 a=2"},
		{"replaced, there twice", kargsChange{replaces: []string{"a=3"}}, ""},
		{"replaced, which one is said", kargsChange{replaces: []string{"a=2=3"}}, "root=x rw quiet a=1 a=3"},
		{"replaced without a value", kargsChange{replaces: []string{"a"}}, ""},
		{"replaced, nothing of that name", kargsChange{replaces: []string{"c=1"}}, ""},
	} {
		got, err := c.k.apply([]string{"root=x", "rw", "quiet", "a=1", "a=2"})
		assert.Equal(t, c.want == "", err != nil, c.name)
		assert.Equal(t, c.want, strings.Join(got, " "), c.name)
	}
}

func TestReferencesOfThreeFormsAreOne(t *testing.T) {
	for _, form := range []string{"ostree-unverified-registry:h:5000/n@sha256:aa",
		"ostree-unverified-image:registry:h:5000/n@sha256:aa", "ostree-unverified-image:docker://h:5000/n@sha256:aa"} {
		r, err := parseReference(form)
		require.NoError(t, err)
		assert.Equal(t, "ostree-unverified-registry:h:5000/n@sha256:aa", r.canonical)
		assert.True(t, r.pinned())
		assert.False(t, r.signed)
	}
	r, err := parseReference("ostree-image-signed:docker://h/n:tag")
	require.NoError(t, err)
	assert.True(t, r.signed)
	assert.False(t, r.pinned())
	for _, bad := range []string{"", "h/n", "docker://h/n", "ostree-unverified-image:oci:dir"} {
		_, err := parseReference(bad)
		assert.Error(t, err, bad)
	}
}

func TestImageKernelArguments(t *testing.T) {
	for text, want := range map[string][]string{
		`kargs = ["a=1", "b"]`: {"a=1", "b"},
		"kargs = [\"a\"]\nmatch-architectures = [\"no-such-machine\"]":       nil,
		"kargs = [\"a\"]\nmatch-architectures = [\"x86_64\", \"aarch64\"]\n": {"a"},
	} {
		got, err := parseKernelArguments(text)
		require.NoError(t, err)
		assert.Equal(t, want, got, text)
	}
	_, err := parseKernelArguments("kargs = []\nother = 1")
	assert.ErrorContains(t, err, "unknown field")
}

// What bootc has for composefs alone is refused on hosts of libostree, and hidden.
func TestComposefsCommandsAreRefused(t *testing.T) {
	t.Setenv("container", "test") // so that the answer does not depend on this machine
	for _, line := range [][]string{{"delete-deployment", "a"}, {"config-diff"}} {
		var out, errs bytes.Buffer
		assert.Equal(t, 1, Main(t.Context(), append([]string{"bootc"}, line...), &out, &errs))
		assert.Equal(t, "error: This command requires a booted host system\n", errs.String())
	}
	var out bytes.Buffer
	Main(t.Context(), []string{"bootc", "--help"}, &out, &out)
	assert.NotContains(t, out.String(), "delete-deployment")
}
