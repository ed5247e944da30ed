package containerfile_test

import (
	"strings"
	"testing"

	"github.com/openshift/imagebuilder"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dayone.dev/dayone/build/containerfile"
	"dayone.dev/dayone/installconfig/report"
)

func TestLint(t *testing.T) {
	type want struct {
		line     int
		rule     string
		severity report.Severity
	}
	refused := func(line int, rule string) []want { return []want{{line, rule, report.Error}} }
	warned := func(line int, rule string) []want { return []want{{line, rule, report.Warning}} }
	for _, c := range []struct {
		name string
		text string
		want []want
	}{
		{"the usual one is fine", "FROM configs\nRUN dnf install -y x && ostree container commit\n",
			nil},
		{"stages, heredocs, mounts and ARG are fine", "ARG V=1\nFROM quay.io/x/y@sha256:" + strings.Repeat("a", 64) +
			" AS tools\nRUN <<EOF\nmake\nEOF\nFROM configs\nARG V\nCOPY --from=tools /a /usr/bin/a\n" +
			"RUN --mount=type=cache,target=/var/cache/x --mount=type=bind,from=tools,target=/t true\n" +
			"COPY <<'EOF' /etc/a\n$V\nEOF\n", nil},
		{"an earlier stage may start from base", "FROM base AS tools\nRUN true\nFROM configs\n" +
			"COPY --from=tools /a /usr/a\n", nil},
		{"a final stage on a stage on configs is fine", "FROM configs AS one\nRUN true\nFROM one\nRUN true\n", nil},
		{"nothing at all", "", refused(0, "final-stage")},
		{"only comments", "# hello\n", refused(0, "final-stage")},
		{"an instruction before FROM", "RUN true\nFROM configs\n", refused(1, "before-from")},
		{"the final stage is the base", "FROM configs AS a\nFROM base\nRUN true\n",
			refused(2, "from-configs")},
		{"the final stage is another image", "FROM quay.io/a/b@sha256:" + strings.Repeat("a", 64) + "\n",
			refused(1, "from-configs")},
		{"a stage that takes a given name", "FROM base AS configs\nFROM configs\n",
			[]want{{1, "reserved-name", report.Error}, {2, "from-configs", report.Error}}},
		{"an unknown instruction", "FROM configs\n\nINSTALL vim\n", refused(3, "unknown-instruction")},
		{"COPY with one argument", "FROM configs\nCOPY /a\n", refused(2, "arguments")},
		{"RUN with none", "FROM configs\nRUN\n", refused(2, "arguments")},
		{"an unterminated heredoc", "FROM configs\nRUN true\nCOPY <<EOF /etc/a\ntext\n",
			refused(3, "syntax")},
		{"a bad LABEL", "FROM configs\nLABEL a\n", refused(2, "syntax")},
		{"too long", "FROM configs\n# " + strings.Repeat("ä", 4090) + "\n",
			refused(0, "containerfile-length")},
		{"4096 characters, more bytes, are fine", "FROM configs\n# " + strings.Repeat("ä", 4080) + "\n", nil},
		{"COPY from a build context", "FROM configs\nCOPY a.conf /etc/a.conf\n",
			refused(2, "build-context")},
		{"COPY into /opt", "FROM configs\nCOPY <<EOF /opt/x/a\nb\nEOF\n",
			refused(2, "machine-directory")},
		{"COPY into /var in an earlier stage is fine", "FROM base AS a\nCOPY <<EOF /var/x\nb\nEOF\nFROM configs\n", nil},
		{"COPY of passwd", "FROM configs\nCOPY <<EOF /etc/passwd\nb\nEOF\n",
			refused(2, "account-file")},
		{"COPY of a preset", "FROM configs\nCOPY <<EOF /etc/systemd/system-preset/1.preset\nb\nEOF\n", warned(2, "preset")},
		{"RUN that writes to /opt", "FROM configs\nRUN mkdir -p /opt/tool && true\n",
			warned(2, "machine-directory")},
		{"RUN that writes to /var in a heredoc", "FROM configs\nRUN <<EOF\necho x > /var/lib/x\nEOF\n",
			warned(2, "machine-directory")},
		{"RUN that clears a cache is fine", "FROM configs\nRUN mkdir -p /var/cache/x && rm -rf /var/cache/x\n",
			nil},
		{"useradd", "FROM configs\nRUN true && useradd svc\n",
			warned(2, "account-command")},
		{"packages without commit", "FROM configs\nRUN rpm-ostree install vim\n",
			warned(2, "container-commit")},
		{"an image without registry", "FROM fedora:41 AS a\nFROM configs\n", refused(1, "unknown-image")},
		{"COPY --from a stage that is not there", "FROM configs\nCOPY --from=tool /a /usr/a\n",
			refused(2, "unknown-image")},
		{"COPY --from a later stage", "FROM configs AS one\nCOPY --from=two /a /usr/a\n" +
			"FROM configs AS two\n", refused(2, "unknown-image")},
		{"an image by tag", "FROM quay.io/a/b:latest AS a\nFROM configs\n",
			warned(1, "unpinned-image")},
		{"a mount from an image by tag", "FROM configs\nRUN --mount=type=bind,from=quay.io/a/b:1,target=/x " +
			"true\n", warned(2, "unpinned-image")},
		{"ADD of a URL", "FROM configs\nADD https://example.com/x /usr/share/x\n",
			warned(2, "unpinned-download")},
		{"ADD of a URL with a checksum is fine", "FROM configs\nADD --checksum=sha256:" + strings.Repeat("0", 64) +
			" https://example.com/x /usr/share/x\n", nil},
		{"a password in ENV", "FROM configs\nENV DB_PASSWORD=hunter22\n",
			warned(2, "credentials")},
		{"a password as ARG default", "ARG TOKEN=abcdefgh\nFROM configs\n", warned(1, "credentials")},
		{"a password from a variable is fine", "FROM configs\nARG P\nRUN tool --password=$P\n", nil},
		{"a secret's path is fine", "FROM configs\nRUN --mount=type=secret,id=s tool --password-file /run/secrets/s\n", nil},
		{"a URL with a password", "FROM configs\nRUN git clone https://me:pw123456@example.com/x " +
			"/usr/x\n", refused(2, "credentials")},
		{"curl with a password", "FROM configs\nRUN curl -fsS -u me:pw123456 https://example.com/x -o " +
			"/usr/x\n", refused(2, "credentials")},
		{"curl with a password in quotes", "FROM configs\nRUN true && \\\n    curl \"https://example.com/?a=1&b=2\" " +
			"--user 'me:pw 123456'\n", refused(3, "credentials")},
		{"curl with a password and letters joined", "FROM configs\nRUN curl -fsSu me:pw123456 https://example.com/x\n",
			refused(2, "credentials")},
		{"curl with a password behind the letter", "FROM configs\nRUN curl -ume:pw123456 https://example.com/x\n",
			refused(2, "credentials")},
		{"curl through a proxy with a password", "FROM configs\nRUN curl --proxy-user=me:pw123456 " +
			"https://example.com/x\n", refused(2, "credentials")},
		{"curl with a header", "FROM configs\nRUN curl -H 'Authorization: Bearer pw123456' " +
			"https://example.com/x\n", refused(2, "credentials")},
		{"curl with a bearer token", "FROM configs\nRUN curl --oauth2-bearer pw123456 " +
			"https://example.com/x\n", refused(2, "credentials")},
		{"curl in a script with user only from outside", "FROM configs\nRUN <<EOF\nset -e\nif true; then curl -u " +
			"$WHO:pw123456 https://example.com/x; fi\nEOF\n", refused(4, "credentials")},
		{"curl in a substitution", "FROM configs\nRUN echo $(curl -u me:pw123456 " +
			"https://example.com/x)\n", refused(2, "credentials")},
		{"curl without a shell", "FROM configs\nRUN [\"curl\", \"-u\", \"me:pw123456\", " +
			"\"https://example.com/x\"]\n", refused(2, "credentials")},
		{"curl with a password behind a guess", "FROM configs\nRUN tool --api-key abcdef12 && \\\n" +
			"    curl -u me:pw123456 https://example.com/x\n", refused(3, "credentials")},
		{"wget with a password", "FROM configs\nRUN wget --user me --password pw123456 " +
			"https://example.com/x\n", refused(2, "credentials")},
		{"wget with a password behind =", "FROM configs\nRUN wget --http-password=pw123456 " +
			"https://example.com/x\n", refused(2, "credentials")},
		{"a login with a password", "FROM configs\nRUN podman login -u me -p pw123456 " +
			"registry.example.com\n", refused(2, "credentials")},
		{"an image copied with a password", "FROM configs\nRUN skopeo copy --src-creds me:pw123456 " +
			"docker://a.example.com/b oci:/tmp/x\n", refused(2, "credentials")},
		{"a subscription with a password", "FROM configs\nRUN subscription-manager register --username me " +
			"--password=pw123456\n", refused(2, "credentials")},
		{"ssh with a password", "FROM configs\nRUN sshpass -ppw123456 ssh host true\n",
			refused(2, "credentials")},
		{"a .netrc", "FROM configs\nRUN echo machine a.example.com login me password pw123456 " +
			">/usr/netrc\n", refused(2, "credentials")},
		{"ADD of a URL with a password", "FROM configs\nADD --checksum=sha256:" + strings.Repeat("0", 64) +
			" https://me:pw123456@example.com/x /usr/x\n", refused(2, "credentials")},
		{"a script that is no shell's", "FROM configs\nRUN <<EOF\n#!/usr/bin/python3\nx = (1,\ny\n" +
			"curl -u me:pw123456 x\nEOF\n", refused(6, "credentials")},
		{"an option of any program", "FROM configs\nRUN tool --api-key pw123456\n",
			warned(2, "credentials")},
		{"a key of a repository file", "FROM configs\nCOPY <<EOF " +
			"/etc/yum.repos.d/x.repo\n[x]\npassword=pw123456\nEOF\n", warned(4, "credentials")},
		{"COPY --from nothing", "FROM configs\nCOPY --from= /a /usr/a\n", refused(2, "arguments")},
		{"an unpinned download", "FROM configs\nADD https://example.com/a /usr/a\n", []want{{2, "unpinned-download",
			report.Warning}}},
		{"an image by its tag", "FROM configs\nCOPY --from=quay.io/a/b:1 /a /usr/a\n", []want{{2, "unpinned-image",
			report.Warning}}},
		{"an old form of ENV that names a variable", "FROM configs\nENV DB_PASSWORD $PW\n", nil},
		{"an old form of ENV", "FROM configs\nENV DB_PASSWORD pw123456\n",
			warned(2, "credentials")},
		{"curl with a secret's file is fine", "FROM configs\nRUN --mount=type=secret,id=token curl -u \"me:$(cat " +
			"/run/secrets/token)\" https://example.com/x\n", nil},
		{"curl with a secret of both is fine", "FROM configs\nRUN --mount=type=secret,id=creds curl -u \"$(cat " +
			"/run/secrets/creds)\" https://example.com/x\n", nil},
		{"curl with backquotes is fine", "FROM configs\nRUN --mount=type=secret,id=creds curl -u me:`cat " +
			"/run/secrets/creds` https://example.com/x\n", nil},
		{"curl with a secret's variable is fine", "FROM configs\nRUN --mount=type=secret,id=password,env=PASSWORD curl " +
			"--user me:${PASSWORD} https://me:${PASSWORD}@example.com/x\n", nil},
		{"curl with a secret's header is fine", "FROM configs\nRUN --mount=type=secret,id=token curl -H \"Authorization: " +
			"Bearer $(cat /run/secrets/token)\" https://example.com/x\n", nil},
		{"curl with a secret's configuration is fine", "FROM configs\nRUN --mount=type=secret,id=curlrc curl -K " +
			"/run/secrets/curlrc --netrc-file /run/secrets/curlrc https://example.com/x\n", nil},
		{"curl that asks is fine", "FROM configs\nRUN curl -u me https://example.com/x\n", nil},
		{"curl with a header that is none is fine", "FROM configs\nRUN curl -H 'Accept: application/json' " +
			"https://example.com/x\n", nil},
		{"anonymous is fine", "FROM configs\nRUN curl -u anonymous:me@example.com " +
			"ftp://anonymous:me@ftp.example.com/x\n", nil},
		{"wget with a secret is fine", "FROM configs\nRUN --mount=type=secret,id=p wget --password=\"$(cat " +
			"/run/secrets/p)\" https://example.com/x\n", nil},
		{"a login by standard input is fine", "FROM configs\nRUN --mount=type=secret,id=p podman login -u me " +
			"--password-stdin registry.example.com </run/secrets/p\n", nil},
		{"a published port is fine", "FROM configs\nRUN podman run -p 8080:8080 registry.example.com/x\n",
			nil},
		{"a container file of login is fine", "FROM configs\nRUN podman login --authfile /run/secrets/auth " +
			"registry.example.com\n", nil},
		{"a port in a URL is fine", "FROM configs\nRUN curl https://example.com:8443/a@b\n", nil},
		{"words about passwords are fine", "FROM configs\nRUN echo 'no password needed, PasswordAuthentication no' " +
			">/etc/ssh/x\nCOPY <<EOF /etc/pam.d/x\npassword required pam_unix.so\nEOF\n", nil},
		{"files that hold secrets are fine", "FROM configs\nENV TOKEN_FILE=token.txt\nRUN tool " +
			"--token-file=/run/secrets/x --password /run/secrets/y\n", nil},
		{"no text", "FROM configs\n\x00\n", refused(2, "syntax")},
		{"not UTF-8", "FROM configs\nRUN echo \xff\n", refused(2, "syntax")},
		{"a private key in a heredoc", "FROM configs\nCOPY <<EOF /etc/key\n-----BEGIN RSA PRIVATE " +
			"KEY-----\nEOF\n", refused(3, "credentials")},
		{"a pull secret", "FROM configs\nCOPY <<EOF " +
			"/etc/ps\n{\"auths\":{\"x\":{\"auth\":\"dTpwYXNzd29yZA==\"}}}\nEOF\n", refused(3, "credentials")},
		{"an AWS key", "FROM configs\nRUN aws AKIAABCDEFGHIJKLMNOP\n",
			refused(2, "credentials")},
		{"a line after continuation has its own number", "FROM configs\nRUN a && \\\n    b\n# c\nBAD x\n",
			refused(5, "unknown-instruction")},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, findings := containerfile.Lint(c.text, containerfile.LintOptions{Place: report.Finding{File: "mosc.yaml"}})
			var got []want
			for _, f := range findings {
				got = append(got, want{f.Line, f.Rule, f.Severity})
				assert.Equal(t, "mosc.yaml", f.File)
				assert.NotEmpty(t, f.Next)
				for _, secret := range []string{"hunter22", "pw123456", "pw 123456", "dTpwYXNzd29yZA", "AKIAABCD"} {
					assert.NotContains(t, f.Error(), secret, "a finding does not repeat a secret")
				}
			}
			assert.Equal(t, c.want, got, "%v", findings)
		})
	}
}

