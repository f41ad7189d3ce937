package statefulset_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/apps"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/sim"
	"github.com/kemudi/kemudi/internal/trace"
)

// hold keeps pods that are deleted until the test lets them go.
const hold = "example.com/hold"

// settled is longer than anything that is under way takes.
const settled = 2 * time.Second

// life is a StatefulSet under a control plane that is killed and started again. The
// test changes the set and is what runs its pods.
type life struct {
	*sim.Life
	seen     map[string]*corev1.Pod // as they were when they were last checked
	doomed   map[types.UID]bool     // pods that the test deleted
	claims   map[string]types.UID   // by name, of numbers that have been wanted ever since
	template int

	rolled, shrunk int // how many pods were seen to go for a rollout, or as too many
}

func (l *life) set() *appsv1.StatefulSet {
	l.Helper()
	set, err := client.For(l.Plane.Admin(), apps.StatefulSets).Get(l.Context(), "default", "web")
	if err != nil {
		l.Fatal(err)
	}
	return set
}

func (l *life) pods() map[string]*corev1.Pod {
	l.Helper()
	byName := map[string]*corev1.Pod{}
	for _, p := range l.Pods() {
		byName[p.Name] = p
	}
	return byName
}

func name(n int) string { return "web-" + strconv.Itoa(n) }

func well(p *corev1.Pod) bool {
	return p != nil && p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodRunning && core.PodReady(p)
}

func revisionOf(p *corev1.Pod) string { return p.Labels[appsv1.StatefulSetRevisionLabel] }

// help brings a pod on: it runs and is ready, or is gone if it ends.
func (l *life) help(p *corev1.Pod) {
	l.Helper()
	pods := client.For(l.Plane.Admin(), core.Pods)
	p = p.DeepCopy()
	switch {
	case p.DeletionTimestamp != nil:
		p.Finalizers = slices.DeleteFunc(p.Finalizers, func(f string) bool { return f == hold })
		_, err := pods.Update(l.Context(), p)
		l.Mind(err)
	case !core.PodTerminal(p) && !well(p):
		p.Status.Phase = corev1.PodRunning
		core.SetPodCondition(&p.Status, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
		_, err := pods.UpdateStatus(l.Context(), p)
		l.Mind(err)
	}
}

// harm lets a pod become unready, fail or be deleted.
func (l *life) harm(p *corev1.Pod) {
	l.Helper()
	pods := client.For(l.Plane.Admin(), core.Pods)
	p = p.DeepCopy()
	switch l.Rng.IntN(4) {
	case 0:
		err := pods.Delete(l.Context(), p.Namespace, p.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.UID}})
		l.Mind(err)
		l.doomed[p.UID] = true
	case 1:
		p.Status.Phase = corev1.PodFailed
		_, err := pods.UpdateStatus(l.Context(), p)
		l.Mind(err)
		l.doomed[p.UID] = true
	default:
		core.SetPodCondition(&p.Status, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse})
		_, err := pods.UpdateStatus(l.Context(), p)
		l.Mind(err)
	}
}

// change changes the set.
func (l *life) change() {
	l.Helper()
	set := l.set().DeepCopy()
	switch l.Rng.IntN(5) {
	case 0, 1:
		set.Spec.Replicas = ptr.To(l.Rng.Int32N(7))
	case 2, 3:
		l.template = l.Rng.IntN(4)
		set.Spec.Template.Spec.Containers[0].Image = "nginx:" + strconv.Itoa(l.template)
	default:
		set.Spec.UpdateStrategy.RollingUpdate.Partition = ptr.To(l.Rng.Int32N(4))
	}
	if _, err := client.For(l.Plane.Admin(), apps.StatefulSets).Update(l.Context(), set); err != nil && !apierrors.IsConflict(err) {
		l.Fatal(err)
	}
}

