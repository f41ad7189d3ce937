package replicaset_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/apps"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/plane"
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
		plane := sim.Plane(t, plane.Options{Store: st})
		sets := client.For(plane.Admin(), apps.ReplicaSets)
		create(t, sets, 20)
		time.Sleep(5 * time.Minute)
		if now, most, _ := st.count(); now != 20 || most != 20 {
			t.Errorf("got %d pods, at most %d, want 20 and never more", now, most)
		}
		for _, n := range []int32{5, 12, 1} {
			was, _, _ := st.count()
			scale(t, sets, n)
			time.Sleep(5 * time.Minute)
			now, most, few := st.count()
			if now != int(n) || most != max(was, int(n)) || few != min(was, int(n)) {
				t.Errorf("from %d to %d: got %d pods, between %d and %d on the way", was, n, now, few, most)
			}
		}
	})
}

func create(t *testing.T, sets client.Client[*appsv1.ReplicaSet], replicas int32) {
	t.Helper()
	labels := map[string]string{"app": "web"}
	_, err := sets.Create(t.Context(), &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "c"}}},
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func scale(t *testing.T, sets client.Client[*appsv1.ReplicaSet], replicas int32) {
	t.Helper()
	set, err := sets.Get(t.Context(), "default", "web")
	if err != nil {
		t.Fatal(err)
	}
	set = set.DeepCopy()
	set.Spec.Replicas = &replicas
	if _, err := sets.Update(t.Context(), set); err != nil {
		t.Fatal(err)
	}
}

// TestPodsThatChangeMeanwhileAreDeletedWithoutAWord scales down while the cache
// does not show yet how the pods are.
func TestPodsThatChangeMeanwhileAreDeletedWithoutAWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &slow{Store: mem.New(mem.Options{}), pods: map[string]bool{}}
		plane := sim.Plane(t, plane.Options{Store: st})
		sets, pods := client.For(plane.Admin(), apps.ReplicaSets), client.For(plane.Admin(), core.Pods)
		create(t, sets, 20)
		time.Sleep(time.Minute)
		scale(t, sets, 0)
		for range 300 { // three seconds, while the controller works
			all, err := pods.List(t.Context(), "default", metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, pod := range all {
				_, err := pods.Patch(t.Context(), "default", pod.Name, "", client.Patch{
					Type: "application/merge-patch+json", Data: fmt.Appendf(nil, `{"metadata":{"annotations":{"at":"%s"}}}`, time.Now()),
				})
				if err != nil && !apierrors.IsNotFound(err) {
					t.Fatal(err)
				}
			}
			set, err := sets.Get(t.Context(), "default", "web")
			if err != nil {
				t.Fatal(err)
			}
			if len(set.Status.Conditions) > 0 {
				t.Fatalf("got condition %v, want none: pods that change are nothing to tell", set.Status.Conditions)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if now, _, _ := st.count(); now != 0 {
			t.Errorf("got %d pods left, want none", now)
		}
	})
}
