package worker

import (
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/node"
	"github.com/kemudi/kemudi/internal/client/https"
	"github.com/kemudi/kemudi/internal/resource"
)

// Memory says what a machine remembers of its cluster, for a start without the API: what
// its caches show, and what pods refer to that nodes may read but not follow. Silent is since
// when the servers have been asked in vain, if they have. Refused is told why servers that
// answer are not believed.
func Memory(dataDir string, silent time.Time, refused func(error)) *https.Memory {
	return &https.Memory{
		Dir: filepath.Join(dataDir, "known"), Worth: lasting, Silent: silent, Refused: refused,
		Answers: []*resource.Def{core.PersistentVolumeClaims.Def, core.PersistentVolumes.Def, node.RuntimeClasses.Def},
	}
}

// lasting reports whether a change is one that a start without the API should know. A node
// tells every few minutes that it is well, and of the images that it has. Of pods of other
// nodes much changes of which this machine keeps nothing.
func lasting(was, is resource.Object) bool {
	if p, ok := was.(*corev1.Pod); ok {
		before := *p
		before.ResourceVersion = is.GetResourceVersion()
		return !equality.Semantic.DeepEqual(&before, is)
	}
	a, ok := was.(*corev1.Node)
	b, both := is.(*corev1.Node)
	return !ok || !both || !equality.Semantic.DeepEqual(essence(a), essence(b))
}

// essence is what others do with a node by.
func essence(n *corev1.Node) *corev1.Node {
	e := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{UID: n.UID, Labels: n.Labels, Annotations: n.Annotations, DeletionTimestamp: n.DeletionTimestamp},
		Spec:       n.Spec,
		Status:     corev1.NodeStatus{Addresses: n.Status.Addresses, Capacity: n.Status.Capacity, Allocatable: n.Status.Allocatable},
	}
	for _, c := range n.Status.Conditions {
		e.Status.Conditions = append(e.Status.Conditions, corev1.NodeCondition{Type: c.Type, Status: c.Status})
	}
	return e
}

// Disbelieved says on the machine's Node why servers that answer are not believed. What they
// take of it is up to them.
func (w *Worker) Disbelieved(why error) {
	if r := w.recorder.Load(); r != nil {
		self := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.o.NodeName, UID: types.UID(w.o.NodeName)}}
		r.For("kemudi").Event(self, corev1.EventTypeWarning, "ServersNotBelieved", why.Error())
	}
}
