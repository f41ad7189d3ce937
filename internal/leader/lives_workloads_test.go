package leader_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/apps"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/resource"
)

// stateful is a StatefulSet: an ordinal has one pod at a time, which ends before the next begins,
// and the same claim for ever.
type stateful struct {
	rng     *rand.Rand
	ordered bool
	stop    time.Duration

	claims  map[string]types.UID
	well    map[string]time.Time // when a pod was well last, by name
	leaving map[types.UID]time.Time
}

const maxOrdinals = 5

func newStateful(rng *rand.Rand) subject {
	return &stateful{
		rng: rng, ordered: rng.IntN(2) == 0, stop: time.Duration(rng.IntN(4)) * time.Second,
		claims: map[string]types.UID{}, well: map[string]time.Time{}, leaving: map[types.UID]time.Time{},
	}
}

func (s *stateful) begin(l *life) {
	room := corev1.ResourceList{corev1.ResourceStorage: quantity.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	for i := range maxOrdinals {
		_, err := client.For(l.c.API(), core.PersistentVolumes).Create(l.Context(), &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("v", i)},
			Spec: corev1.PersistentVolumeSpec{
				Capacity: room, AccessModes: modes, PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/v"}},
			},
		})
		l.must(nil, err)
	}
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: ptr.To[int32](3), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"of": "db"}}, ServiceName: "db",
			Template: served(s.rng, "db"), PodManagementPolicy: appsv1.ParallelPodManagement,
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{Name: "data"},
				Spec:       corev1.PersistentVolumeClaimSpec{AccessModes: modes, Resources: corev1.VolumeResourceRequirements{Requests: room}, StorageClassName: ptr.To("")},
			}},
		},
	}
	set.Spec.Template.Annotations["sim.kemudi.io/stop-after"] = s.stop.String()
	if s.ordered {
		set.Spec.PodManagementPolicy = appsv1.OrderedReadyPodManagement
	}
	create(l, apps.StatefulSets, set)
}

func (s *stateful) act(l *life) {
	name := fmt.Sprint("db-", s.rng.IntN(maxOrdinals))
	switch s.rng.IntN(4) {
	case 0:
		patch := fmt.Sprintf(`{"spec":{"replicas":%d}}`, s.rng.IntN(maxOrdinals+1))
		l.ask(func(ctx context.Context, t client.Transport) error {
			return merge(ctx, t, apps.StatefulSets, "db", patch)
		})
	case 1:
		patch := version(s.rng)
		l.ask(func(ctx context.Context, t client.Transport) error {
			return merge(ctx, t, apps.StatefulSets, "db", patch)
		})
	case 2:
		l.ask(func(ctx context.Context, t client.Transport) error {
			return client.For(t, core.Pods).Delete(ctx, "default", name, metav1.DeleteOptions{})
		})
	default:
		l.ask(func(ctx context.Context, t client.Transport) error { return evict(ctx, t, name) })
	}
}

func evict(ctx context.Context, t client.Transport, pod string) error {
	_, err := client.For(t, core.Pods).Post(ctx, "default", pod, "eviction", &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod}})
	return err
}

func (s *stateful) rest(l *life) {
	l.must(nil, merge(l.Context(), l.c.API(), apps.StatefulSets, "db", `{"spec":{"replicas":4,"template":{"metadata":{"annotations":{"version":"last"}}}}}`))
}

func (s *stateful) see(w *world, was, now resource.Object) {
	s.seeClaim(w, was, now)
	pod, e := podChange(was, now, "db")
	if pod == nil {
		return
	}
	n, err := strconv.Atoi(pod.Labels[appsv1.PodIndexLabel])
	if err != nil || pod.Name != fmt.Sprint("db-", n) || pod.Labels[appsv1.StatefulSetPodNameLabel] != pod.Name {
		w.breaks("pod %s has the labels %v", pod.Name, pod.Labels)
	}
	if before, ok := was.(*corev1.Pod); ok && healthy(before) {
		s.well[pod.Name] = time.Now() // until now
	}
	switch {
	case e.made:
		s.made(w, pod, n)
	case e.marked:
		s.leaving[pod.UID] = time.Now()
	case e.gone && pod.Status.Phase == corev1.PodRunning:
		since, ok := s.leaving[pod.UID]
		if !ok || time.Since(since) < s.stop {
			w.breaks("pod %s was taken for gone %s after it was told to end, and takes %s to end", pod.Name, time.Since(since), s.stop)
		}
	}
}

