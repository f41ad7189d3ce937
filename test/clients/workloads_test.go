package clients

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

// life follows one object of a kind through what clients do with it.
type life struct {
	*testing.T
	of     dynamic.ResourceInterface
	all    dynamic.ResourceInterface
	events watch.Interface
	name   string
}

// chosenByLife is the label of the object that a test follows.
const chosenByLife = "followed=by-a-test"

// newLife begins to watch, and makes the object.
func newLife(t *testing.T, namespace, resource, manifest string) *life {
	t.Helper()
	client, err := dynamic.NewForConfig(theServer.config)
	if err != nil {
		t.Fatal(err)
	}
	gvr, _ := schema.ParseResourceArg(resource)
	theServer.namespace(t, namespace)
	l := &life{T: t, of: client.Resource(*gvr).Namespace(namespace), all: client.Resource(*gvr)}
	if l.events, err = l.of.Watch(t.Context(), metav1.ListOptions{LabelSelector: chosenByLife}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.events.Stop)
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &u.Object); err != nil {
		t.Fatal(err)
	}
	l.name = u.GetName()
	if _, err := l.of.Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
		t.Fatalf("create: %v", err)
	}
	return l
}

// sees waits for an event that shows all that want says, and passes those before it by.
func (l *life) sees(kind watch.EventType, want string) {
	l.Helper()
	for deadline := time.After(wait.Patience); ; {
		select {
		case e, ok := <-l.events.ResultChan():
			if !ok {
				l.Fatalf("the watch ended before %s with %s", kind, want)
			}
			if u, isObject := e.Object.(*unstructured.Unstructured); isObject && e.Type == kind && u.GetName() == l.name && subset(fieldsOf(l.T, want), u.Object) {
				return
			}
		case <-deadline:
			l.Fatalf("no event %s with %s", kind, want)
		}
	}
}

// patches merges what is written in YAML into the object or a subresource of it.
func (l *life) patches(body string, sub ...string) *unstructured.Unstructured {
	l.Helper()
	data, err := yaml.YAMLToJSON([]byte(body))
	if err != nil {
		l.Fatal(err)
	}
	u, err := l.of.Patch(l.Context(), l.name, types.StrategicMergePatchType, data, metav1.PatchOptions{}, sub...)
	if err != nil {
		l.Fatalf("patch %s: %v", body, err)
	}
	return u
}

// updates changes what the server has, and again if others were faster.
func (l *life) updates(change func(u *unstructured.Unstructured) error) {
	l.Helper()
	err := wait.Try(wait.Patience, func() error {
		u, err := l.of.Get(l.Context(), l.name, metav1.GetOptions{})
		if err == nil {
			err = change(u)
		}
		if err == nil {
			_, err = l.of.Update(l.Context(), u, metav1.UpdateOptions{})
		}
		return err
	})
	if err != nil {
		l.Fatalf("update: %v", err)
	}
}

// isListed counts the objects with the label in all namespaces.
func (l *life) isListed(selector string, want int) {
	l.Helper()
	list, err := l.all.List(l.Context(), metav1.ListOptions{LabelSelector: selector})
	if err != nil || len(list.Items) != want {
		l.Errorf("list over all namespaces by %s: got %d objects, %v; want %d", selector, len(list.Items), err, want)
	}
}

// TestJobsAreWrittenInEveryWay suspends a job, changes and resumes it, and deletes it with its kind.
func TestJobsAreWrittenInEveryWay(t *testing.T) {
	t.Parallel()
	l := newLife(t, "job-life", "jobs.v1.batch", `
apiVersion: batch/v1
kind: Job
metadata: {name: suspended, labels: {followed: by-a-test}}
spec:
  suspend: true
  parallelism: 2
  completions: 2
  template:
    metadata: {annotations: {sim.kemudi.io/exit-after: 10ms}}
    spec: {restartPolicy: Never, containers: [{name: c, image: c}]}
`)
	l.patches(`metadata: {labels: {patched: by-a-test}}`)
	l.sees(watch.Modified, `metadata: {labels: {patched: by-a-test}}`)
	l.updates(func(u *unstructured.Unstructured) error {
		u.SetAnnotations(map[string]string{"updated": "true"})
		return unstructured.SetNestedField(u.Object, false, "spec", "suspend")
	})
	l.sees(watch.Modified, `{metadata: {annotations: {updated: "true"}}, spec: {suspend: false}}`)
	l.isListed("patched=by-a-test", 1)
	l.sees(watch.Modified, `status: {succeeded: 2}`)
	background := metav1.DeletePropagationBackground
	if err := l.of.DeleteCollection(t.Context(), metav1.DeleteOptions{PropagationPolicy: &background}, metav1.ListOptions{LabelSelector: "patched=by-a-test"}); err != nil {
		t.Fatalf("deletecollection: %v", err)
	}
	trace.Proves(t, "C-034")
	l.sees(watch.Deleted, `metadata: {labels: {patched: by-a-test}}`)
}

// TestReplicationControllersAreWrittenInEveryWay follows one from its creation to its end.
func TestReplicationControllersAreWrittenInEveryWay(t *testing.T) {
	t.Parallel()
	l := newLife(t, "rc-life", "replicationcontrollers.v1.", `
apiVersion: v1
kind: ReplicationController
metadata: {name: rc-life, labels: {followed: by-a-test}}
spec:
  replicas: 1
  selector: {followed: by-a-test}
  template:
    metadata: {labels: {followed: by-a-test}}
    spec: {containers: [{name: c, image: c}]}
`)
	l.sees(watch.Added, `metadata: {labels: {followed: by-a-test}}`)
	l.sees(watch.Modified, `status: {readyReplicas: 1}`)
	l.patches(`metadata: {labels: {patched: "true"}}`)
	l.sees(watch.Modified, `metadata: {labels: {patched: "true"}}`)
	if u := l.patches(`status: {readyReplicas: 0, availableReplicas: 0}`, "status"); !subset(fieldsOf(t, `metadata: {name: rc-life}`), u.Object) {
		t.Errorf("patch of the status: got %v", u.Object)
	}
	l.sees(watch.Modified, `status: {readyReplicas: 1, availableReplicas: 1}`) // its controller knows better
	if u, err := l.of.Get(t.Context(), l.name, metav1.GetOptions{}, "status"); err != nil || !subset(fieldsOf(t, `{kind: ReplicationController, status: {replicas: 1}}`), u.Object) {
		t.Errorf("status: got %v, %v", u, err)
	}
	l.patches(`spec: {replicas: 2}`, "scale")
	l.sees(watch.Modified, `{spec: {replicas: 2}, status: {readyReplicas: 2}}`)
	if u, err := l.of.Get(t.Context(), l.name, metav1.GetOptions{}, "scale"); err != nil || !subset(fieldsOf(t, `{kind: Scale, spec: {replicas: 2}, status: {selector: followed=by-a-test}}`), u.Object) {
		t.Errorf("scale: got %v, %v", u, err)
	}
	l.isListed("followed=by-a-test,patched=true", 1)
	l.updates(func(u *unstructured.Unstructured) error {
		return unstructured.SetNestedField(u.Object, "1", "metadata", "annotations", "updated")
	})
	l.sees(watch.Modified, `metadata: {annotations: {updated: "1"}}`)
	if err := l.of.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: chosenByLife}); err != nil {
		t.Fatalf("deletecollection: %v", err)
	}
	trace.Proves(t, "C-052")
	l.sees(watch.Deleted, fmt.Sprintf("metadata: {name: %s}", l.name))
}
