package sim

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kemudi/kemudi/internal/apiserver"
	"github.com/kemudi/kemudi/internal/apiserver/discovery"
	"github.com/kemudi/kemudi/internal/cache"
)

// adapter serves custom.metrics.k8s.io and external.metrics.k8s.io as another server
// behind the API, once a script has set a metric.
type adapter struct {
	pods func() *cache.Cache
	mu   struct {
		sync.Mutex
		values map[string]string // by what they are of: "external", "pods" or "PLURAL/NAME", a slash and the metric's name
	}
}

var _ apiserver.Aggregated = (*adapter)(nil)

func newAdapter(pods func() *cache.Cache) *adapter {
	a := &adapter{pods: pods}
	a.mu.values = map[string]string{}
	return a
}

func (a *adapter) set(name, value string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.values[name] = value
}

// Has reports whether a group is one of the adapter's.
func (a *adapter) Has(gv schema.GroupVersion) bool {
	return gv.Group == "custom.metrics.k8s.io" || gv.Group == "external.metrics.k8s.io"
}

// customMetrics is what clients are told of.
var customMetrics = &discovery.Others{Versions: []discovery.Remote{{GroupVersion: schema.GroupVersion{Group: "custom.metrics.k8s.io", Version: "v1beta2"}}}}

// Discovered is what clients are told of, once there is a metric.
func (a *adapter) Discovered() *discovery.Others {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.mu.values) == 0 {
		return nil
	}
	return customMetrics
}

// Serve answers with the value of a metric.
func (a *adapter) Serve(w http.ResponseWriter, r *http.Request, _ schema.GroupVersion, _ user.Info) {
	a.mu.Lock()
	defer a.mu.Unlock()
	path, custom := strings.CutPrefix(r.URL.Path, "/apis/custom.metrics.k8s.io")
	parts := strings.Split(strings.Trim(path, "/"), "/") // VERSION namespaces NAMESPACE and what follows
	if !custom {
		path = strings.TrimPrefix(r.URL.Path, "/apis/external.metrics.k8s.io/v1beta1/namespaces/")
		_, name, _ := strings.Cut(path, "/")
		a.answerLocked(w, r, "external/"+name, nil)
		return
	}
	if len(parts) != 6 {
		http.NotFound(w, r)
		return
	}
	if parts[4] != "*" {
		a.answerLocked(w, r, strings.Join(parts[3:], "/"), []string{parts[4]})
		return
	}
	selected, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	names := []string{}
	for _, it := range a.pods().List(parts[2], selected) {
		names = append(names, it.Object.GetName())
	}
	a.answerLocked(w, r, "pods/"+parts[5], names)
}

// answerLocked answers with one value for each object; nil: with one of none.
func (a *adapter) answerLocked(w http.ResponseWriter, r *http.Request, name string, objects []string) {
	value, ok := a.mu.values[name]
	if !ok {
		http.NotFound(w, r)
		return
	}
	items := []any{}
	if objects == nil {
		items = append(items, map[string]any{"metricName": name, "value": value})
	}
	for _, object := range objects {
		items = append(items, map[string]any{"describedObject": map[string]string{"name": object}, "metric": map[string]string{"name": name}, "value": value})
	}
	answerJSON(w, map[string]any{"items": items})
}

func answerJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // an error means that the client has gone
}

// setMetric is the command metric.
func setMetric(_ context.Context, r *run, args []string) error {
	if len(args) != 2 {
		return errArgs
	}
	if _, err := resource.ParseQuantity(args[1]); err != nil {
		return err
	}
	r.c.adapter.set(args[0], args[1])
	return nil
}
