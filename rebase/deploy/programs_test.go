package deploy

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	wantImage  = "registry.example.com/ocp/os@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	otherImage = "registry.example.com/ocp/os@sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

// script plays a host program: answers by command line, and writes down what was asked.
type script struct {
	answers map[string]string
	calls   []string
}

func (s *script) run(_ context.Context, name string, args ...string) ([]byte, error) {
	call := strings.Join(append([]string{name}, args...), " ")
	s.calls = append(s.calls, call)
	if answer, ok := s.answers[call]; ok {
		if text, bad := strings.CutPrefix(answer, "error: "); bad {
			return nil, programFault(call, text, errors.New("exit status 1"))
		}
		return []byte(answer), nil
	}
	return nil, nil
}

// host makes a root with a kernel command line.
func host(t *testing.T, cmdline string) string {
	t.Helper()
	root := t.TempDir()
	for _, dir := range []string{"proc", "run"} {
		require.NoError(t, os.Mkdir(filepath.Join(root, dir), 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(root, "proc/cmdline"), []byte(cmdline+"\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(root, "run/ostree-booted"), nil, 0o644))
	return root
}

const rpmStatus = "rpm-ostree status --json"

func rpmDeployment(image, flags string) string {
	return `{"id":"x","osname":"rhcos","serial":0,"checksum":"` + commitA + `","version":"9.6",` + flags +
		`"container-image-reference":"ostree-unverified-registry:` + image + `","container-image-reference-digest":"` +
		image[strings.Index(image, "@")+1:] + `","unknown":1}`
}

func rpmHost(deployments ...string) string {
	return `{"deployments":[` + strings.Join(deployments, ",") + `],"transaction":null,"cached-update":null}`
}

func TestRPMOSTreeStagesWithTheCommandsThatItHas(t *testing.T) {
	booted, staged := `"booted":true,"staged":false,`, `"booted":false,"staged":true,`
	image, err := ParseImage(wantImage)
	require.NoError(t, err)
	for _, c := range []struct {
		name   string
		status string
		o      StageOptions
		want   []string
	}{
		{"another image runs", rpmHost(rpmDeployment(otherImage, booted)), StageOptions{},
			[]string{"rpm-ostree rebase ostree-unverified-registry:" + wantImage}},
		{"with kernel arguments", rpmHost(rpmDeployment(otherImage, booted)),
			StageOptions{AppendKernelArguments: []string{"a=1 b=2"}, DeleteKernelArguments: []string{"quiet"}},
			[]string{"rpm-ostree rebase ostree-unverified-registry:" + wantImage,
				"rpm-ostree kargs --delete-if-present=quiet --append-if-missing=a=1 --append-if-missing=b=2"}},
		{"another one is staged", rpmHost(rpmDeployment(otherImage, staged), rpmDeployment(otherImage, booted)),
			StageOptions{},
			[]string{"rpm-ostree cleanup -p", "rpm-ostree rebase ostree-unverified-registry:" + wantImage}},
		{"it is staged already", rpmHost(rpmDeployment(wantImage, staged), rpmDeployment(otherImage, booted)), StageOptions{},
			nil},
		{"it runs already", rpmHost(rpmDeployment(wantImage, booted)), StageOptions{}, nil},
		{"it runs and another is staged", rpmHost(rpmDeployment(otherImage, staged), rpmDeployment(wantImage, booted),
			rpmDeployment(otherImage, "")), StageOptions{},
			[]string{"rpm-ostree cleanup -p"}},
		{"it runs and a rollback is queued", rpmHost(rpmDeployment(otherImage, ""), rpmDeployment(wantImage, booted)),
			StageOptions{},
			[]string{"rpm-ostree rollback"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &script{answers: map[string]string{rpmStatus: c.status}}
			d := &RPMOSTree{root: host(t, "rw quiet"), run: s.run}
			require.NoError(t, d.Stage(t.Context(), image, c.o))
			assert.Equal(t, append([]string{rpmStatus}, c.want...), s.calls)
		})
	}
}

func TestRollbackAskedForTwiceIsOneRollback(t *testing.T) {
	rpm := func(flags ...string) string {
		var all []string
		for _, f := range flags {
			all = append(all, rpmDeployment(otherImage, f))
		}
		return rpmHost(all...)
	}
	booted, staged, other := `"booted":true,"staged":false,`, `"booted":false,"staged":true,`,
		`"booted":false,"staged":false,`
	entry := bootcDeployment(otherImage, false)
	queued := func(s string) string {
		return strings.Replace(s, `"rollbackQueued":false`, `"rollbackQueued":true`, 1)
	}
	for _, c := range []struct {
		name   string
		status string
		want   []string
		bootc  bool
	}{
		{"rpm-ostree", rpm(booted, other), []string{"rpm-ostree rollback"}, false},
		{"rpm-ostree, queued already", rpm(other, booted), nil, false},
		{"rpm-ostree, another image is staged", rpm(staged, booted, other),
			[]string{"rpm-ostree cleanup -p", "rpm-ostree rollback"}, false},
		{"bootc", bootcHostJSON("null", entry, entry), []string{"bootc rollback"}, true},
		{"bootc, queued already", queued(bootcHostJSON("null", entry, entry)), nil, true},
		{"bootc, queued, then another is staged", queued(bootcHostJSON(entry, entry, entry)),
			[]string{"bootc rollback", "bootc rollback"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &script{answers: map[string]string{rpmStatus: c.status, bootcStatus: c.status}}
			first, d := rpmStatus, Rollbacker(&RPMOSTree{root: host(t, "rw"), run: s.run})
			if c.bootc {
				first, d = bootcStatus, &Bootc{root: host(t, "rw"), run: s.run}
			}
			require.NoError(t, d.Rollback(t.Context()))
			assert.Equal(t, append([]string{first}, c.want...), s.calls)
		})
	}
}

func TestRPMOSTreeStatusTellsPlacesByOrder(t *testing.T) {
	s := &script{answers: map[string]string{rpmStatus: rpmHost(rpmDeployment(wantImage, `"booted":false,"staged":false,`),
		rpmDeployment(otherImage, `"booted":true,`),
		`{"id":"y","osname":"rhcos","checksum":"`+commitB+`","origin":"fedora:x"}`)}}
	d := &RPMOSTree{root: host(t, "BOOT_IMAGE=/k rw ostree=/ostree/boot.0/x"), run: s.run}
	st, err := d.Status(t.Context())
	require.NoError(t, err)
	assert.Equal(t, wantImage, st.Pending.Image.String())
	assert.Equal(t, st.Pending, st.Next())
	assert.Equal(t, otherImage, st.Booted.Image.String())
	assert.Equal(t, []string{"BOOT_IMAGE=/k", "rw"}, st.Booted.KernelArguments)
	assert.Equal(t, commitB, st.Rollback.Commit)
	assert.True(t, st.Rollback.Image.IsZero())
	assert.Nil(t, st.Staged)
}

const bootcStatus = "bootc status --format=json"

func bootcDeployment(image string, incompatible bool) string {
	flag := "false"
	if incompatible {
		flag = "true"
	}
	return `{"image":{"image":{"image":"` + image +
		`","transport":"registry"},"version":"9.6","timestamp":null,"imageDigest":"` + image[strings.Index(image, "@")+1:] +
		`"},"cachedUpdate":null,"incompatible":` + flag + `,"pinned":false,"ostree":{"stateroot":"default","checksum":"` +
		commitA + `","deploySerial":2}}`
}

func bootcHostJSON(staged, booted, rollback string) string {
	return `{"apiVersion":"org.containers.bootc/v1","kind":"BootcHost","metadata":{"name":"host"},"spec":{"image":null,"bootOrder":"default"},"status":{"staged":` +
		staged + `,"booted":` + booted + `,"rollback":` + rollback + `,"rollbackQueued":false,"type":"bootcHost"}}`
}

func TestBootcStagesWithSwitchOnly(t *testing.T) {
	image, err := ParseImage(wantImage)
	require.NoError(t, err)
	const bootcSwitch = "bootc switch --quiet " + wantImage
	for _, c := range []struct {
		name   string
		status string
		o      StageOptions
		want   []string
		class  Class
	}{
		{"another image runs", bootcHostJSON("null", bootcDeployment(otherImage, false), "null"), StageOptions{},
			[]string{bootcSwitch}, ""},
		{"it is staged already", bootcHostJSON(bootcDeployment(wantImage, false), bootcDeployment(otherImage, false),
			"null"), StageOptions{}, nil, ""},
		{"it runs already", bootcHostJSON("null", bootcDeployment(wantImage, false), "null"),
			StageOptions{AppendKernelArguments: []string{"rw"}}, nil, ""},
		{"it runs, another is staged", bootcHostJSON(bootcDeployment(otherImage, false), bootcDeployment(wantImage, false),
			"null"), StageOptions{}, []string{bootcSwitch}, ""},
		{"it runs, arguments lack", bootcHostJSON("null", bootcDeployment(wantImage, false), "null"),
			StageOptions{AppendKernelArguments: []string{"a=1"}}, nil, ClassConfig},
		{"packages are layered", bootcHostJSON("null", bootcDeployment(otherImage, true), "null"), StageOptions{}, nil,
			ClassConfig},
		{"nothing of bootc's boots", bootcHostJSON("null", "null", "null"), StageOptions{}, nil, ClassNotOSTree},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &script{answers: map[string]string{bootcStatus: c.status}}
			d := &Bootc{root: host(t, "rw"), run: s.run}
			err := d.Stage(t.Context(), image, c.o)
			if c.class == "" {
				require.NoError(t, err)
			} else {
				assert.Equal(t, c.class, ClassOf(err), err)
			}
			assert.Equal(t, append([]string{bootcStatus}, c.want...), s.calls)
		})
	}
}

func TestBootcStatusReadsCamelCaseKeys(t *testing.T) {
	s := &script{answers: map[string]string{bootcStatus: bootcHostJSON(bootcDeployment(wantImage, false),
		bootcDeployment(otherImage, false),
		`{"image":null,"incompatible":false,"ostree":null}`)}}
	d := &Bootc{root: host(t, "rw"), run: s.run}
	st, err := d.Status(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "default/"+commitA+".2", st.Booted.ID)
	assert.Equal(t, otherImage, st.Booted.Image.String())
	assert.Equal(t, wantImage, st.Next().Image.String())
	assert.True(t, st.Rollback.Image.IsZero())
}

func TestChooseFindsOutWhatManagesTheHost(t *testing.T) {
	rpm := rpmHost(rpmDeployment(otherImage, `"booted":true,`))
	bootc := bootcHostJSON("null", bootcDeployment(otherImage, false), "null")
	for _, c := range []struct {
		name     string
		programs string
		answers  map[string]string
		ask      Kind
		want     Kind
	}{
		{"all three: as MCO", "rpm-ostree bootc ostree", map[string]string{rpmStatus: rpm, bootcStatus: bootc},
			"", KindRPMOSTree},
		{"rpm-ostree does not answer", "rpm-ostree bootc ostree", map[string]string{rpmStatus: "error: no daemon",
			bootcStatus: bootc}, "", KindBootc},
		{"bootc only", "bootc ostree", map[string]string{bootcStatus: bootc}, "", KindBootc},
		{"bootc cannot carry the system", "bootc ostree",
			map[string]string{bootcStatus: bootcHostJSON("null", bootcDeployment(otherImage, true), "null")}, "", KindOSTree},
		{"bootc manages nothing", "bootc ostree",
			map[string]string{bootcStatus: bootcHostJSON("null", "null", "null")}, "", KindOSTree},
		{"plain", "ostree", nil, "", KindOSTree},
		{"asked for, whatever is there", "rpm-ostree ostree", map[string]string{rpmStatus: rpm}, KindOSTree, KindOSTree},
		{"nothing at all: refused", "", nil, "", ""},
		{"something unknown: refused", "ostree", nil, "dnf", ""},
		{"bootc asked for by its name", "bootc", nil, KindBootc, KindBootc},
		{"rpm-ostree asked by its name", "", nil, KindRPMOSTree, KindRPMOSTree},
		{"rpm-ostree dead, nothing else", "rpm-ostree", map[string]string{rpmStatus: "error: no daemon"}, "", ""},
		{"rpm-ostree without a boot: not", "rpm-ostree ostree", map[string]string{rpmStatus: rpmHost()}, "", KindOSTree},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &script{answers: c.answers}
			got, err := chooser{root: host(t, "rw"), run: s.run, find: func(program string) (string, error) {
				if strings.Contains(" "+c.programs+" ", " "+program+" ") {
					return program, nil
				}
				return "", os.ErrNotExist
			}}.choose(t.Context(), c.ask)
			assert.Equal(t, c.want, got.Kind)
			if c.want == "" {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			assert.NotEmpty(t, got.Reason)
			assert.NotNil(t, got.Deployer)
		})
	}
	_, err := chooser{root: t.TempDir()}.choose(t.Context(), "")
	assert.Equal(t, ClassNotOSTree, ClassOf(err), "not booted by ostree")
}

func TestProgramFaultsAreToldApart(t *testing.T) {
	for _, c := range []struct {
		name  string
		class Class
	}{
		{"error: Target image does not have ostree.bootable label", ClassNotBootable},
		{"error: pinging container registry r: tls: x509: certificate signed by unknown authority", ClassUntrusted},
		{"x509: certificate has expired or is not yet valid", ClassExpired},
		{"reading manifest: unauthorized: authentication required", ClassUnauthorized},
		{"reading manifest sha256:aa in r: manifest unknown", ClassNotFound},
		{"dial tcp 192.168.77.1:5000: connect: connection refused", ClassUnreachable},
		{"error: Importing: failed to invoke method FinishPipe: corrupted blob, expecting sha256:aa", ClassCorrupted},
		{"Requesting bearer token: invalid status code from registry 403 (Forbidden)", ClassForbidden},
		{"requested access to the resource is denied", ClassForbidden},
		{"open /etc/containers/certs.d/r/ca.crt: permission denied", ClassConfig},
		{"reading manifest sha256:aa in r: received unexpected HTTP status: 500 Internal Server Error", ClassRegistry},
		{"error: Failed to find kernel in /usr/lib/modules, /usr/lib/ostree-boot or /boot", ClassNoKernel},
		{"(Mirrors also failed: [m/os@sha256:aa: reading manifest sha256:aa in m/os: manifest unknown]): r/os@sha256:aa: dial tcp [::1]:53: connect: connection refused", ClassNotFound},
		{"write: No space left on device", ClassDiskFull},
		{"something else", ClassInternal},
	} {
		assert.Equal(t, c.class, ClassOf(programFault("rpm-ostree rebase", c.name, errors.New("exit status 1"))), c.name)
	}
}

func TestUnstageTakesBackOnlyWhatIsStaged(t *testing.T) {
	const bootcStatus = "bootc status --format=json"
	bootcWith := func(staged string) string { return `{"status":{"booted":{},"staged":` + staged + `}}` }
	for _, c := range []struct {
		name    string
		unstage func(s *script) error
		answers map[string]string
		want    string
	}{
		{"rpm-ostree", func(s *script) error {
			return (&RPMOSTree{root: host(t, "rw"), run: s.run}).Unstage(t.Context())
		}, map[string]string{rpmStatus: rpmHost(rpmDeployment(otherImage, `"staged":true,`),
			rpmDeployment(wantImage, `"booted":true,`))}, "rpm-ostree cleanup -p"},
		{"rpm-ostree, nothing staged", func(s *script) error {
			return (&RPMOSTree{root: host(t, "rw"), run: s.run}).Unstage(t.Context())
		}, map[string]string{rpmStatus: rpmHost(rpmDeployment(otherImage, ""), rpmDeployment(wantImage, `"booted":true,`))},
			""},
		{"bootc", func(s *script) error { return (&Bootc{root: host(t, "rw"), run: s.run}).Unstage(t.Context()) },
			map[string]string{bootcStatus: bootcWith("{}")}, "ostree admin undeploy 0"},
		{"bootc, nothing staged", func(s *script) error {
			return (&Bootc{root: host(t, "rw"), run: s.run}).
				Unstage(t.Context())
		},
			map[string]string{bootcStatus: bootcWith("null")}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &script{answers: c.answers}
			require.NoError(t, c.unstage(s))
			if c.want == "" {
				assert.Len(t, s.calls, 1, "only the question")
				return
			}
			assert.Equal(t, c.want, s.calls[len(s.calls)-1])
		})
	}
}

