package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	config "k8s.io/kubelet/config/v1beta1"

	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/logs"
	"github.com/kemudi/kemudi/internal/kubelet/machine"
	"github.com/kemudi/kemudi/internal/kubelet/pod"
	"github.com/kemudi/kemudi/internal/kubelet/podstep"
	"github.com/kemudi/kemudi/internal/obs/tracing"
)

// Options of a Server; all but Settings and Tracing are required.
type Options struct {
	NodeName string
	Pods     *pod.Set
	// Cached holds the pods of the node at least, as the API has them.
	Cached client.Reader[*v1.Pod]
	Images runtimeapi.ImageServiceClient
	// Machine is what the node is, and RootDir is on the file system that pods write to; neither is looked at on a
	// simulated node.
	Machine machine.Info
	RootDir string
	// Config is how the agent is configured, as far as upstream's has the same settings.
	Config   config.KubeletConfiguration
	Settings Settings
	// CheckpointDir is where states of containers are written to.
	CheckpointDir string
	// Registry gets the agent's metrics, and is served with what else is in it.
	Registry *prometheus.Registry
	Log      *slog.Logger
	// Tracing makes spans of requests; nil: there are none.
	Tracing *tracing.Provider
}

// Server serves the API of one node's agent.
type Server struct {
	o        Options
	runtime  runtimeapi.RuntimeServiceClient
	requests *requests
	began    time.Time

	mu struct {
		sync.Mutex
		read map[string]int64 // how many bytes of a log clients have read from its beginning
		used *machine.Usage   // of the machine, at an earlier look; nil: there was none
		held map[types.UID]*measured
	}
}

// New returns a server.
func New(o Options) *Server {
	s := &Server{o: o, runtime: o.Pods.Runner.Runtime, requests: newRequests(o.Registry), began: time.Now()}
	s.mu.read, s.mu.held = map[string]int64{}, map[types.UID]*measured{}
	s.register()
	return s
}

// actorPatience is how long an update may wait for a pod's actor that is well.
const actorPatience = 5 * time.Minute

// checkActors fails when there is an update of a pod that nobody has seen to.
func (s *Server) checkActors(context.Context) error {
	if uid, waits := s.o.Pods.Late(); waits > actorPatience {
		return fmt.Errorf("nothing has been done for pod %s, of which there is an update, for %s", uid, waits.Round(time.Second))
	}
	return nil
}

func (s *Server) servePods(w http.ResponseWriter, _ *http.Request) {
	list := v1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}}
	for _, pod := range s.o.Cached.ByIndex("spec.nodeName", s.o.NodeName) {
		list.Items = append(list.Items, *pod)
	}
	writeJSON(w, list)
}

// serveRunning answers with the pods that run, as far as the runtime knows them.
func (s *Server) serveRunning(w http.ResponseWriter, _ *http.Request) {
	list := v1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: s.o.Pods.Running()}
	slices.SortFunc(list.Items, func(a, b v1.Pod) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	writeJSON(w, list)
}

func writeJSON(w http.ResponseWriter, value any) {
	data, err := json.Marshal(value)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(data) // an error means that the client has gone
}

// found is what a request is about, as its pod's actor knows it.
type found struct{ *pod.View }

// running is the ID of the running container with the name, if there is one.
func (f found) running(name string) (id string, ok bool) {
	for i := range f.Containers {
		if c := &f.Containers[i]; c.Name == name && c.State == podstep.Running {
			return c.ID, true
		}
	}
	return "", false
}

// errNoPod says that the pod is not on this node.
var errNoPod = errors.New("pod does not exist")

// find asks the actor of a pod what it knows.
func (s *Server) find(ctx context.Context, r *http.Request) (found, error) {
	p, ok := s.o.Cached.Get(r.PathValue("namespace"), r.PathValue("pod"))
	if !ok || p.Spec.NodeName != s.o.NodeName || r.PathValue("uid") != "" && r.PathValue("uid") != string(p.UID) && r.PathValue("uid") != string(pod.RunningUID(p)) {
		return found{}, errNoPod
	}
	v, err := s.o.Pods.View(ctx, pod.RunningUID(p))
	if err == nil && v == nil {
		err = errNoPod
	}
	return found{v}, err
}

func fail(w http.ResponseWriter, err error) {
	code := http.StatusInternalServerError
	var bad *badRequest
	switch {
	case errors.Is(err, errNoPod):
		code = http.StatusNotFound
	case errors.As(err, &bad):
		code = http.StatusBadRequest
	}
	failWith(w, code, err)
}

func failWith(w http.ResponseWriter, code int, err error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(err.Error())) // an error means that the client has gone
}

// badRequest is an error that the caller has made.
type badRequest struct{ text string }

func (e *badRequest) Error() string { return e.text }

