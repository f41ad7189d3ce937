package client

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/resource"
)

// Limits of what a Recorder remembers and writes.
const (
	recorderQueue  = 1000             // notes waiting to be written; more are dropped
	recorderMemory = 4096             // different events remembered to count repetitions
	recorderWindow = 10 * time.Minute // a repetition later than this is a new event
	objectBurst    = 25               // events about one object at once ...
	objectRefill   = 5 * time.Minute  // ... and one more each so often
	writeDeadline  = 30 * time.Second
)

// Recorder writes Events for one process: repetitions are counted in the event
// that exists, and an object that is noted too often is held back.
type Recorder struct {
	events Client[*corev1.Event]
	host   string
	log    *slog.Logger
	notes  chan note // buffered, so that noting never blocks

	// Owned by Run.
	known  map[eventKey]*corev1.Event
	budget map[types.UID]*bucket
	stamp  int64 // the nanosecond in the last event's name
}

type note struct {
	component             string
	about                 corev1.ObjectReference
	kind, reason, message string
	at                    time.Time
}

// eventKey is what makes two notes the same event.
type eventKey struct {
	component             string
	about                 corev1.ObjectReference
	kind, reason, message string
}

// bucket holds an object's right to further events.
type bucket struct {
	left   int
	filled time.Time
}

// NewRecorder returns a recorder that writes through t; host names the machine
// or process in the events' source and may be empty. It writes while Run runs.
func NewRecorder(t Transport, host string, log *slog.Logger) *Recorder {
	return &Recorder{
		events: For(t, core.Events), host: host, log: log,
		notes: make(chan note, recorderQueue),
		known: map[eventKey]*corev1.Event{}, budget: map[types.UID]*bucket{},
	}
}

// For returns the sink of one component ("kubelet", "deployment-controller").
func (r *Recorder) For(component string) EventSink { return sink{r, component} }

type sink struct {
	r         *Recorder
	component string
}

func (s sink) Event(obj resource.Object, kind, reason, message string) {
	n := note{component: s.component, about: reference(obj), kind: kind, reason: reason, message: message, at: time.Now()}
	select {
	case s.r.notes <- n:
	default: // better lose a note than hold up the work
	}
}

// reference names obj as events do. Objects from caches have no TypeMeta, so
// the kind comes from their Go type's declaration.
func reference(obj resource.Object) corev1.ObjectReference {
	if part, ok := obj.(Part); ok {
		ref := reference(part.Object)
		ref.FieldPath = part.FieldPath
		return ref
	}
	gvk := kindOf(obj)
	return corev1.ObjectReference{
		APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind,
		Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID(), ResourceVersion: obj.GetResourceVersion(),
	}
}

// Run writes what is noted until ctx ends.
func (r *Recorder) Run(ctx context.Context) error {
	for {
		select {
		case n := <-r.notes:
			if err := r.write(ctx, n); err != nil && ctx.Err() == nil {
				r.log.Warn("write event", "reason", n.reason, "object", n.about.Name, "err", err)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

func (r *Recorder) write(ctx context.Context, n note) error {
	ctx, cancel := context.WithTimeout(ctx, writeDeadline)
	defer cancel()
	key := eventKey{n.component, n.about, n.kind, n.reason, n.message}
	key.about.ResourceVersion = ""
	if old := r.known[key]; old != nil && n.at.Sub(old.LastTimestamp.Time) < recorderWindow {
		again, err := r.count(ctx, old, n)
		if err == nil {
			r.known[key] = again
			return nil
		}
		if !apierrors.IsNotFound(err) {
			return err
		}
	}
	if !r.allow(n) {
		return nil
	}
	event, err := r.events.Create(ctx, r.event(n))
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil // nobody will read it
	}
	if err != nil {
		return err
	}
	if len(r.known) >= recorderMemory {
		clear(r.known)
	}
	r.known[key] = event
	return nil
}

// count notes one more occurrence in an event that is stored already.
func (r *Recorder) count(ctx context.Context, old *corev1.Event, n note) (*corev1.Event, error) {
	data, err := json.Marshal(map[string]any{"count": old.Count + 1, "lastTimestamp": metav1.NewTime(n.at)})
	if err != nil {
		return nil, fmt.Errorf("encode event patch: %w", err)
	}
	return r.events.Patch(ctx, old.Namespace, old.Name, "", Patch{Type: types.MergePatchType, Data: data})
}

// allow takes one event from the object's budget.
func (r *Recorder) allow(n note) bool {
	if len(r.budget) >= recorderMemory {
		clear(r.budget)
	}
	b := r.budget[n.about.UID]
	if b == nil {
		b = &bucket{left: objectBurst, filled: n.at}
		r.budget[n.about.UID] = b
	}
	if more := int(n.at.Sub(b.filled) / objectRefill); more > 0 {
		b.left = min(objectBurst, b.left+more)
		b.filled = b.filled.Add(time.Duration(more) * objectRefill)
	}
	if b.left == 0 {
		return false
	}
	b.left--
	return true
}

func (r *Recorder) event(n note) *corev1.Event {
	namespace := n.about.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	at := metav1.NewTime(n.at)
	r.stamp = max(n.at.UnixNano(), r.stamp+1) // two notes of one moment have two names
	return &corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s.%x", n.about.Name, r.stamp)},
		InvolvedObject:      n.about,
		Type:                n.kind,
		Reason:              n.reason,
		Message:             n.message,
		Source:              corev1.EventSource{Component: n.component, Host: r.host},
		ReportingController: n.component,
		ReportingInstance:   r.host,
		FirstTimestamp:      at,
		LastTimestamp:       at,
		Count:               1,
	}
}

// kindOf finds the kind of a built-in Go type.
func kindOf(obj resource.Object) schema.GroupVersionKind {
	if gvk := obj.GetObjectKind().GroupVersionKind(); gvk.Kind != "" {
		return gvk
	}
	gvks, _, err := kinds.ObjectKinds(obj)
	if err != nil || len(gvks) == 0 {
		return schema.GroupVersionKind{}
	}
	return gvks[0]
}
