package simulate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/dra"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/nodepool"
)

// Fitting is how many more of a pod fit into a cluster.
type Fitting struct {
	Pods  int            `json:"pods"`           // how many
	Nodes map[string]int `json:"nodes"`          // where, by node
	Next  string         `json:"next,omitempty"` // what stops the next one; empty: nothing, but no more were asked for
}

// fitLabel is on the pods that Fit makes.
const fitLabel = "sim.kemudi.io/fit"

// batch is how many pods are tried at a time.
const batch = 500

// claimsOnly is the controller that makes the claims of pods: no other changes what is tried.
var claimsOnly = []string{"resourceclaim-controller"}

// Fit says how many more of a pod fit into a cluster of these objects, at most so many: it has the
// scheduler find out in a copy. Pods that are there stay where they are.
func Fit(ctx context.Context, objects []Object, pod *corev1.Pod, most int) (_ *Fitting, err error) {
	pod = like(pod)
	if err := claimsOf(pod, objects); err != nil {
		return nil, err
	}
	d, err := newDuplicate(ctx, objects, claimsOnly)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.end()) }()
	spaces := client.Cached(d.api(), core.Namespaces, "")
	if _, ok := spaces.Get("", pod.Namespace); !ok {
		space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: pod.Namespace}}
		if _, err := client.For(d.api(), core.Namespaces).Create(ctx, space); err != nil {
			return nil, fmt.Errorf("make namespace %s: %w", pod.Namespace, err)
		}
	}
	f := client.Cached(d.api(), core.Pods, "").Follow(cache.FollowOptions{Namespace: pod.Namespace})
	defer f.Close()
	fit := &Fitting{Nodes: map[string]int{}}
	pods := client.For(d.api(), core.Pods)
	for made := 0; made < most && fit.Next == ""; {
		n := min(batch, most-made)
		for range n {
			made++
			p := pod.DeepCopy()
			p.Name = fmt.Sprintf("%s-%d", pod.Name, made)
			if _, err := pods.Create(ctx, p); err != nil {
				return nil, fmt.Errorf("try the pod: %w", err)
			}
		}
		if err := fit.decided(ctx, f, n); err != nil {
			return nil, err
		}
	}
	return fit, nil
}

// claimsOf says which of the things that a pod's claims are, or are made of, the cluster lacks: the
// scheduler would wait for it.
func claimsOf(pod *corev1.Pod, objects []Object) error {
	for _, c := range pod.Spec.ResourceClaims {
		def, name := dra.ResourceClaims.Def, ptr.Deref(c.ResourceClaimName, "")
		if c.ResourceClaimTemplateName != nil {
			def, name = dra.ResourceClaimTemplates.Def, *c.ResourceClaimTemplateName
		}
		if !slices.ContainsFunc(objects, func(o Object) bool {
			return o.Def == def && o.Object.GetNamespace() == pod.Namespace && o.Object.GetName() == name
		}) {
			return fmt.Errorf("claim %s of the pod: the cluster has no %s %q in namespace %s", c.Name, def.Kind, name, pod.Namespace)
		}
	}
	return nil
}

// like is a pod of the same form that has not been anywhere yet. Its priority is left out: pods
// that are there are not to give way.
func like(pod *corev1.Pod) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: "fit", Labels: map[string]string{fitLabel: "true"}}, Spec: *pod.Spec.DeepCopy()}
	for k, v := range pod.Labels {
		p.Labels[k] = v
	}
	if p.Namespace == "" {
		p.Namespace = metav1.NamespaceDefault
	}
	p.Spec.NodeName, p.Spec.PriorityClassName, p.Spec.Priority, p.Spec.PreemptionPolicy = "", "", nil, nil
	p.Spec.SchedulerName = ""
	return p
}

// decided waits until the scheduler has decided about n more pods, and counts them.
func (fit *Fitting) decided(ctx context.Context, f *cache.Follower, n int) error {
	seen := map[string]bool{}
	for len(seen) < n {
		select {
		case <-f.Ready():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		for _, d := range f.Next() {
			if d.Now == nil {
				continue
			}
			pod := d.Now.Object.(*corev1.Pod)
			was := d.Prev != nil && d.Prev.Object.(*corev1.Pod).Spec.NodeName != ""
			switch key := d.Now.Key; {
			case pod.Labels[fitLabel] == "" || was || seen[key]:
			case pod.Spec.NodeName != "":
				seen[key] = true
				fit.Pods++
				fit.Nodes[pod.Spec.NodeName]++
			case nodepool.Unschedulable(pod):
				seen[key] = true
				fit.Next = message(pod)
			}
		}
	}
	return nil
}

// message is what the scheduler says of a pod that fits nowhere.
func message(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled {
			return c.Message
		}
	}
	return ""
}