func TestLintLineOffset(t *testing.T) {
	_, findings := containerfile.Lint("FROM configs\nBAD\n",
		containerfile.LintOptions{Place: report.Finding{File: "mosc.yaml", Line: 20, Path: "spec.containerFile[0].content"}})
	require.Len(t, findings, 1)
	assert.Equal(t, 22, findings[0].Line)
	assert.Equal(t, "spec.containerFile[0].content", findings[0].Path)
}

func TestPlanAppend(t *testing.T) {
	for _, c := range []struct {
		name         string
		text, reason string
	}{
		{"RUN", "FROM configs\nRUN true\n", "line 2 is RUN"},
		{"two stages", "FROM base AS a\nFROM configs\n", "2 stages"},
		{"COPY from a stage", "FROM configs\nCOPY --from=base /a /usr/a\n", "line 2 copies from base"},
		{"an owner by name", "FROM configs\nCOPY --chown=core <<EOF /etc/a\nb\nEOF\n", "--chown by name"},
		{"a relative destination", "FROM configs\nCOPY <<EOF etc/a\nb\nEOF\n", "relative destination"},
		{"USER", "FROM configs\nUSER 0\n", "line 2 is USER"},
		{"another mode by letters", "FROM configs\nCOPY --chmod=u+x <<EOF /etc/a\nb\nEOF\n", "Error parsing chmod"},
	} {
		t.Run(c.name+" needs a container", func(t *testing.T) {
			file, err := containerfile.Parse(c.text)
			require.NoError(t, err)
			plan, reason := file.PlanAppend(nil)
			assert.Nil(t, plan)
			assert.Contains(t, reason, c.reason)
		})
	}
	file, err := containerfile.Parse(
		"FROM configs\nENV A=1 PATH=/x:$PATH\nLABEL l=\"$A two\"\n" +
			"COPY --chmod=0755 --chown=3:4 <<EOF <<'RAW' /etc/d/\n$A\nEOF\n$A\nRAW\nCOPY <<E /etc/f\nx\nE\n")
	require.NoError(t, err)
	plan, reason := file.PlanAppend([]string{"PATH=/bin"})
	require.NotNil(t, plan, reason)
	assert.Equal(t, map[string]string{"l": "1 two"}, plan.Labels)
	assert.ElementsMatch(t, []string{"PATH=/x:/bin", "A=1"}, plan.Env)
	require.Len(t, plan.Files, 3)
	assert.Equal(t, "/etc/d/EOF", plan.Files[0].Path)
	assert.Equal(t, "1\n", string(plan.Files[0].Content))
	assert.Equal(t, int64(0o755), plan.Files[0].Mode)
	assert.Equal(t, 3, plan.Files[0].UID)
	assert.Equal(t, 4, plan.Files[0].GID)
	assert.Equal(t, "$A\n", string(plan.Files[1].Content), "a quoted word keeps variables as they are")
	assert.Equal(t, "/etc/f", plan.Files[2].Path)
}

