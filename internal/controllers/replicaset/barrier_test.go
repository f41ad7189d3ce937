package replicaset_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/apps"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/cluster"
	"github.com/kemudi/kemudi/internal/sim"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/store/mem"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/trace"
)

// slow is a store whose feed is a second late, and which counts pods as they
// come and go.
type slow struct {
	store.Store
	mu   sync.Mutex
	pods map[string]bool
	most int // at once
	few  int // at once, since the last reset
}

func (s *slow) Watch(ctx context.Context, prefix string, after int64, fn func([]store.Change, int64) error) error {
	return s.Store.Watch(ctx, prefix, after, func(changes []store.Change, progress int64) error {
		if err := task.Sleep(ctx, time.Second); err != nil {
			return err
		}
		return fn(changes, progress)
	})
}

func (s *slow) Txn(ctx context.Context, t store.Txn) (store.TxnResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	res, err := s.Store.Txn(ctx, t)
	for _, op := range t.Ops {
		if err != nil || !res.OK || !strings.HasPrefix(op.Key, "/registry/pods/") {
			continue
		}
		if op.Value == nil {
			delete(s.pods, op.Key)
		} else {
			s.pods[op.Key] = true
		}
		s.most, s.few = max(s.most, len(s.pods)), min(s.few, len(s.pods))
	}
	return res, err
}

func (s *slow) count() (now, most, few int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, most, few = len(s.pods), s.most, s.few
	s.most, s.few = now, now
	return now, most, few
}

// TestSetNeverOvershoots is the proof of the read-your-writes barrier: with
// caches a second late, no pod too many is made, and none too many is deleted.
func TestSetNeverOvershoots(t *testing.T) {
	trace.Proves(t, "RS-003", "RS-042")
	synctest.Test(t, func(t *testing.T) {
		st := &slow{Store: mem.New(mem.Options{}), pods: map[string]bool{}}
		plane := sim.Plane(t, cluster.ControlPlaneOptions{Store: st})
		sets := client.For(plane.Admin(), apps.ReplicaSets)
		labels := map[string]string{"app": "web"}
		_, err := sets.Create(t.Context(), &appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
			Spec: appsv1.ReplicaSetSpec{
				Replicas: ptr.To[int32](20), Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "c"}}},
				},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		if now, most, _ := st.count(); now != 20 || most != 20 {
			t.Errorf("got %d pods, at most %d, want 20 and never more", now, most)
		}
		for _, n := range []int32{5, 12, 1} {
			was, _, _ := st.count()
			set, err := sets.Get(t.Context(), "default", "web")
			if err != nil {
				t.Fatal(err)
			}
			set = set.DeepCopy()
			set.Spec.Replicas = &n
			if _, err := sets.Update(t.Context(), set); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Minute)
			now, most, few := st.count()
			if now != int(n) || most != max(was, int(n)) || few != min(was, int(n)) {
				t.Errorf("from %d to %d: got %d pods, between %d and %d on the way", was, n, now, few, most)
			}
		}
	})
}