// serveLogs writes a container's log.
func (s *Server) serveLogs(w http.ResponseWriter, r *http.Request) {
	o, previous, err := logOptions(r.URL.Query())
	if err != nil {
		fail(w, &badRequest{err.Error()})
		return
	}
	f, err := s.find(r.Context(), r)
	if err != nil {
		fail(w, err)
		return
	}
	name := r.PathValue("container")
	if cri.FindContainer(f.Pod, name) == nil {
		failWith(w, http.StatusNotFound, fmt.Errorf("container %q not found in pod %q", name, f.Pod.Name))
		return
	}
	id, running, err := f.logged(name, previous)
	if err != nil {
		fail(w, &badRequest{err.Error()})
		return
	}
	st, err := s.runtime.ContainerStatus(r.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		fail(w, &badRequest{fmt.Sprintf("unable to retrieve container logs for %s://%s", s.o.Pods.RuntimeName(), id)})
		return
	}
	o.Follow = o.Follow && running
	if o.Follow {
		o.Done = s.o.Pods.ExitOf(f.Pod.UID, id)
	}
	out := &flushed{w: w}
	out.f, _ = w.(http.Flusher)
	if o.Stdout != nil {
		o.Stdout = out
	}
	if o.Stderr != nil {
		o.Stderr = out
	}
	o.Flush = out.flush
	w.Header().Set("Content-Type", "text/plain")
	if o.Follow {
		out.flush() // the client is to see that it is connected
	}
	err = logs.Read(r.Context(), st.GetStatus().GetLogPath(), o)
	if err != nil && !out.wrote {
		fail(w, &badRequest{fmt.Sprintf("failed to read log of container %q: %v", name, err)})
	}
	if whole := o.Tail < 0 && o.Limit < 0 && o.Since.IsZero() && !o.Timestamps && o.Stdout != nil && o.Stderr != nil; whole && err == nil {
		s.noteRead(id, out.n)
	}
}

// logged is the container whose log is meant: the last that was started, or the
// one before.
func (f found) logged(name string, previous bool) (id string, running bool, err error) {
	var list []*podstep.Container
	for i := range f.Containers {
		if c := &f.Containers[i]; c.Name == name && c.State != podstep.Created {
			list = append(list, c)
		}
	}
	if previous {
		// The one that the status shows as the last state, which may be all there
		// is while the next one waits for its back-off.
		last := f.lastState(name)
		i := slices.IndexFunc(list, func(c *podstep.Container) bool { return c.ID == last })
		if i < 0 {
			return "", false, fmt.Errorf("previous terminated container %q in pod %q not found", name, f.Pod.Name)
		}
		return last, false, nil
	}
	if len(list) == 0 {
		return "", false, f.notStarted(name)
	}
	return list[0].ID, list[0].State == podstep.Running, nil
}

// status is what the API shows of a container; nil: nothing.
func (f found) status(name string) *v1.ContainerStatus {
	s := &f.Pod.Status
	for _, list := range [][]v1.ContainerStatus{s.ContainerStatuses, s.InitContainerStatuses, s.EphemeralContainerStatuses} {
		if i := slices.IndexFunc(list, func(cs v1.ContainerStatus) bool { return cs.Name == name }); i >= 0 {
			return &list[i]
		}
	}
	return nil
}

// notStarted says why there is no log of a container.
func (f found) notStarted(name string) error {
	why := "ContainerCreating"
	if cs := f.status(name); cs != nil && cs.State.Waiting != nil {
		why = cs.State.Waiting.Reason
	}
	switch why {
	case "ErrImagePull":
		why = "image can't be pulled"
	case "ImagePullBackOff":
		why = "trying and failing to pull image"
	}
	return fmt.Errorf("container %q in pod %q is waiting to start: %s", name, f.Pod.Name, why)
}

// lastState is the ID of the container that ended before the present one, as
// the pod's status has it; empty if there is none.
func (f found) lastState(name string) string {
	cs := f.status(name)
	if cs == nil || cs.LastTerminationState.Terminated == nil {
		return ""
	}
	_, id, _ := strings.Cut(cs.LastTerminationState.Terminated.ContainerID, "://")
	return id
}

// flushed hands each write on at once.
type flushed struct {
	w     http.ResponseWriter
	f     http.Flusher // nil: the writer has none
	wrote bool
	n     int64 // bytes
}

func (f *flushed) Write(p []byte) (int, error) {
	f.wrote = true
	n, err := f.w.Write(p)
	f.n += int64(n)
	return n, err
}

func (f *flushed) flush() {
	if f.f != nil {
		f.wrote = true
		f.f.Flush()
	}
}

// logOptions reads the query of a request for a log.
func logOptions(q url.Values) (o logs.Options, previous bool, err error) {
	o = logs.Options{Tail: -1, Limit: -1, Follow: flag(q, "follow"), Timestamps: flag(q, "timestamps")}
	number := func(name string, into *int64) {
		if text := q.Get(name); text != "" && err == nil {
			if *into, err = strconv.ParseInt(text, 10, 64); err != nil || *into < 0 {
				err = fmt.Errorf("invalid %s %q", name, text)
			}
		}
	}
	switch tail := q.Get("tail"); tail { // its name of old
	case "":
		number("tailLines", &o.Tail)
	case "all":
	default:
		number("tail", &o.Tail)
	}
	number("limitBytes", &o.Limit)
	if q.Has("sinceSeconds") {
		var seconds int64
		number("sinceSeconds", &seconds)
		o.Since = time.Now().Add(-time.Duration(seconds) * time.Second)
	}
	if text := q.Get("sinceTime"); text != "" && err == nil {
		o.Since, err = time.Parse(time.RFC3339, text)
	}
	both := &flushed{} // stands for "wanted" until the answer begins
	switch stream := q.Get("stream"); stream {
	case "", v1.LogStreamAll:
		o.Stdout, o.Stderr = both, both
	case v1.LogStreamStdout:
		o.Stdout = both
	case v1.LogStreamStderr:
		o.Stderr = both
	default:
		err = fmt.Errorf("invalid stream %q", stream)
	}
	return o, flag(q, "previous"), err
}