// check looks at what the controller has done since the last check. Meanwhile the
// test has only helped: what was in the way of a pod is still there, or was not.
func (l *life) check() {
	l.Helper()
	set, now := l.set(), l.pods()
	first, past := 0, int(*set.Spec.Replicas)
	if set.Spec.Ordinals != nil {
		first, past = int(set.Spec.Ordinals.Start), past+int(set.Spec.Ordinals.Start)
	}
	ordered := set.Spec.PodManagementPolicy == appsv1.OrderedReadyPodManagement
	missing, gone := 0, 0 // of those that there should be: not well; well before, and removed
	for n := first; n < past; n++ {
		if !well(now[name(n)]) {
			missing++
		}
	}
	for key, p := range now {
		n, err := strconv.Atoi(p.Labels[appsv1.PodIndexLabel])
		if err != nil || key != name(n) || p.Labels[appsv1.StatefulSetPodNameLabel] != key || p.Spec.Hostname != key {
			l.Fatalf("pod %s has labels %v and is called %s", key, p.Labels, p.Spec.Hostname)
		}
		before := l.seen[key]
		fresh := before == nil || before.UID != p.UID
		if fresh {
			if before != nil && before.DeletionTimestamp == nil && !core.PodTerminal(before) && !l.doomed[before.UID] && well(before) {
				gone++ // it went and came back between two looks
			}
			for below := first; ordered && below < n && below < past; below++ {
				if !well(now[name(below)]) {
					l.Fatalf("pod %s was made while %s was not well", key, name(below))
				}
			}
			continue
		}
		if p.DeletionTimestamp == nil || before.DeletionTimestamp != nil || l.doomed[p.UID] {
			continue
		}
		// The controller has removed it.
		excess := n < first || n >= past
		if excess {
			l.shrunk++
		} else {
			l.rolled++
			if well(before) {
				gone++
			}
		}
		if !excess && n < first+int(*set.Spec.UpdateStrategy.RollingUpdate.Partition) {
			l.Fatalf("pod %s was replaced though it is below the partition", key)
		}
		if !ordered {
			continue
		}
		for other, q := range now {
			m, _ := strconv.Atoi(q.Labels[appsv1.PodIndexLabel])
			switch {
			case excess && m > n:
				l.Fatalf("pod %s was removed while %s was still there", key, other)
			case excess && m >= first && m < past && !well(q):
				l.Fatalf("pod %s was removed while %s was not well", key, other)
			case !excess && (m < first || m >= past):
				l.Fatalf("pod %s was replaced while %s was still to go", key, other)
			}
		}
	}
	limit := set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable.IntValue()
	if gone > 0 && missing > limit {
		l.Fatalf("%d pods are missing, %d of them removed for a rollout, want at most %d", missing, gone, limit)
	}
	l.seen = now
	l.checkClaims(first, past, now)
}

// checkClaims looks for the claim of each pod, which must be the one it has always had.
func (l *life) checkClaims(first, past int, now map[string]*corev1.Pod) {
	l.Helper()
	all, err := client.For(l.Plane.Admin(), core.PersistentVolumeClaims).List(l.Context(), "default", metav1.ListOptions{})
	if err != nil {
		l.Fatal(err)
	}
	have := map[string]types.UID{}
	for _, c := range all {
		have[c.Name] = c.UID
	}
	for key, p := range now {
		if claim := "data-" + key; have[claim] == "" && p.DeletionTimestamp == nil {
			l.Fatalf("pod %s has no claim", key)
		}
	}
	for claim, uid := range l.claims {
		if have[claim] != uid {
			l.Fatalf("claim %s was %q and is %q, but its number was always wanted", claim, uid, have[claim])
		}
	}
	clear(l.claims)
	for n := first; n < past; n++ {
		claim := "data-" + name(n)
		i := slices.IndexFunc(all, func(c *corev1.PersistentVolumeClaim) bool { return c.Name == claim })
		if p := now[name(n)]; p != nil && p.DeletionTimestamp == nil && i >= 0 && all[i].DeletionTimestamp == nil && !goesWithPod(all[i]) {
			l.claims[claim] = have[claim]
		}
	}
}

func goesWithPod(c *corev1.PersistentVolumeClaim) bool {
	return slices.ContainsFunc(c.OwnerReferences, func(ref metav1.OwnerReference) bool { return ref.Kind == "Pod" })
}

// TestNumbersHaveOnePodEachWheneverWeAreKilled runs StatefulSets that are scaled and
// changed at random, with pods that become ready, fail and end at random, under a
// control plane that is killed again and again, between any two writes. KEMUDI_SEED
// plays one seed again.
func TestNumbersHaveOnePodEachWheneverWeAreKilled(t *testing.T) {
	trace.Proves(t, "STS-002", "STS-003", "STS-017", "STS-018")
	var rolled, shrunk atomic.Int64
	sim.Lives(t, 8, func(of *sim.Life) {
		l := play(of)
		rolled.Add(int64(l.rolled))
		shrunk.Add(int64(l.shrunk))
	})
	if !sim.Replays() && (rolled.Load() == 0 || shrunk.Load() == 0) { // one life may be quiet, but not all of them
		t.Errorf("%d pods replaced, %d removed, want some of each", rolled.Load(), shrunk.Load())
	}
}

