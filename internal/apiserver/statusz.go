package apiserver

import (
	"cmp"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/apiserver/refusal"
	"github.com/kemudi/kemudi/internal/apiserver/request"
	"github.com/kemudi/kemudi/internal/version"
)

// statusz is what the server says of itself at /statusz (KEP-4827), in the form that programs ask for.
type statusz struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	StartTime        metav1.Time `json:"startTime"`
	UptimeSeconds    int64       `json:"uptimeSeconds"`
	GoVersion        string      `json:"goVersion"`
	BinaryVersion    string      `json:"binaryVersion"`
	EmulationVersion string      `json:"emulationVersion,omitempty"`
	Paths            []string    `json:"paths"`
}

// statuszComponent is what upstream's server calls itself there.
const statuszComponent = "apiserver"

// serveStatusz answers people in text, and programs that ask for the kind in JSON.
func (s *Server) serveStatusz(w http.ResponseWriter, r *http.Request) {
	info := version.Info()
	up := time.Since(s.began)
	z := statusz{
		ObjectMeta: metav1.ObjectMeta{Name: statuszComponent}, StartTime: metav1.NewTime(s.began), UptimeSeconds: int64(up / time.Second),
		GoVersion: runtime.Version(), BinaryVersion: version.Kubernetes, EmulationVersion: info.Major + "." + info.Minor, Paths: s.statuszPaths(),
	}
	for _, c := range request.ParseAccept(cmp.Or(r.Header.Get("Accept"), "text/plain")) {
		switch v := c.Params["v"]; {
		case c.Kind == "text/plain" || c.Kind == "text/*" || c.Kind == "*/*":
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			_, _ = w.Write([]byte(z.text(up))) // an error means that the client has gone
			return
		case c.Kind == request.JSON && c.Params["as"] == "Statusz" && c.Params["g"] == "config.k8s.io" && (v == "v1beta1" || v == "v1alpha1"):
			if v == "v1alpha1" {
				w.Header().Set("Warning", `299 - "This version of the statusz endpoint is deprecated. Please use a newer version."`)
			}
			z.TypeMeta = metav1.TypeMeta{APIVersion: "config.k8s.io/" + v, Kind: "Statusz"}
			writeJSON(w, z)
			return
		}
	}
	s.writeError(w, r, refusal.NotAcceptable([]string{request.JSON, "text/plain"}))
}

// text is what people read.
func (z *statusz) text(up time.Duration) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s statusz\n", statuszComponent)
	b.WriteString("Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.\n\n")
	seconds := int64(up / time.Second)
	fmt.Fprintf(&b, "Started: %s\n", z.StartTime.Format(time.UnixDate))
	fmt.Fprintf(&b, "Up: %d hr %02d min %02d sec\n", seconds/3600, seconds/60%60, seconds%60)
	fmt.Fprintf(&b, "Go version: %s\nBinary version: %s\nEmulation version: %s\n", z.GoVersion, z.BinaryVersion, z.EmulationVersion)
	fmt.Fprintf(&b, "Paths: %s\n", strings.Join(z.Paths, " "))
	return b.String()
}

// statuszPaths are the first parts of the paths that help to find out what is wrong.
func (s *Server) statuszPaths() []string {
	var paths []string
	for _, path := range s.paths() {
		first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
		switch first {
		case "api", "apis", "openapi", "openid", ".well-known":
			continue
		}
		if first = "/" + first; !slices.Contains(paths, first) {
			paths = append(paths, first)
		}
	}
	return paths
}