func TestCompose(t *testing.T) {
	plain, err := containerfile.Compose("FROM configs\nRUN x\n", containerfile.Additions{KernelType: "default"})
	require.NoError(t, err)
	assert.Equal(t, &containerfile.Composed{Text: "FROM configs\nRUN x\n", ConfigsContext: "configs"}, plain,
		"without additions the text is untouched")

	full, err := containerfile.Compose("FROM configs\nRUN x\n",
		containerfile.Additions{Extensions: []string{"usbguard", "kerberos"}, KernelType: "realtime"})
	require.NoError(t, err)
	file, err := containerfile.Parse(full.Text)
	require.NoError(t, err)
	require.Len(t, file.Stages, 2)
	assert.Equal(t, full.ConfigsContext, file.Origin(1), "the user's FROM configs is the generated stage")
	assert.Equal(t, 1, file.Stages[1].Line-full.Skip, "lines can be told back")
	assert.Contains(t, full.Text, "usbguard krb5-workstation libkadm5")
	assert.Contains(t, full.Text, "kernel-rt-core")

	for name, add := range map[string]containerfile.Additions{"extension": {Extensions: []string{"games"}},
		"kernel type": {KernelType: "slow"}} {
		_, err := containerfile.Compose("", add)
		assert.ErrorContains(t, err, "unknown "+name)
	}
}

