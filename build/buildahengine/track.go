package buildahengine

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"dayone.dev/dayone/build"
	"dayone.dev/dayone/build/containerfile"
	"dayone.dev/dayone/build/symptom"
)

// tracker knows which instruction is at work: buildah names each in order, and the order is the Containerfile's.
type tracker struct {
	job     build.ContainerJob
	file    *containerfile.File
	stage   int // index of the stage at work, -1 before the first
	next    int // index of the next instruction in it
	phase   string
	current build.Step
	began   time.Time
	steps   []build.Step
	hits    int
	excerpt []string
	// runtimeFailed means that the OCI runtime could not do what it could when it was tried.
	runtimeFailed bool
	// noInodes means that storage had no inode left when something could not be written.
	noInodes bool
	// generated means that the instruction at work is not the user's.
	generated bool
}

func newTracker(job build.ContainerJob) *tracker {
	file, err := containerfile.Parse(job.Containerfile)
	if err != nil {
		file = &containerfile.File{} // buildah will say so too; places are unknown then
	}
	return &tracker{job: job, file: file, stage: -1, phase: phaseStorage, began: time.Now()}
}

func (t *tracker) emit(e build.Event) {
	if t.job.Progress != nil {
		t.job.Progress(e)
	}
}

func (t *tracker) take(m message) {
	switch m.Kind {
	case kindPhase:
		t.end()
		t.phase = m.Text
		t.begin(build.Step{Name: m.Text})
		t.emit(build.Event{Phase: m.Text})
	case kindFrom:
		t.end()
		t.enterStage(strings.TrimPrefix(m.Text, "FROM "))
		line := 0
		if t.stage < len(t.file.Stages) {
			line = t.userLine(t.file.Stages[t.stage].Line)
		}
		t.step(m.Text, line, 1)
	case kindStep:
		t.end()
		line := 0
		if t.stage >= 0 && t.stage < len(t.file.Stages) && t.next < len(t.file.Stages[t.stage].Instructions) {
			composed := t.file.Stages[t.stage].Instructions[t.next].Line
			line, t.generated = t.userLine(composed), composed <= t.job.Skip
		}
		t.next++
		t.step(m.Text, line, t.next+1)
	case kindOutput:
		t.output(m.Text)
	case kindBytes:
		t.emit(build.Event{Phase: t.phase, Bytes: m.Bytes, Total: m.Total})
	}
}

// enterStage moves on to the next stage that starts from this image: stages that nothing needs are left out by buildah.
func (t *tracker) enterStage(image string) {
	t.next = 0
	for i := t.stage + 1; i < len(t.file.Stages); i++ {
		from := t.file.Stages[i].From
		if context, ok := t.job.Contexts[from]; ok {
			from = "docker://" + context.Reference
		}
		if from == image {
			t.stage = i
			return
		}
	}
	t.stage++
}

// userLine turns a line of the composed text into the user's.
func (t *tracker) userLine(line int) int { return max(0, line-t.job.Skip) }

func (t *tracker) step(text string, line, number int) {
	of := 0
	if t.stage >= 0 && t.stage < len(t.file.Stages) {
		of = len(t.file.Stages[t.stage].Instructions) + 1
	}
	t.excerpt = nil
	t.begin(build.Step{Name: text, Line: line})
	t.emit(build.Event{Phase: t.phase, Step: number, Of: of, Line: line, Text: text})
}

func (t *tracker) output(text string) {
	if strings.HasPrefix(text, "--> Using cache ") {
		t.current.Cached = true
	}
	if t.excerpt = append(t.excerpt, text); len(t.excerpt) > build.ExcerptLines {
		t.excerpt = t.excerpt[1:]
	}
	t.emit(build.Event{Phase: t.phase, Text: text, Output: true})
}

func (t *tracker) begin(s build.Step) { t.current, t.began = s, time.Now() }

func (t *tracker) end() {
	if t.current.Name == "" {
		return
	}
	t.current.Duration = time.Since(t.began)
	if t.current.Cached {
		t.hits++
	}
	t.steps = append(t.steps, t.current)
	t.current = build.Step{}
}

// finish closes the last step.
func (t *tracker) finish() []build.Step {
	last := t.current
	t.end()
	t.current = last // a failure still wants to name it
	return t.steps
}

// place adds where the build was to a failure.
func (t *tracker) place(f *build.Failure, log string) *build.Failure {
	f.Step, f.Log, f.Excerpt = t.phase, log, t.excerpt
	if t.phase == phaseContainerfile {
		f.Line, f.Instruction = t.current.Line, t.current.Name
	}
	return f
}

// Texts of errors that the libraries give no type to.
var (
	// runtimeFailed is what buildah prints when an OCI runtime could not make a container; noProgram when RUN's program
	// was the reason.
	runtimeFailed = regexp.MustCompile(`(?m)^error running container: from \S+ (?:creating|starting) container`)
	noProgram     = regexp.MustCompile(`exec: \\?"|executable file|no such file or directory: unknown$`)
)

// endedBySignal is the exit code that package os/exec gives a program that a signal ended.
const endedBySignal = -1

