package buildahengine

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"dayone.dev/dayone/build"
)

// The texts are those of buildah v1.41.5 and containers/storage v1.59.1.
func TestBlameOnEvidenceOnly(t *testing.T) {
	for _, c := range []struct {
		name, step, phase, text string
		exit                    int
		excerpt                 []string
		class                   build.Class
		line                    int
		next                    string
	}{
		{"a helper that the kernel killed", "FROM configs", phaseContainerfile, "untar error: signal: killed", -1, nil,
			build.ClassInfrastructure, 1, "out of memory"},
		{"the same, told in words", "COPY --from=a /b /c", phaseContainerfile, "copier: get: signal: killed", 0, nil,
			build.ClassInfrastructure, 1, "out of memory"},
		{"a copier that was killed before it answered", "COPY --chmod=0755 <<EOF /a", phaseContainerfile,
			"checking on destination /a: error decoding response from copier subprocess: EOF", 0, nil,
			build.ClassInfrastructure, 1, "out of memory"},
		{"a copier that was killed before it was asked", "COPY --from=a /b /c", phaseContainerfile,
			"error encoding work request for copier subprocess: write |1: broken pipe", 0, nil,
			build.ClassInfrastructure, 1, "out of memory"},
		{"a RUN that was killed as a whole", "RUN make", phaseContainerfile, "while running: exit status 137", 0,
			[]string{"container exited on killed"}, build.ClassInfrastructure, 1, "out of memory"},
		{"a RUN that ends with 137 itself", "RUN make", phaseContainerfile, "while running: exit status 137", 0, nil,
			build.ClassUser, 1, "correct this instruction"},
		{"a base that cannot be unpacked", "FROM configs", phaseContainerfile,
			`unpacking failed (error: exit status 1; output: link /a /b: no such file or directory)`, 1, nil,
			build.ClassInfrastructure, 0, "base image"},
		{"another image that cannot be unpacked", "COPY --from=a /b /c", phaseContainerfile,
			"copying system image: writing blob: layer 3 of file: archive/tar: invalid tar header", 0, nil,
			build.ClassInfrastructure, 0, "sound"},
		{"COPY of what is not there", "COPY --from=a /none /c", phaseContainerfile,
			`copier: stat: "/none": no such file or directory`, 0, nil, build.ClassUser, 1, "fix this instruction"},
		{"an image without a reason", "RUN --mount=type=bind,from=r.test/a cat /b", phaseContainerfile,
			"type=bind,from=r.test/a from=r.test/a: no stage or image found with that name", 0, nil, build.ClassUser, 1,
			"or a mirror has it"},
		{"a registry that ends its connections", "", phasePush,
			`pinging container registry r.test:5000: Get "https://r.test:5000/v2/": EOF`, 0, nil,
			build.ClassTransient, 0, ""},
		{"a registry without room", "", phasePush,
			"uploading layer: received unexpected HTTP status: 507 Insufficient Storage", 0, nil,
			build.ClassInfrastructure, 0, "where the registry keeps its images"},
	} {
		t.Run(c.name, func(t *testing.T) {
			track := newTracker(build.ContainerJob{})
			track.phase, track.excerpt = c.phase, c.excerpt
			track.current = build.Step{Name: c.step, Line: 1}
			f := track.explain(&childFail{Text: c.text, Phase: c.phase, ExitCode: c.exit}, "log")
			assert.Equal(t, c.class, f.Class, f.Error())
			assert.Equal(t, c.line, f.Line)
			assert.Contains(t, f.Next, c.next)
		})
	}
}