func (s *stateful) made(w *world, pod *corev1.Pod, n int) {
	if w.objects[core.PersistentVolumeClaims.Key("default", "data-"+pod.Name)] == nil {
		w.breaks("pod %s has no claim", pod.Name)
	}
	for below := range n {
		name := fmt.Sprint("db-", below)
		now, _ := w.objects[core.Pods.Key("default", name)].(*corev1.Pod)
		if s.ordered && (now == nil || !healthy(now)) && time.Since(s.well[name]) > late {
			w.breaks("pod %s was made, and %s was well last at %s", pod.Name, name, s.well[name].Format(time.TimeOnly))
		}
	}
}

// seeClaim holds that a claim is kept, whatever becomes of its pod.
func (s *stateful) seeClaim(w *world, was, now resource.Object) {
	if c, ok := now.(*corev1.PersistentVolumeClaim); ok {
		if had := s.claims[c.Name]; had != "" && had != c.UID {
			w.breaks("claim %s was made anew", c.Name)
		}
		s.claims[c.Name] = c.UID
	} else if c, ok := was.(*corev1.PersistentVolumeClaim); ok {
		w.breaks("claim %s has gone", c.Name)
	}
}

func (s *stateful) hold(*world) {}

func (s *stateful) end(w *world) { settled(w, "db", 4) }

// settled holds that an application has so many pods, all well, of the last template.
func settled(w *world, app string, replicas int) {
	w.Helper()
	pods := podsOf(w, app)
	if len(pods) != replicas {
		w.Errorf("%s has %d pods in the end, want %d", app, len(pods), replicas)
	}
	for _, p := range pods {
		if !healthy(p) || versionOf(p) != "last" {
			w.Errorf("in the end pod %s of version %q is %s: %v", p.Name, versionOf(p), p.Status.Phase, p.Status.Conditions)
		}
	}
}

// rollout is a Deployment whose template and size change: there are never more pods than the surge
// allows, and none is taken that is needed.
type rollout struct {
	rng         *rand.Rand
	rolling     *appsv1.RollingUpdateDeployment
	upper, want window
}

func newRollout(rng *rand.Rand) subject {
	amounts := []intstr.IntOrString{intstr.FromInt32(0), intstr.FromInt32(1), intstr.FromInt32(2), intstr.FromString("25%"), intstr.FromString("60%")}
	surge, unavailable := amounts[rng.IntN(len(amounts))], amounts[1+rng.IntN(len(amounts)-1)]
	return &rollout{rng: rng, rolling: &appsv1.RollingUpdateDeployment{MaxSurge: &surge, MaxUnavailable: &unavailable}}
}

func (r *rollout) begin(l *life) {
	create(l, apps.Deployments, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](5), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"of": "web"}}, Template: served(r.rng, "web"),
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: r.rolling},
		},
	})
}

func (r *rollout) act(l *life) {
	patch := version(r.rng)
	if r.rng.IntN(4) == 0 {
		patch = fmt.Sprintf(`{"spec":{"replicas":%d}}`, r.rng.IntN(9))
	}
	l.ask(func(ctx context.Context, t client.Transport) error {
		return merge(ctx, t, apps.Deployments, "web", patch)
	})
}

func (r *rollout) rest(l *life) {
	l.must(nil, merge(l.Context(), l.c.API(), apps.Deployments, "web", `{"spec":{"replicas":6,"template":{"metadata":{"annotations":{"version":"last"}}}}}`))
}

func (r *rollout) see(w *world, was, now resource.Object) {
	if d, ok := now.(*appsv1.Deployment); ok && d.Name == "web" {
		before, changed := was.(*appsv1.Deployment)
		if changed && before.Generation == d.Generation {
			return
		}
		replicas := int(*d.Spec.Replicas)
		surge, _ := intstr.GetScaledValueFromIntOrPercent(r.rolling.MaxSurge, replicas, true)
		unavailable, _ := intstr.GetScaledValueFromIntOrPercent(r.rolling.MaxUnavailable, replicas, false)
		if surge == 0 && unavailable == 0 {
			unavailable = 1
		}
		if changed && replicas < int(*before.Spec.Replicas) && rolls(w) {
			r.want.set(0) // each set loses its share, whose pods are well or not (DEP-066)
		}
		r.upper.set(replicas + surge)
		r.want.set(replicas - unavailable)
		return
	}
	pod, e := podChange(was, now, "web")
	switch {
	case pod == nil:
	case e.made:
		_, most := r.upper.span()
		if n := count(podsOf(w, "web"), active); n > most {
			w.breaks("web has %d pods, and may have %d: %s", n, most, r.sets(w))
		}
	case e.marked && healthy(was.(*corev1.Pod)):
		least, _ := r.want.span()
		if n := count(podsOf(w, "web"), healthy); n < least {
			w.breaks("a pod was taken that web needs: it has %d, and wants %d", n, least)
		}
	}
}

