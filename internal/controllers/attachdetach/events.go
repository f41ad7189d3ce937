package attachdetach

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// tellSuccess tells the pods of a node that need a volume that it is attached.
func (r *reconciler) tellSuccess(s *subject, node string) {
	for _, p := range s.pods[node] {
		r.events.Event(p, corev1.EventTypeNormal, "SuccessfulAttachVolume", fmt.Sprintf("AttachVolume.Attach succeeded for volume %q ", s.of.Name))
	}
}

// tellFailure tells them that it could not be attached.
func (r *reconciler) tellFailure(s *subject, node, why string) {
	for _, p := range s.pods[node] {
		r.events.Event(p, corev1.EventTypeWarning, "FailedAttachVolume", fmt.Sprintf("AttachVolume.Attach failed for volume %q : %s", s.of.Name, why))
	}
}

// tellElsewhere tells them that another node has the volume, and by whom it is used there: of
// their own namespace by name, of others by number.
func (r *reconciler) tellElsewhere(s *subject, node string) {
	var users []*corev1.Pod
	for other, pods := range s.pods {
		if other != node && phaseOf(s.attachments[other]) == done {
			users = append(users, pods...)
		}
	}
	slices.SortFunc(users, older)
	for _, p := range s.pods[node] {
		r.events.Event(p, corev1.EventTypeWarning, "FailedAttachVolume", fmt.Sprintf("Multi-Attach error for volume %q %s", s.of.Name, elsewhere(p.Namespace, users)))
	}
}

// elsewhere says by whom a volume is used that cannot be had.
func elsewhere(namespace string, users []*corev1.Pod) string {
	var names []string
	for _, u := range users {
		if u.Namespace == namespace {
			names = append(names, u.Name)
		}
	}
	others := len(users) - len(names)
	switch {
	case len(users) == 0:
		return "Volume is already exclusively attached to one node and can't be attached to another"
	case len(names) == 0:
		return fmt.Sprintf("Volume is already used by %d pod(s) in different namespaces", others)
	case others > 0:
		return fmt.Sprintf("Volume is already used by pod(s) %s and %d pod(s) in different namespaces", strings.Join(names, ", "), others)
	}
	return "Volume is already used by pod(s) " + strings.Join(names, ", ")
}