func TestComposeKeepsHeading(t *testing.T) {
	for _, c := range []struct {
		name        string
		text, image string
		args        map[string]string
		line        int
	}{
		{"an ARG", "ARG V=1\nFROM quay.io/x/y:${V} AS tools\nFROM configs\nARG V\n",
			"quay.io/x/y:1", map[string]string{"V": "1"}, 3},
		{"one that uses another", "ARG A=1\nARG V=$A.2 W=\"a b\"\nFROM quay.io/x/y:${V} AS tools\nFROM configs\n" +
			"ARG V\n", "quay.io/x/y:1.2", map[string]string{"A": "1", "V": "1.2", "W": "a b"}, 4},
		{"comments and continued lines", "# a comment\n\narg \\\n# another\n  V=1\n\n" +
			"FROM quay.io/x/y:${V} AS tools\nFROM configs\nARG V\n", "quay.io/x/y:1", map[string]string{"V": "1"}, 8},
		{"another escape character", "# escape=`\nARG `\n  V=a\\\nFROM quay.io/x/y:$V AS tools\nFROM `\n  configs\n" +
			"ARG V\n", "quay.io/x/y:a", map[string]string{"V": "a"}, 5},
		{"a byte order mark and returns", "\ufeff# escape=`\r\nARG V=1\r\nFROM quay.io/x/y:${V} AS tools\r\n" +
			"FROM configs\r\nARG V\r\n", "quay.io/x/y:1", map[string]string{"V": "1"}, 4},
		{"a byte order mark alone", "\ufeffFROM quay.io/x/y:1 AS tools\nFROM configs\n", "quay.io/x/y:1",
			map[string]string{}, 2},
		{"a heredoc that looks like an ARG", "ARG V=1\nFROM quay.io/x/y:${V} AS tools\nCOPY <<EOF /a\nARG V=2\n" +
			"# escape=`\nEOF\nFROM configs\n", "quay.io/x/y:1", map[string]string{"V": "1"}, 7},
	} {
		t.Run(c.name, func(t *testing.T) {
			composed, err := containerfile.Compose(c.text, containerfile.Additions{Extensions: []string{"usbguard"}})
			require.NoError(t, err)
			node, err := imagebuilder.ParseDockerfile(strings.NewReader(composed.Text))
			require.NoError(t, err)
			builder := imagebuilder.NewBuilder(nil)
			stages, err := imagebuilder.NewStages(node, builder)
			require.NoError(t, err)
			require.Len(t, stages, 3)
			assert.Equal(t, c.args, builder.HeadingArgs)
			from, err := stages[1].Builder.From(stages[1].Node)
			require.NoError(t, err)
			assert.Equal(t, c.image, from)
			for _, child := range stages[0].Node.Children {
				assert.Contains(t, []string{"from", "run"}, child.Value, "nothing of the user's is in the generated stage")
			}
			file, err := containerfile.Parse(composed.Text)
			require.NoError(t, err)
			assert.Equal(t, c.line, file.Final().Line-composed.Skip, "lines are the user's")
			assert.Equal(t, composed.ConfigsContext, file.Origin(2))
		})
	}
}

