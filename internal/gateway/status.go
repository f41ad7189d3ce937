package gateway

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fault is why something is not done.
type fault struct {
	reason  string
	message string
}

func faultf[R ~string](reason R, format string, args ...any) *fault {
	return &fault{string(reason), fmt.Sprintf(format, args...)}
}

// conditions are those of one thing, of one generation of its object.
type conditions struct {
	generation int64
	list       []metav1.Condition
}

func (c *conditions) set(kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&c.list, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: c.generation})
}

// yes says that something holds.
func yes[K, R ~string](c *conditions, kind K, reason R) {
	c.set(string(kind), metav1.ConditionTrue, string(reason), "")
}

// unless says that something holds, unless there is a fault.
func unless[K, R ~string](c *conditions, f *fault, kind K, reason R) {
	if f == nil {
		yes(c, kind, reason)
		return
	}
	c.set(string(kind), metav1.ConditionFalse, f.reason, f.message)
}

// Merge returns the conditions that a status had, with those that it is to have in place of those of the same type. The
// time of a transition stays where the condition's status stays, and so do conditions of types that others write.
func Merge(had, want []metav1.Condition) []metav1.Condition {
	out := append([]metav1.Condition(nil), had...)
	for _, c := range want {
		meta.SetStatusCondition(&out, c)
	}
	return out
}