func TestRoomInBootIsForKernelsThatAreNotThere(t *testing.T) {
	root := t.TempDir()
	kernel := func(deployment, release, like string) *Deployment {
		dir := filepath.Join(root, "ostree/deploy/os/deploy", deployment, "usr/lib/modules", release)
		require.NoError(t, os.MkdirAll(dir, 0o755))
		path := filepath.Join(dir, "vmlinuz")
		if like != "" {
			require.NoError(t, os.Link(like, path)) // equal content is one object of the repository
		} else {
			require.NoError(t, os.WriteFile(path, nil, 0o644))
			require.NoError(t, os.Truncate(path, 8<<40)) // more than is free, and not more than a file may have
		}
		return &Deployment{ID: "os/" + deployment}
	}
	require.NoError(t, os.Mkdir(filepath.Join(root, "boot"), 0o755))
	booted := kernel("a.0", "1", "")
	same := kernel("b.0", "1", filepath.Join(root, "ostree/deploy/os/deploy/a.0/usr/lib/modules/1/vmlinuz"))
	other := kernel("c.0", "2+rt", "")
	require.NoError(t, checkBoot(root, booted, same))
	err := checkBoot(root, booted, other)
	require.Error(t, err)
	assert.Equal(t, ClassDiskFull, ClassOf(err))
	kernels, err := Kernels(root, other)
	require.NoError(t, err)
	assert.Equal(t, []string{"2+rt"}, kernels)
	_, err = Kernels(root, nil)
	require.ErrorContains(t, err, "list kernels")
}