func TestComposeKeepsNumbersOfStages(t *testing.T) {
	composed, err := containerfile.Compose("FROM quay.io/x/y:1\nFROM 0 AS two\nRUN true\nFROM configs\n"+
		"COPY \\\n  --from=0 --chmod=0644 /a--from=0 /a\n"+
		"RUN --mount=type=bind,from=1,target=/t --mount=type=bind,target=/u,from=0 <<EOF\necho --from=0\nEOF\n"+
		"COPY --from=two /b /b\nCOPY --from=7 /c /c\n", containerfile.Additions{KernelType: "realtime"})
	require.NoError(t, err)
	file, err := containerfile.Parse(composed.Text)
	require.NoError(t, err)
	require.Len(t, file.Stages, 4)
	assert.Equal(t, "1", file.Stages[2].From)
	var got []string
	for _, in := range file.Final().Instructions {
		got = append(got, in.Text)
	}
	assert.Equal(t, []string{"COPY   --from=1 --chmod=0644 /a--from=0 /a", "RUN --mount=type=bind,from=2,target=/t " +
		"--mount=type=bind,target=/u,from=1 <<EOF",
		"COPY --from=two /b /b", "COPY --from=7 /c /c"}, got, "a number is that of the user's stage; one that is none is "+
		"left")
	assert.Equal(t, []string{"echo --from=0"}, file.Final().Instructions[1].Heredocs)
}

