package podstep

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// writeStatic is write for a static pod: the node keeps its status itself (same: it
// has), has the API show the pod as it is, and takes that away when it has ended.
func (s *step) writeStatic(same bool) {
	switch {
	case !same:
		s.do(Action{Op: KeepStatus})
	case s.pod.DeletionTimestamp == nil:
		if !s.o.Mirror.shows(s.pod) {
			s.do(Action{Op: MirrorPod})
		}
	case s.stopped() && s.o.CleanedUp:
		s.do(Action{Op: RemoveMirror})
	}
}

// shows reports whether the mirror is the static pod's, stays, and has its status.
func (m *Mirror) shows(pod *v1.Pod) bool {
	return m.UID != "" && m.Of == pod.UID && !m.Leaving && m.Reported == m.UID &&
		m.Written != nil && equality.Semantic.DeepEqual(*m.Written, pod.Status)
}