func newSet(rng *rand.Rand) *appsv1.StatefulSet {
	labels := map[string]string{"app": "web"}
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: ptr.To(1 + rng.Int32N(5)), Selector: &metav1.LabelSelector{MatchLabels: labels}, ServiceName: "web",
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Finalizers: []string{hold}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "nginx", Image: "nginx:0"}}},
			},
			UpdateStrategy: appsv1.StatefulSetUpdateStrategy{
				Type: appsv1.RollingUpdateStatefulSetStrategyType,
				RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{
					Partition: new(int32), MaxUnavailable: ptr.To(intstr.FromInt32(1 + rng.Int32N(3))),
				},
			},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{Name: "data"},
				Spec: corev1.PersistentVolumeClaimSpec{
					AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
				},
			}},
		},
	}
	if rng.IntN(2) == 0 {
		set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
	}
	if rng.IntN(3) == 0 {
		set.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: rng.Int32N(3)}
	}
	if rng.IntN(2) == 0 {
		set.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
			WhenScaled: appsv1.DeletePersistentVolumeClaimRetentionPolicyType,
		}
	}
	return set
}

func play(of *sim.Life) *life {
	l, rng := &life{Life: of, doomed: map[types.UID]bool{}, claims: map[string]types.UID{}}, of.Rng
	if _, err := client.For(l.Plane.Admin(), apps.StatefulSets).Create(l.Context(), newSet(rng)); err != nil {
		l.Fatal(err)
	}
	for range 200 {
		for _, key := range slices.Sorted(maps.Keys(l.pods())) {
			if p := l.pods()[key]; p != nil && rng.IntN(2) == 0 {
				l.help(p)
			}
		}
		l.Sleep(time.Duration(1+rng.IntN(30)) * time.Millisecond) // never none: what was decided on before the help is done by then
		if rng.IntN(8) == 0 {
			l.Plane.Kill()
		}
		l.check()
		if rng.IntN(10) > 0 {
			continue
		}
		l.Sleep(settled) // what is under way was decided on before this
		l.check()
		if all := slices.Sorted(maps.Keys(l.seen)); rng.IntN(2) == 0 && len(all) > 0 {
			if p := l.seen[all[rng.IntN(len(all))]]; p.DeletionTimestamp == nil {
				l.harm(p)
			}
		} else {
			l.change()
		}
		l.seen = l.pods()
		clear(l.claims)
	}
	l.finish()
	return l
}

// finish helps until all is as it should be.
func (l *life) finish() {
	l.Helper()
	why := ""
	for range 500 {
		for _, p := range l.pods() {
			l.help(p)
		}
		l.Sleep(settled)
		l.check()
		if why = l.amiss(); why == "" {
			return
		}
	}
	for key, p := range l.pods() {
		l.Logf("%s: %s, %+v, finalizers %q", key, p.Status.Phase, p.Status.Conditions, p.Finalizers)
	}
	l.Fatalf("not at its end: %s\n%+v", why, l.set().Status)
}

// amiss says what is not as it should be in the end.
func (l *life) amiss() string {
	l.Helper()
	set, pods := l.set(), l.pods()
	first := 0
	if set.Spec.Ordinals != nil {
		first = int(set.Spec.Ordinals.Start)
	}
	replicas, partition := int(*set.Spec.Replicas), int(*set.Spec.UpdateStrategy.RollingUpdate.Partition)
	if len(pods) != replicas {
		return fmt.Sprintf("%d pods, want %d", len(pods), replicas)
	}
	for n := first; n < first+replicas; n++ {
		p := pods[name(n)]
		if !well(p) {
			return name(n) + " is not well"
		}
		if n >= first+partition && revisionOf(p) != set.Status.UpdateRevision {
			return name(n) + " has another revision"
		}
		if n >= first+partition && p.Spec.Containers[0].Image != set.Spec.Template.Spec.Containers[0].Image {
			return name(n) + " has another image"
		}
	}
	s := set.Status
	if int(s.Replicas) != replicas || int(s.ReadyReplicas) != replicas || int(s.AvailableReplicas) != replicas || s.ObservedGeneration != set.Generation {
		return "the status says something else"
	}
	if partition == 0 && (s.CurrentRevision != s.UpdateRevision || int(s.CurrentReplicas) != replicas) {
		return "the rollout is not said to be over"
	}
	all, err := client.For(l.Plane.Admin(), core.PersistentVolumeClaims).List(l.Context(), "default", metav1.ListOptions{})
	if err != nil {
		l.Fatal(err)
	}
	// A claim whose pod was never made, or went by itself, stays in any case.
	for _, c := range all {
		if goesWithPod(c) {
			return "claim " + c.Name + " is still there"
		}
	}
	return ""
}