func TestSelect(t *testing.T) {
	byArch := map[string]string{"NoArch": "any", "ARM64": "arm"}
	for arch, want := range map[string]string{"arm64": "arm", "amd64": "any"} {
		got, ok := containerfile.Select(byArch, arch)
		assert.True(t, ok)
		assert.Equal(t, want, got)
	}
	_, ok := containerfile.Select(map[string]string{"ARM64": "arm"}, "amd64")
	assert.False(t, ok)
}

func FuzzLint(f *testing.F) {
	f.Add("FROM configs\nRUN <<EOF\nx\nEOF\n")
	f.Add("# escape=`\nARG `\n a=1\nFROM base AS x\nFROM configs\nCOPY --from=0 /a /b\n" +
		"RUN --mount=type=bind,from=0,target=/x true\n")
	f.Add("ARG a\nFROM $a AS b\nCOPY --from=0 <<A <<B /x\nA\nB\n")
	f.Fuzz(func(t *testing.T, text string) {
		file, findings := containerfile.Lint(text, containerfile.LintOptions{})
		if file == nil && len(findings) == 0 {
			t.Fatal("a text that cannot be parsed needs a finding")
		}
		if file != nil {
			file.PlanAppend(nil)
			composed, err := containerfile.Compose(text, containerfile.Additions{Extensions: []string{"usbguard"}})
			require.NoError(t, err)
			if len(findings) > 0 {
				return
			}
			behind, err := containerfile.Parse(composed.Text)
			require.NoError(t, err)
			require.Len(t, behind.Stages, 1+len(file.Stages))
			require.Equal(t, file.Final().Line, behind.Final().Line-composed.Skip)
			require.Len(t, behind.Heading, len(file.Heading))
		}
	})
}
