package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/task"
)

// Limits of what a Recorder keeps and tries.
const (
	recorderQueue = 1000 // notes waiting to be written; more are dropped
	writeDeadline = 30 * time.Second
	writeTries    = 12 // while the API cannot be reached
)

// Recorder writes Events for one process: repetitions are counted in the event
// that exists, many similar ones are put together, and an object that is noted
// too often is held back.
type Recorder struct {
	events Client[*corev1.Event]
	host   string
	log    *slog.Logger
	notes  chan note // buffered, so that noting never blocks
	known  *correlator
}

type note struct {
	component             string
	about                 corev1.ObjectReference
	kind, reason, message string
	action                string
	related               *corev1.ObjectReference
	annotations           map[string]string
	at                    time.Time
}

// NewRecorder returns a recorder that writes through t; host names the machine
// or process in the events' source and may be empty. It writes while Run runs.
func NewRecorder(t Transport, host string, log *slog.Logger) *Recorder {
	return &Recorder{
		events: For(t, core.Events), host: host, log: log,
		notes: make(chan note, recorderQueue), known: newCorrelator(),
	}
}

// For returns the sink of one component ("kubelet", "deployment-controller").
func (r *Recorder) For(component string) EventSink { return sink{r, component} }

type sink struct {
	r         *Recorder
	component string
}

func (s sink) Event(obj resource.Object, kind, reason, message string) {
	n := note{component: s.component, kind: kind, reason: reason, message: message, at: time.Now()}
	if deed, ok := obj.(Deed); ok {
		obj, n.action = deed.Object, deed.Action
		if deed.Related != nil {
			n.related = new(reference(deed.Related))
		}
	}
	if a, ok := obj.(Annotated); ok {
		obj, n.annotations = a.Object, a.Annotations
	}
	n.about = reference(obj)
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
			if err := r.write(ctx, &n); err != nil && ctx.Err() == nil {
				r.log.Warn("write event", "reason", n.reason, "object", n.about.Name, "err", err)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// write writes a note. It is tried again while the API cannot be reached.
func (r *Recorder) write(ctx context.Context, n *note) error {
	e, ok := r.known.event(n, r.host)
	if !ok {
		return nil
	}
	backoff := task.Backoff{Initial: 200 * time.Millisecond, Max: 10 * time.Second, Jitter: 1}
	unsure := false // whether it was written
	for try := 1; ; try++ {
		err := r.send(ctx, e)
		var answer apierrors.APIStatus
		switch {
		case err == nil, try == writeTries:
			return err
		case apierrors.IsAlreadyExists(err) && unsure:
			return nil
		case apierrors.IsAlreadyExists(err): // another process names an event of the object at the same time
			r.known.name(e)
			continue
		case errors.As(err, &answer):
			return err
		}
		unsure = true
		if task.Sleep(ctx, backoff.Next()) != nil {
			return err
		}
	}
}

// send counts an event that is stored, or creates one.
func (r *Recorder) send(ctx context.Context, e planned) error {
	ctx, cancel := context.WithTimeout(ctx, writeDeadline)
	defer cancel()
	if e.again {
		err := r.count(ctx, e.Event)
		if !apierrors.IsNotFound(err) {
			return err
		}
	}
	_, err := r.events.Create(ctx, e.DeepCopy())
	if namespaceGoes(err) {
		return nil // nobody will read it
	}
	return err
}

// namespaceGoes says whether a write failed because its namespace is being
// deleted, or is gone already.
func namespaceGoes(err error) bool {
	var answer apierrors.APIStatus
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) ||
		apierrors.IsNotFound(err) && errors.As(err, &answer) && answer.Status().Details != nil && answer.Status().Details.Kind == "namespaces"
}

// count notes one more occurrence in an event that is stored already.
func (r *Recorder) count(ctx context.Context, e *corev1.Event) error {
	data, err := json.Marshal(map[string]any{"count": e.Count, "lastTimestamp": e.LastTimestamp, "message": e.Message})
	if err != nil {
		return fmt.Errorf("encode event patch: %w", err)
	}
	_, err = r.events.Patch(ctx, e.Namespace, e.Name, "", Patch{Type: types.MergePatchType, Data: data})
	return err
}

func newEvent(n *note, host string) *corev1.Event {
	namespace := n.about.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	at := metav1.NewTime(n.at)
	return &corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: namespace, Annotations: n.annotations},
		InvolvedObject:      n.about,
		Type:                n.kind,
		Reason:              n.reason,
		Message:             cut(n.message),
		Action:              n.action,
		Related:             n.related,
		Source:              corev1.EventSource{Component: n.component, Host: host},
		ReportingController: n.component,
		ReportingInstance:   host,
		LastTimestamp:       at,
	}
}

// longest is how many bytes the API takes as a message.
const longest = 1024

func cut(message string) string {
	if len(message) <= longest {
		return message
	}
	const dots = " ..."
	return strings.ToValidUTF8(message[:longest-len(dots)], "") + dots
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