// explain turns the child's error into a failure that says what to do.
func (t *tracker) explain(c *childFail, log string) *build.Failure {
	f := &build.Failure{Message: shorten(c.Text), ExitCode: c.ExitCode}
	if f.ExitCode == 0 {
		f.ExitCode = symptom.ExitCode(c.Text)
	}
	t.place(f, log)
	f.Step = c.Phase
	inRun := c.Phase == phaseContainerfile && strings.HasPrefix(strings.ToUpper(t.current.Name), "RUN") && f.ExitCode != 0
	switch excerpt := strings.Join(f.Excerpt, "\n"); {
	case c.Kind == failIsolation:
		f.Class, f.Line, f.Instruction = build.ClassPolicy, 0, ""
		f.Next = "install runc or crun where this program can use it, or build with network and chroot isolation"
	case c.Kind == failRepacked:
		f.Class, f.Next = build.ClassInfrastructure,
			"build again when no other build uses this build directory: it then pulls the base anew"
	case c.Phase == phasePush && c.Kind != failDiskFull && symptom.RegistryFull(c.Text):
		f.Class, f.Next = build.ClassInfrastructure, "free disk space where the registry keeps its images, then build again"
	case c.Kind == failDiskFull, symptom.DiskFull(c.Text), inRun && symptom.DiskFull(excerpt):
		f.Class, f.Next = build.ClassInfrastructure, "free disk space on this host (df -h; where that shows room, its "+
			"inodes: df -i), or set another build directory, then build again"
		if t.noInodes {
			f.Next = "the file system of the build directory has room but no inode left for another file (df -i): remove " +
				"files there, or set a build directory on a file system with more inodes, then build again"
		}
	case c.ExitCode == endedBySignal, symptom.HelperKilled(c.Text), inRun && symptom.KilledRun(excerpt):
		f.Class, f.ExitCode = build.ClassInfrastructure, killedExit
		f.Next = "something killed a process of this build: look for \"out of memory\" in this host's kernel messages " +
			"(journalctl -k), then build again"
	case inRun:
		t.blameRun(f, excerpt)
	case c.Phase == phaseStorage:
		f.Class, f.Next = build.ClassInfrastructure,
			"check the build directory on this host; it can be deleted, it only holds caches"
	case symptom.BadTrust(c.Text):
		f.Class, f.Next = build.ClassInfrastructure, "pass the CA certificate of that registry"
	case c.Kind == failUnauthorized, symptom.Unauthorized(c.Text):
		f.Class, f.Next = build.ClassInfrastructure,
			"check the registry credentials: the account needs pull on the base and push on the target"
	case symptom.NotThere(c.Text):
		f.Class, f.Next = build.ClassUser,
			"check the names of images in FROM and --from, and that they exist for this architecture"
	case symptom.ImageNotGot(c.Text):
		f.Class, f.Cause = build.ClassUser, build.ErrImageNotGot
		f.Next = "check the name of the image, and that a registry or a mirror has it"
	case symptom.Unreachable(c.Text):
		f.Class, f.Next = build.ClassTransient, "check that the registry runs and can be reached from this host"
	case c.Phase == phasePush:
		f.Class, f.Next = build.ClassInfrastructure, "check the registry's log"
	case c.Phase == phaseBase, strings.HasPrefix(strings.ToUpper(t.current.Name), "FROM"), symptom.Unpack(c.Text):
		f.Class, f.Line, f.Instruction = build.ClassInfrastructure, 0, ""
		f.Next = "an image could not be unpacked: check that the base image works and that this host's disk is sound, " +
			"then build again"
	default:
		f.Class, f.Next = build.ClassUser, "fix this instruction"
	}
	return f
}

// blameRun says who can mend a RUN whose command failed.
func (t *tracker) blameRun(f *build.Failure, excerpt string) {
	switch {
	case runtimeFailed.MatchString(excerpt) && !noProgram.MatchString(excerpt):
		f.Class, t.runtimeFailed = build.ClassInfrastructure, true
		f.Next = "the OCI runtime failed, not the instruction: read the excerpt, then build again; dayone tries the " +
			"runtime before it builds"
	case t.job.Options.Offline && symptom.Unreachable(excerpt):
		f.Class, f.Next = build.ClassUser,
			"this build is offline: remove the download from this instruction, or build with network"
	case symptom.Unreachable(excerpt):
		f.Class, f.Next = build.ClassTransient,
			"the command could not reach a server: check network, proxy and mirrors of this host"
	case t.generated:
		f.Class = build.ClassUser
		f.Next = "dayone made this instruction from the MachineConfigs' extensions and kernelType: remove what the " +
			"extensions image does not have, or set the extensions image of this base"
	default:
		f.Class, f.Next = build.ClassUser, "correct this instruction: the log has what it printed last"
	}
}

// maxMessage keeps a message on a screen, in bytes; the log has all of it.
const maxMessage = 600

func shorten(s string) string {
	s = strings.TrimSpace(strings.ReplaceAll(s, "\n", " "))
	if len(s) <= maxMessage {
		return s
	}
	return fmt.Sprintf("%s … (%d bytes more)", strings.ToValidUTF8(s[:maxMessage], ""), len(s)-maxMessage)
}
