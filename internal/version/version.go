package version

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"

	apimachinery "k8s.io/apimachinery/pkg/version"
)

// Kubernetes is the release whose API this program serves: the line of the API
// types that it is built with (k8s.io/api v0.37.2). A test compares the two.
const Kubernetes = "1.37.2"

// Stamped by the linker: -X github.com/kemudi/kemudi/internal/version.Version=...
// They stay as they are in a build without stamps, such as a test binary.
var (
	// Version is Kemudi's own version without a leading v: a tag (0.3.0) or a
	// description of the commit (0.3.0-12-gabcdef0).
	Version = "0.0.0-dev"
	// Commit is the full hash of the commit that was built.
	Commit = ""
	// TreeState is "clean", or "dirty" when the build held changes that are
	// not in Commit.
	TreeState = ""
	// Date is the time of the commit, in RFC 3339 and UTC.
	Date = "1970-01-01T00:00:00Z"
)

// Git returns the version in the form that Kubernetes clients parse as a
// Kubernetes version: v1.37.2+kemudi.0.3.0.
func Git() string {
	return "v" + Kubernetes + mark + buildMetadata(Version)
}

// Alone returns the version of a node agent that runs without the other parts of a node: v1.37.2+kemudi-kubelet.0.3.0.
func Alone() string {
	return "v" + Kubernetes + "+kemudi-kubelet." + buildMetadata(Version)
}

// mark is in the versions of this program, but for those of node agents alone, and in those of no other.
const mark = "+kemudi."

// Ours says that a version, as the node agent of a Node has it, is one of this program: such a
// node has DNS and, where it is needed, an edge beside its agent.
func Ours(git string) bool { return strings.Contains(git, mark) }

// Info returns what GET /version answers.
func Info() apimachinery.Info {
	major, minor, _ := strings.Cut(Kubernetes, ".")
	minor, _, _ = strings.Cut(minor, ".")
	before := minor
	if n, err := strconv.Atoi(minor); err == nil {
		before = strconv.Itoa(n - 1)
	}
	return apimachinery.Info{
		Major:                 major,
		Minor:                 minor,
		EmulationMajor:        major,
		EmulationMinor:        minor,
		MinCompatibilityMajor: major,
		MinCompatibilityMinor: before,
		GitVersion:            Git(),
		GitCommit:             Commit,
		GitTreeState:          TreeState,
		BuildDate:             Date,
		GoVersion:             runtime.Version(),
		Compiler:              runtime.Compiler,
		Platform:              runtime.GOOS + "/" + runtime.GOARCH,
	}
}

// UserAgent returns the User-Agent of requests that this program sends for the
// part named component, such as kubelet: kubelet/v1.37.2+kemudi.0.3.0 (linux/amd64).
func UserAgent(component string) string {
	return fmt.Sprintf("%s/%s (%s/%s)", component, Git(), runtime.GOOS, runtime.GOARCH)
}

// buildMetadata makes v fit behind the plus sign of a semantic version, where
// only letters, digits, dashes and dots may stand.
func buildMetadata(v string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= '0' && r <= '9', r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r == '-', r == '.':
			return r
		}
		return '-'
	}, strings.TrimPrefix(v, "v"))
}

// Minor is the minor version of Kubernetes in a version as [Git] has it.
func Minor(text string) (int, error) {
	parts := strings.SplitN(strings.TrimPrefix(text, "v"), ".", 3)
	if len(parts) != 3 {
		return 0, fmt.Errorf("%q is no version", text)
	}
	minor, err := strconv.Atoi(parts[1])
	if err != nil {
		return 0, fmt.Errorf("%q is no version: %w", text, err)
	}
	return minor, nil
}
