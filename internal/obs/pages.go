package obs

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/accept"
	"github.com/kemudi/kemudi/internal/version"
)

// Pages are what a component tells people of itself, and programs that ask for the kinds: what it is
// (/statusz, KEP-4827), and what it was told when it was started (/flagz, KEP-4828).
type Pages struct {
	Component string    // upstream's name of it
	Began     time.Time // when it began
	Level     version.Level
	// Paths are those that the component serves.
	Paths func() []string
}

// Install serves both by their paths.
func (p *Pages) Install(mux *http.ServeMux) {
	mux.HandleFunc("/statusz", p.Statusz)
	mux.HandleFunc("/flagz", p.Flagz)
}

// statusz is what a component is, in the form that programs ask for.
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

// flagz is what a component was told.
type flagz struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Flags map[string]string `json:"flags,omitempty"`
}

// Statusz answers what the component is, how long it runs, and where more is to be seen.
func (p *Pages) Statusz(w http.ResponseWriter, r *http.Request) {
	info, up := p.Level.Info(), int64(time.Since(p.Began)/time.Second)
	z := statusz{
		ObjectMeta: metav1.ObjectMeta{Name: p.Component}, StartTime: metav1.NewTime(p.Began), UptimeSeconds: up,
		GoVersion: runtime.Version(), BinaryVersion: version.Kubernetes, EmulationVersion: info.EmulationMajor + "." + info.EmulationMinor, Paths: roots(p.Paths()),
	}
	page{"statusz", "Statusz", func(m metav1.TypeMeta) any { z.TypeMeta = m; return z }, func(b *strings.Builder) {
		fmt.Fprintf(b, "\nStarted: %s\n", z.StartTime.Format(time.UnixDate))
		fmt.Fprintf(b, "Up: %d hr %02d min %02d sec\n", up/3600, up/60%60, up%60)
		fmt.Fprintf(b, "Go version: %s\nBinary version: %s\nEmulation version: %s\n", z.GoVersion, z.BinaryVersion, z.EmulationVersion)
		fmt.Fprintf(b, "Paths: %s\n", strings.Join(z.Paths, " "))
	}}.serve(w, r, p.Component)
}

// Flagz answers with what the process was told, as far as the request's context knows it ([WithFlags]).
func (p *Pages) Flagz(w http.ResponseWriter, r *http.Request) {
	flags, ok := r.Context().Value(flagsKey{}).(map[string]string)
	if !ok {
		http.NotFound(w, r)
		return
	}
	z := flagz{ObjectMeta: metav1.ObjectMeta{Name: p.Component}, Flags: flags}
	page{"flagz", "Flagz", func(m metav1.TypeMeta) any { z.TypeMeta = m; return z }, func(b *strings.Builder) {
		for _, name := range slices.Sorted(maps.Keys(flags)) {
			fmt.Fprintf(b, "%s=%s\n", name, flags[name])
		}
	}}.serve(w, r, p.Component)
}

// page is one answer in its forms.
type page struct {
	name, kind string
	object     func(metav1.TypeMeta) any
	text       func(*strings.Builder)
}

// groupOfPages has the kinds of pages.
const groupOfPages = "config.k8s.io"

// serve answers people in text, and programs that ask for the kind in JSON or YAML.
func (p page) serve(w http.ResponseWriter, r *http.Request, component string) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
		return
	}
	for _, c := range accept.Parse(cmp.Or(r.Header.Get("Accept"), "text/plain")) {
		switch v := c.Params["v"]; {
		case (c.Kind == "text/plain" || c.Kind == "text/*" || c.Kind == "*/*") && c.Params["as"] == "":
			var b strings.Builder
			fmt.Fprintf(&b, "\n%s %s\n", component, p.name)
			b.WriteString("Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.\n")
			p.text(&b)
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			_, _ = w.Write([]byte(b.String())) // an error means that the client has gone
			return
		case (c.Kind == "application/json" || c.Kind == "application/yaml") && c.Params["as"] == p.kind && c.Params["g"] == groupOfPages && (v == "v1beta1" || v == "v1alpha1"):
			if v == "v1alpha1" {
				w.Header().Set("Warning", fmt.Sprintf("299 - %q", "This version of the "+p.name+" endpoint is deprecated. Please use a newer version."))
			}
			p.write(w, c.Kind, v)
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusNotAcceptable)
	_ = json.NewEncoder(w).Encode(metav1.Status{ // an error means that the client has gone
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable,
		Message: "only the following media types are accepted: application/json, application/yaml, text/plain",
	})
}

// write answers with the object of a version.
func (p page) write(w http.ResponseWriter, media, version string) {
	encode := json.Marshal
	if media == "application/yaml" {
		encode = func(v any) ([]byte, error) { return yaml.Marshal(v) }
	}
	data, err := encode(p.object(metav1.TypeMeta{APIVersion: groupOfPages + "/" + version, Kind: p.kind}))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", media)
	_, _ = w.Write(data) // an error means that the client has gone
}

// roots are the first parts of those paths that help to find out what is wrong.
func roots(paths []string) (out []string) {
	for _, path := range paths {
		first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
		switch first {
		case "", "api", "apis", "openapi", "openid", ".well-known":
		default:
			out = append(out, "/"+first)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
