package daemonset_test

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kemudi/kemudi/internal/api/apps"
	"github.com/kemudi/kemudi/internal/api/coordination"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/sim"
)

// life is a DaemonSet under a control plane that is killed and started again. The test
// has nodes come and go, and is what runs the pods.
type life struct {
	*sim.Life
	surge int
	image int
}

// TestNodesHaveOnePodEachWheneverWeAreKilled runs DaemonSets whose template changes, on nodes that come
// and go, with pods that become ready, fail and end at random, under a control plane
// that is killed between any two writes: no node ever has more pods that are to run than one,
// and the surge, and in the end each has one of the last template. KEMUDI_SEED plays one seed again.
func TestNodesHaveOnePodEachWheneverWeAreKilled(t *testing.T) {
	sim.Lives(t, 4, func(of *sim.Life) {
		l := &life{Life: of, surge: of.Rng.IntN(2)}
		l.play()
	})
}

func (l *life) play() {
	labels := map[string]string{"app": "agent"}
	rolling := &appsv1.RollingUpdateDaemonSet{MaxUnavailable: new(intstr.FromInt32(1 + l.Rng.Int32N(2))), MaxSurge: new(intstr.FromInt32(0))}
	if l.surge > 0 {
		rolling.MaxUnavailable, rolling.MaxSurge = rolling.MaxSurge, rolling.MaxUnavailable
	}
	_, err := client.For(l.Plane.Admin(), apps.DaemonSets).Create(l.Context(), &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "agent"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i:0"}}},
			},
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType, RollingUpdate: rolling},
		},
	})
	if err != nil {
		l.Fatal(err)
	}
	for range 25 {
		switch l.Rng.IntN(4) {
		case 0:
			l.node(fmt.Sprint("n", l.Rng.IntN(4)))
		case 1:
			l.change()
		}
		for range l.Rng.IntN(2) {
			l.Sleep(time.Duration(l.Rng.IntN(15)) * time.Millisecond)
			l.Plane.Kill()
		}
		l.Sleep(time.Duration(l.Rng.IntN(3000)) * time.Millisecond)
		l.beat()
		l.check()
		l.tend(l.Rng.IntN(4) == 0)
	}
	for range 60 { // it comes to rest, with failed pods made anew after a while
		l.Sleep(20 * time.Second)
		l.beat()
		l.check()
		l.tend(false)
	}
	l.end()
}

// beat has all nodes show that they are alive: where one is not, daemon pods wait.
func (l *life) beat() {
	nodes, err := client.For(l.Plane.Admin(), core.Nodes).List(l.Context(), "", metav1.ListOptions{})
	if err != nil {
		l.Fatal(err)
	}
	leases := client.For(l.Plane.Admin(), coordination.Leases)
	for _, n := range nodes {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: n.Name}}
		if now, err := leases.Get(l.Context(), lease.Namespace, lease.Name); err == nil {
			lease = now.DeepCopy()
		}
		lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: &n.Name, LeaseDurationSeconds: new(int32(40)), RenewTime: new(metav1.NowMicro())}
		if lease.UID == "" {
			_, err = leases.Create(l.Context(), lease)
		} else {
			_, err = leases.Update(l.Context(), lease)
		}
		l.Mind(err)
	}
}

// node has a node come, or go.
func (l *life) node(name string) {
	nodes := client.For(l.Plane.Admin(), core.Nodes)
	if _, err := nodes.Get(l.Context(), "", name); err == nil {
		l.Mind(nodes.Delete(l.Context(), "", name, metav1.DeleteOptions{}))
		return
	}
	room := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("4Gi"), corev1.ResourcePods: resource.MustParse("10")}
	n, err := nodes.Create(l.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	for err == nil {
		n = n.DeepCopy()
		n.Status.Capacity, n.Status.Allocatable = room, room
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		if _, err = nodes.UpdateStatus(l.Context(), n); !apierrors.IsConflict(err) {
			break
		}
		n, err = nodes.Get(l.Context(), "", name) // a taint was put on it meanwhile
	}
	if err != nil {
		l.Fatal(err)
	}
}

func (l *life) change() {
	sets := client.For(l.Plane.Admin(), apps.DaemonSets)
	ds, err := sets.Get(l.Context(), "default", "agent")
	if err != nil {
		l.Fatal(err)
	}
	ds = ds.DeepCopy()
	l.image = l.Rng.IntN(4)
	ds.Spec.Template.Spec.Containers[0].Image = fmt.Sprint("i:", l.image)
	if _, err := sets.Update(l.Context(), ds); err != nil {
		l.image = -1 // whichever it is
		l.Mind(err)
	}
}

// tend has pods run, and those end that are to; or else harms some.
func (l *life) tend(harm bool) {
	pods := client.For(l.Plane.Admin(), core.Pods)
	for _, p := range l.Pods() {
		p = p.DeepCopy()
		var err error
		switch {
		case p.DeletionTimestamp != nil:
			err = pods.Delete(l.Context(), "default", p.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64), Preconditions: &metav1.Preconditions{UID: &p.UID}})
		case core.PodTerminal(p) || p.Spec.NodeName == "":
		case harm && l.Rng.IntN(2) == 0:
			p.Status.Phase = corev1.PodFailed
			_, err = pods.UpdateStatus(l.Context(), p)
		case harm:
			err = pods.Delete(l.Context(), "default", p.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.UID}})
		default:
			p.Status.Phase = corev1.PodRunning
			core.SetPodCondition(&p.Status, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
			_, err = pods.UpdateStatus(l.Context(), p)
		}
		l.Mind(err)
	}
}

// place is the node that a pod is made for.
func place(p *corev1.Pod) string {
	return p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Values[0]
}

func (l *life) check() {
	l.Helper()
	active := map[string]int{}
	for _, p := range l.Pods() {
		if p.DeletionTimestamp == nil && !core.PodTerminal(p) {
			active[place(p)]++
		}
	}
	for node, n := range active {
		if n > 1+l.surge {
			l.Fatalf("node %s has %d pods that are to run, want %d at the most", node, n, 1+l.surge)
		}
	}
}

func (l *life) end() {
	nodes, err := client.For(l.Plane.Admin(), core.Nodes).List(l.Context(), "", metav1.ListOptions{})
	if err != nil {
		l.Fatal(err)
	}
	has := map[string]string{}
	for _, p := range l.Pods() {
		if p.DeletionTimestamp != nil || !core.PodReady(p) {
			l.Errorf("pod %s on %s is %s in the end: %v", p.Name, place(p), p.Status.Phase, p.Status.Conditions)
		}
		has[place(p)] += p.Spec.Containers[0].Image
	}
	for _, n := range nodes {
		if got := has[n.Name]; got != fmt.Sprint("i:", l.image) && (l.image >= 0 || got == "") {
			l.Errorf("node %s has %q, want one pod of i:%d", n.Name, got, l.image)
		}
	}
	if len(has) != len(nodes) {
		l.Errorf("got pods for %v, want one for each of %d nodes", has, len(nodes))
	}
}
