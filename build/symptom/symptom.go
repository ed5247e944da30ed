package symptom

import (
	"regexp"
	"strconv"
)

var (
	exitStatus  = regexp.MustCompile(`exit(?: status|ed with(?: code| status)?:?) (\d+)`)
	unreachable = regexp.MustCompile(
		`(?i)connection refused|connection reset|broken pipe|no such host|i/o timeout|TLS handshake timeout|` +
			`unexpected EOF|(?:get|head|post|put|patch) "[^"]+": EOF|` +
			`temporary failure in name resolution|could(?: not|n't) resolve host|server misbehaving|503 Service|` +
			`502 Bad|504 Gateway|too ?many ?requests|network is unreachable|no route to host|connection timed out|` +
			`timeout was reached|failed to connect to|couldn't connect to server|` +
			`status(?: ?code)?:? ?(?:50[0-6]|429)\b`)
	unauthorized = regexp.MustCompile(`(?i)unauthorized|authentication required|access to the resource is denied|denied: `)
	notThere     = regexp.MustCompile(
		`(?i)manifest unknown|name unknown|not found: manifest|reading manifest .* 404|` +
			`requested access to the resource|no image found in (image index|manifest list)`)
	diskFull = regexp.MustCompile(`(?i)no space left on device|disk quota exceeded`)
	// registryFull is what a registry answers that has no room (HTTP 507).
	registryFull = regexp.MustCompile(`(?i)insufficient storage|no space left|disk quota exceeded|\b507\b`)
	// helperKilled is how package os/exec tells that a signal ended a program, and how buildah's copier does: one of the
	// engine's own, because those of RUN pass their end on as an exit code.
	helperKilled = regexp.MustCompile(`signal: [a-z]+|(?:en|de)coding [a-z ]+ (?:for|from) copier subprocess: `)
	// killedRun is what buildah prints when SIGKILL ended a RUN as a whole, by runtime and by chroot.
	killedRun = regexp.MustCompile(`(?m)^(container|subprocess) exited on killed`)
	// unpack is what containers/storage says when a layer does not become files.
	unpack = regexp.MustCompile(`(?i)unpacking failed|storing blob to|writing blob|applying layer|untar error|` +
		`archive/tar: `)
	badTrust = regexp.MustCompile(`x509: `)
	notGot   = regexp.MustCompile(`from=\S+: no stage or image found with that name`)
)

// ExitCode is the exit code in the text of an error; 0: the text has none.
func ExitCode(text string) int {
	m := exitStatus.FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	code, _ := strconv.Atoi(m[1])
	return code
}

// Unreachable means that a server did not answer, or only with a fault of its own (HTTP 429, 5xx): it may pass.
func Unreachable(text string) bool { return unreachable.MatchString(text) }

// Unauthorized means that a registry refused the credentials.
func Unauthorized(text string) bool { return unauthorized.MatchString(text) }

// NotThere means that a registry has no such image.
func NotThere(text string) bool { return notThere.MatchString(text) }

// DiskFull means that a file system of the building host had no room.
func DiskFull(text string) bool { return diskFull.MatchString(text) }

// RegistryFull means, of a push, that the registry had no room.
func RegistryFull(text string) bool { return registryFull.MatchString(text) }

// HelperKilled means that a signal ended a program that the builder itself had started.
func HelperKilled(text string) bool { return helperKilled.MatchString(text) }

// KilledRun means that SIGKILL ended a RUN as a whole. Nothing shows who sent it; most often it is the kernel that is
// out of memory.
func KilledRun(output string) bool { return killedRun.MatchString(output) }

// Unpack means that a layer did not become files.
func Unpack(text string) bool { return unpack.MatchString(text) }

// BadTrust means that nothing vouches for a server's certificate.
func BadTrust(text string) bool { return badTrust.MatchString(text) }

// ImageNotGot means that buildah did not get an image that a Containerfile names in --from. It never says why.
func ImageNotGot(text string) bool { return notGot.MatchString(text) }
