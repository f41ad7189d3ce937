package core

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestNewReplicationControllerIsWarnedOfANameThatIsNoHostName(t *testing.T) {
	t.Parallel()
	rc := &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Name: "front.end", Generation: 1}}
	if got := ReplicationControllers.Warn(rc, nil); len(got) != 1 {
		t.Errorf("new: got warnings %q, want one of the name", got)
	}
	if got := ReplicationControllers.Warn(rc, rc); len(got) != 0 {
		t.Errorf("unchanged: got warnings %q, want none", got)
	}
}
