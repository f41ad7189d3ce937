package simulate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/simnode"
	"github.com/kemudi/kemudi/internal/task"
)

// Drained is what happens when a node is drained.
type Drained struct {
	Evicted []string `json:"evicted"` // pods that left the node
	Stays   []string `json:"stays"`   // those of DaemonSets, and those that the node made itself
	Blocked []Reason `json:"blocked"` // pods that may not be evicted, for as long as was waited
	Lost    []string `json:"lost"`    // evicted pods that nobody makes again
	Placed  []Place  `json:"placed"`  // pods that were made instead
	Waiting []Reason `json:"waiting"` // those of them that fit nowhere
	Refused []Reason `json:"refused"` // pods that left the node, and why none may be made instead
}

// Reason is why a pod is where it is.
type Reason struct {
	Pod string `json:"pod"`
	Why string `json:"why"`
}

// Place is where a pod has got to.
type Place struct {
	Pod  string `json:"pod"`
	Node string `json:"node"`
}

// workloads are the controllers that make pods and their claims again, and those that say which may go.
var workloads = []string{
	"daemonset-controller", "deployment-controller", "disruption-controller", "job-controller", "replicaset-controller",
	"replicationcontroller-controller", "resourceclaim-controller", "resourcequota-controller", "statefulset-controller",
}

const (
	copyStart  = 10 * time.Millisecond // how long pods take to run in a copy
	evictAgain = 100 * time.Millisecond
)

// Drain says what happens when a node of a cluster of these objects is drained: it is done to a
// copy, in which pods run as soon as they are on a node. A pod that may not be evicted is asked
// about again for as long as wait.
func Drain(ctx context.Context, objects []Object, node string, wait time.Duration) (_ *Drained, err error) {
	d, err := newDuplicate(ctx, objects, workloads)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.end()) }()
	nodes := client.Cached(d.api(), core.Nodes, "")
	if _, ok := nodes.Get("", node); !ok {
		return nil, fmt.Errorf("there is no node %s", node)
	}
	patch := client.Patch{Type: types.MergePatchType, Data: []byte(`{"spec":{"unschedulable":true}}`)}
	if _, err := client.For(d.api(), core.Nodes).Patch(ctx, "", node, "", patch); err != nil {
		return nil, fmt.Errorf("cordon node %s: %w", node, err)
	}
	for i, n := range nodes.List("", nil) {
		o := simnode.Options{Name: n.Name, Labels: n.Labels, Resources: n.Status.Allocatable, StartAfter: copyStart}
		if core.NodeIsReady(n) {
			d.g.Go("node "+n.Name, simnode.New(o, &simnode.Addresses{Node: i % simnode.MaxSmallNodes, Small: true}, d.api(), slog.New(slog.DiscardHandler)).Run)
		}
	}
	x := &draining{d: d, before: map[types.UID]bool{}, owned: map[types.UID][]string{}, out: &Drained{}}
	return x.out, x.run(ctx, node, wait)
}

// draining is one drain.
type draining struct {
	d      *duplicate
	before map[types.UID]bool     // pods that there were
	owned  map[types.UID][]string // by owner, pods that left the node and are to be made again
	out    *Drained
}

func (x *draining) run(ctx context.Context, node string, wait time.Duration) error {
	pods := client.Cached(x.d.api(), core.Pods, "")
	for _, p := range pods.List("", nil) {
		x.before[p.UID] = true
	}
	var leave []*corev1.Pod
	for _, p := range pods.ByIndex("spec.nodeName", node) {
		switch owner := metav1.GetControllerOfNoCopy(p); {
		case core.PodTerminal(p):
		case owner != nil && owner.Kind == "DaemonSet", p.Annotations[corev1.MirrorPodAnnotationKey] != "":
			x.out.Stays = append(x.out.Stays, podKey(p))
		default:
			leave = append(leave, p)
			if owner == nil {
				x.out.Lost = append(x.out.Lost, podKey(p))
			}
		}
	}
	slices.SortFunc(leave, func(a, b *corev1.Pod) int { return strings.Compare(podKey(a), podKey(b)) })
	until := time.Now().Add(wait)
	for len(leave) > 0 {
		var left []*corev1.Pod
		x.out.Blocked = nil
		for _, p := range leave {
			err := x.evict(ctx, p)
			switch {
			case err == nil, apierrors.IsNotFound(err):
				x.out.Evicted = append(x.out.Evicted, podKey(p))
				if owner := metav1.GetControllerOfNoCopy(p); owner != nil {
					x.owned[owner.UID] = append(x.owned[owner.UID], podKey(p))
				}
			case apierrors.IsTooManyRequests(err), apierrors.IsInternalError(err):
				left = append(left, p)
				x.out.Blocked = append(x.out.Blocked, Reason{podKey(p), err.Error()})
			default:
				return fmt.Errorf("evict %s: %w", podKey(p), err)
			}
		}
		if leave = left; time.Until(until) <= 0 || len(leave) > 0 && task.Sleep(ctx, evictAgain) != nil {
			break
		}
	}
	return x.settle(ctx, pods)
}

func (x *draining) evict(ctx context.Context, p *corev1.Pod) error {
	_, err := client.For(x.d.api(), core.Pods).Post(ctx, p.Namespace, p.Name, "eviction", &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
	})
	return err
}

const (
	// quiet is how long nothing must have changed for all to be decided, and longest how long it
	// may take until then.
	quiet   = 2 * time.Second
	longest = 2 * time.Minute
)

// settle waits until nothing happens any more, and says where the new pods are.
func (x *draining) settle(ctx context.Context, pods client.Reader[*corev1.Pod]) error {
	f := pods.Follow(cache.FollowOptions{})
	defer f.Close()
	end := time.NewTimer(longest)
	defer end.Stop()
	for rest := time.NewTimer(quiet); ; {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-f.Ready():
			f.Next()
			rest.Reset(quiet)
			continue
		case <-rest.C:
		case <-end.C:
		}
		break
	}
	for _, p := range pods.List("", nil) {
		if x.before[p.UID] {
			continue
		}
		if owner := metav1.GetControllerOfNoCopy(p); owner != nil && len(x.owned[owner.UID]) > 0 {
			x.owned[owner.UID] = x.owned[owner.UID][1:]
		}
		switch {
		case p.Spec.NodeName != "":
			x.out.Placed = append(x.out.Placed, Place{podKey(p), p.Spec.NodeName})
		default:
			x.out.Waiting = append(x.out.Waiting, Reason{podKey(p), message(p)})
		}
	}
	slices.SortFunc(x.out.Placed, func(a, b Place) int { return strings.Compare(a.Pod, b.Pod) })
	return x.refused(ctx)
}

// refused says why pods were not made again, as their owners' events do.
func (x *draining) refused(ctx context.Context) error {
	events, err := client.For(x.d.api(), core.Events).List(ctx, "", metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("read events: %w", err)
	}
	why := map[types.UID]string{}
	for _, e := range events {
		if e.Reason == "FailedCreate" {
			why[e.InvolvedObject.UID] = e.Message
		}
	}
	for owner, pods := range x.owned {
		for _, pod := range pods {
			if why[owner] != "" {
				x.out.Refused = append(x.out.Refused, Reason{pod, why[owner]})
			}
		}
	}
	slices.SortFunc(x.out.Refused, func(a, b Reason) int { return strings.Compare(a.Pod, b.Pod) })
	return nil
}

func podKey(p *corev1.Pod) string { return cache.Key(p.Namespace, p.Name) }
