package drain

import (
	"net/url"
	"strconv"
	"strings"
	"time"
)

// prefix of the path by which a node asks a server whether the rules of all nodes are true up to
// a revision, and a server a node whether its own are.
const prefix = "/kemudi.io/v1/applied/"

// Pattern is where that is served, with a name for the revision.
const Pattern = "GET " + prefix + "{name}"

// path is where it is asked for.
func path(rev int64, timeout time.Duration) string {
	return prefix + strconv.FormatInt(rev, 10) + "?" + url.Values{"timeout": {timeout.String()}}.Encode()
}

// IsPath reports whether a path is one of these.
func IsPath(path string) bool {
	rest, ok := strings.CutPrefix(path, prefix)
	return ok && rest != "" && !strings.Contains(rest, "/")
}

// longest is how long an answer may take, whatever the question says.
const longest = 10 * time.Second

// parse reads the revision and how long an answer may take.
func parse(name string, query url.Values) (rev int64, timeout time.Duration, ok bool) {
	rev, err := strconv.ParseInt(name, 10, 64)
	if err != nil || rev < 0 {
		return 0, 0, false
	}
	timeout, err = time.ParseDuration(query.Get("timeout"))
	if err != nil || timeout <= 0 {
		return 0, 0, false
	}
	return rev, min(timeout, longest), true
}
