package plane_test

import (
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/coordination"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/leader"
	"github.com/kemudi/kemudi/internal/plane"
	"github.com/kemudi/kemudi/internal/scheduler/config"
	"github.com/kemudi/kemudi/internal/sim"
)

func TestSchedulerIsElectedAsItsFileSays(t *testing.T) {
	for name, c := range map[string]struct {
		file   string
		flags  leader.Settings
		leases map[string]int32 // seconds, by namespace and name
	}{
		"a lease of its own": {
			"leaderElection: {resourceName: mine, resourceNamespace: default, leaseDuration: 30s, renewDeadline: 20s}", leader.Settings{},
			map[string]int32{"kube-system/kube-controller-manager": 15, "default/mine": 30},
		},
		"without": {
			"leaderElection: {leaderElect: false}", leader.Settings{}, map[string]int32{"kube-system/kube-controller-manager": 15},
		},
		"the controllers' lease": {
			"leaderElection: {resourceName: kube-controller-manager}", leader.Settings{}, map[string]int32{"kube-system/kube-controller-manager": 15},
		},
		"alone": {
			"leaderElection: {leaseDuration: 20s}", leader.Settings{Off: true}, map[string]int32{"kube-system/kube-scheduler": 20},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				file, err := config.Parse([]byte("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n" + c.file))
				if err != nil {
					t.Fatal(err)
				}
				api := sim.Plane(t, plane.Options{Shared: true, Host: "a", Election: c.flags, Scheduler: file}).Admin()
				pods := client.For(api, core.Pods)
				if _, err := client.For(api, core.Nodes).Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				for _, l := range leases(t, api) {
					key := l.Namespace + "/" + l.Name
					if want := c.leases[key]; *l.Spec.LeaseDurationSeconds != want {
						t.Errorf("lease %s of %d s, want %d", key, *l.Spec.LeaseDurationSeconds, want)
					}
					delete(c.leases, key)
				}
				if len(c.leases) > 0 {
					t.Errorf("no lease %v", c.leases)
				}
				made, err := pods.Create(t.Context(), &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
				})
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if made, err = pods.Get(t.Context(), "default", made.Name); err != nil || core.PodCondition(&made.Status, corev1.PodScheduled) == nil {
					t.Errorf("nobody has scheduled the pod: %v, %v", made, err)
				}
			})
		})
	}
}

func leases(t *testing.T, api client.Transport) (list []*coordinationv1.Lease) {
	t.Helper()
	all, err := client.For(api, coordination.Leases).List(t.Context(), "", metav1.ListOptions{LabelSelector: "!apiserver.kubernetes.io/identity"})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestLeaseOfBothIsElectedInOneWay(t *testing.T) {
	file := config.Default()
	file.LeaderElection.Names, file.LeaderElection.RetryPeriod = []string{"kube-controller-manager"}, time.Second
	_, err := plane.New(plane.Options{Shared: true, Scheduler: file})
	want := "controllers and scheduler go by one lease, kube-system/kube-controller-manager: their leader elections must not differ"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