// setsOf are the sets of the Deployment.
func setsOf(w *world) []*appsv1.ReplicaSet {
	return all(w, func(s *appsv1.ReplicaSet) bool { return s.Labels["of"] == "web" })
}

// rolls says that more than one of the sets has pods.
func rolls(w *world) bool {
	n := 0
	for _, set := range setsOf(w) {
		if *set.Spec.Replicas > 0 {
			n++
		}
	}
	return n > 1
}

// sets tells of the sets of the Deployment.
func (r *rollout) sets(w *world) (text string) {
	for _, set := range setsOf(w) {
		pods := count(podsOf(w, "web"), func(p *corev1.Pod) bool { return metav1.IsControlledBy(p, set) && active(p) })
		text += fmt.Sprintf(" %s (version %s) wants %d, says %d, has %d;", set.Name, set.Spec.Template.Annotations["version"], *set.Spec.Replicas, set.Status.Replicas, pods)
	}
	return text
}

func (r *rollout) hold(*world) {}

func (r *rollout) end(w *world) { settled(w, "web", 6) }

// daemons are a DaemonSet whose template changes.
type daemons struct {
	rng                *rand.Rand
	surge, unavailable int
}

const nodes = 4

func newDaemons(rng *rand.Rand) subject {
	d := &daemons{rng: rng}
	if rng.IntN(2) == 0 {
		d.surge = 1 + rng.IntN(2)
	} else {
		d.unavailable = 1 + rng.IntN(2)
	}
	return d
}

func (d *daemons) begin(l *life) {
	create(l, apps.DaemonSets, &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "agent"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"of": "agent"}}, Template: served(d.rng, "agent"),
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType, RollingUpdate: &appsv1.RollingUpdateDaemonSet{
				MaxSurge: ptr.To(intstr.FromInt32(int32(d.surge))), MaxUnavailable: ptr.To(intstr.FromInt32(int32(d.unavailable))),
			}},
		},
	})
}

func (d *daemons) act(l *life) {
	patch := version(d.rng)
	l.ask(func(ctx context.Context, t client.Transport) error {
		return merge(ctx, t, apps.DaemonSets, "agent", patch)
	})
}

func (d *daemons) rest(l *life) {
	l.must(nil, merge(l.Context(), l.c.API(), apps.DaemonSets, "agent", `{"spec":{"template":{"metadata":{"annotations":{"version":"last"}}}}}`))
}

func (d *daemons) see(w *world, was, now resource.Object) {
	pod, e := podChange(was, now, "agent")
	if pod == nil || !e.made && !e.marked {
		return
	}
	active, serving := map[string]int{}, map[string]bool{}
	for _, p := range podsOf(w, "agent") {
		node := placeOf(p)
		if p.DeletionTimestamp == nil {
			active[node]++
		}
		if healthy(p) {
			serving[node] = true
		}
	}
	node := placeOf(pod)
	switch {
	case e.made && active[node] > 1+min(d.surge, 1):
		w.breaks("node %s has %d pods of agent", node, active[node])
	case !e.marked || !healthy(was.(*corev1.Pod)):
	case d.surge > 0 && !serving[node]:
		w.breaks("node %s lost its pod of agent before it had another", node)
	case d.surge == 0 && nodes-len(serving) > d.unavailable:
		w.breaks("%d nodes are without agent, and %d may be", nodes-len(serving), d.unavailable)
	}
}

// placeOf is the node that a daemon's pod is made for.
func placeOf(p *corev1.Pod) string {
	return p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Values[0]
}

func (d *daemons) hold(*world) {}

func (d *daemons) end(w *world) { settled(w, "agent", nodes) }
