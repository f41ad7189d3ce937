package leader_test

import (
	"context"
	"fmt"
	"math/rand/v2"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kemudi/kemudi/internal/api/apps"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/policy"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/resource"
)

// budget is an application whose pods are evicted through all servers: nothing else disrupts
// it, and so it always has as many pods as its budget wants.
type budget struct {
	rng              *rand.Rand
	replicas, wanted int
	complete         bool // it has been
	healthy          map[string]bool
}

func newBudget(rng *rand.Rand) subject {
	b := &budget{rng: rng, replicas: 3 + rng.IntN(6), healthy: map[string]bool{}}
	b.wanted = b.replicas - 1 - rng.IntN(b.replicas-1)
	return b
}

func (b *budget) begin(l *life) {
	labels := &metav1.LabelSelector{MatchLabels: map[string]string{"of": "shop"}}
	t := served(b.rng, "shop")
	t.Annotations["version"] = "last"
	create(l, apps.Deployments, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "shop"}, Spec: appsv1.DeploymentSpec{Replicas: new(int32(b.replicas)), Selector: labels, Template: t},
	})
	wanted := intstr.FromInt32(int32(b.wanted))
	create(l, policy.PodDisruptionBudgets, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "shop"}, Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &wanted, Selector: labels},
	})
}

func (b *budget) act(l *life) {
	pods, err := client.For(l.c.API(), core.Pods).List(l.Context(), "default", metav1.ListOptions{LabelSelector: "of=shop"})
	l.must(nil, err)
	for range 1 + b.rng.IntN(6) {
		if p, ok := among(b.rng, pods); ok {
			l.ask(func(ctx context.Context, t client.Transport) error { return evict(ctx, t, p.Name) })
		}
	}
}

func (b *budget) rest(*life) {}

func (b *budget) see(w *world, was, now resource.Object) {
	pod, e := podChange(was, now, "shop")
	if pod == nil {
		return
	}
	had := b.healthy[pod.Name]
	delete(b.healthy, pod.Name)
	if !e.gone && healthy(pod) {
		b.healthy[pod.Name] = true
	}
	b.complete = b.complete || len(b.healthy) == b.replicas
	if n := len(b.healthy); b.complete && had && !b.healthy[pod.Name] && n < b.wanted {
		w.breaks("pod %s went: shop has %d healthy pods, and its budget wants %d", pod.Name, n, b.wanted)
	}
}

func (b *budget) hold(*world) {}

func (b *budget) end(w *world) {
	settled(w, "shop", b.replicas)
	for _, p := range all(w, func(p *policyv1.PodDisruptionBudget) bool { return p.Name == "shop" }) {
		if s := p.Status; int(s.DisruptionsAllowed) != b.replicas-b.wanted || len(s.DisruptedPods) > 0 {
			w.Errorf("in the end the budget says %+v, want %d of %d", s, b.wanted, b.replicas)
		}
	}
}

// quota is a namespace in which all kinds of things come and go, with a quota that is never
// exceeded, and in the end says what there is.
type quota struct {
	rng   *rand.Rand
	dirty bool
}

func newQuota(rng *rand.Rand) subject { return &quota{rng: rng} }

// tight is the namespace of the quota.
const tight = "tight"

var hard = map[corev1.ResourceName]string{"count/configmaps": "6", "pods": "4", "requests.cpu": "1500m", "count/pods": "6"}

func (q *quota) begin(l *life) {
	l.must(client.For(l.c.API(), core.Namespaces).Create(l.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tight}}))
	limits := corev1.ResourceList{}
	for name, amount := range hard {
		limits[name] = quantity.MustParse(amount)
	}
	l.must(client.For(l.c.API(), core.ResourceQuotas).Create(l.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: tight, Name: "quota"}, Spec: corev1.ResourceQuotaSpec{Hard: limits},
	}))
}

func (q *quota) act(l *life) {
	for range 1 + q.rng.IntN(6) {
		q.one(l)
	}
}

func (q *quota) one(l *life) {
	meta := metav1.ObjectMeta{Namespace: tight, Name: fmt.Sprint("x", q.rng.IntN(8))}
	switch q.rng.IntN(6) {
	case 0, 1:
		pod := &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{
			Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": *quantity.NewMilliQuantity(q.rng.Int64N(900), quantity.DecimalSI)}},
		}}}}
		if q.rng.IntN(2) == 0 {
			pod.Annotations = map[string]string{"sim.kemudi.io/exit-after": "8s"}
		}
		l.ask(func(ctx context.Context, t client.Transport) error {
			_, err := client.For(t, core.Pods).Create(ctx, pod)
			return err
		})
	case 2:
		l.ask(func(ctx context.Context, t client.Transport) error {
			return client.For(t, core.Pods).Delete(ctx, tight, meta.Name, metav1.DeleteOptions{})
		})
	case 3, 4:
		l.ask(func(ctx context.Context, t client.Transport) error {
			_, err := client.For(t, core.ConfigMaps).Create(ctx, &corev1.ConfigMap{ObjectMeta: meta})
			return err
		})
	default:
		l.ask(func(ctx context.Context, t client.Transport) error {
			return client.For(t, core.ConfigMaps).Delete(ctx, tight, meta.Name, metav1.DeleteOptions{})
		})
	}
}

func (q *quota) rest(*life) {}

func (q *quota) see(_ *world, was, now resource.Object) {
	for _, obj := range []resource.Object{was, now} {
		q.dirty = q.dirty || obj != nil && obj.GetNamespace() == tight
	}
}

func (q *quota) hold(w *world) {
	if q.dirty {
		q.dirty = false
		q.balance(w, false)
	}
}

func (q *quota) end(w *world) { q.balance(w, true) }

// balance holds what there is against what the quota says: never more, and in the end just that.
func (q *quota) balance(w *world, end bool) {
	is := map[corev1.ResourceName]*quantity.Quantity{}
	for name := range hard {
		is[name] = &quantity.Quantity{}
	}
	one := *quantity.NewQuantity(1, quantity.DecimalSI)
	var says *corev1.ResourceQuota
	for _, obj := range w.objects {
		switch obj := obj.(type) {
		case *corev1.ConfigMap:
			if obj.Namespace == tight {
				is["count/configmaps"].Add(one)
			}
		case *corev1.ResourceQuota:
			says = obj
		case *corev1.Pod:
			if obj.Namespace != tight {
				continue
			}
			is["count/pods"].Add(one)
			if !core.PodTerminal(obj) {
				is["pods"].Add(one)
				is["requests.cpu"].Add(*obj.Spec.Containers[0].Resources.Requests.Cpu())
			}
		}
	}
	if says == nil {
		return
	}
	for name := range says.Status.Hard {
		used, limit := says.Status.Used[name], says.Spec.Hard[name]
		if is[name].Cmp(used) > 0 || is[name].Cmp(limit) > 0 || end && is[name].Cmp(used) != 0 {
			w.breaks("the end %t: of %s there is %s, the quota says %s, and allows %s", end, name, is[name], &used, &limit)
		}
	}
}
