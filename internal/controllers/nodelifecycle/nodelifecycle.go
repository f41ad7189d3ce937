package nodelifecycle

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/coordination"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/resource"
)

// Options tune how fast a lost node is noticed. The zero value is upstream's.
type Options struct {
	// GracePeriod is how long a node may be silent (--node-monitor-grace-period).
	GracePeriod time.Duration
	// StartupGracePeriod is the same for a node that never reported
	// (--node-startup-grace-period).
	StartupGracePeriod time.Duration
	// MonitorPeriod is how often nodes that are lost are looked at: whether their pods may be
	// driven away depends on other nodes (--node-monitor-period). That a node is lost is noticed
	// when it is.
	MonitorPeriod time.Duration

	// EvictionRate is how many nodes of a zone may begin to be emptied in a
	// second (--node-eviction-rate; negative: none).
	EvictionRate float64
	// SecondaryEvictionRate is the same for a large zone much of which is lost
	// (--secondary-node-eviction-rate). A small one is left alone then.
	SecondaryEvictionRate float64
	// UnhealthyZoneThreshold is how much of a zone that is, from 0 to 1
	// (--unhealthy-zone-threshold).
	UnhealthyZoneThreshold float64
	// LargeClusterSize is how many nodes a small zone has at the most
	// (--large-cluster-size-threshold).
	LargeClusterSize int
}

// Defaults are the options of a controller that is given none.
func Defaults() Options { return Options{}.withDefaults() }

func (o Options) withDefaults() Options {
	if o.GracePeriod == 0 {
		o.GracePeriod = 50 * time.Second
	}
	if o.StartupGracePeriod == 0 {
		o.StartupGracePeriod = time.Minute
	}
	if o.MonitorPeriod == 0 {
		o.MonitorPeriod = 5 * time.Second
	}
	if o.EvictionRate == 0 {
		o.EvictionRate = 0.1
	}
	if o.SecondaryEvictionRate == 0 {
		o.SecondaryEvictionRate = 0.01
	}
	if o.UnhealthyZoneThreshold == 0 {
		o.UnhealthyZoneThreshold = 0.55
	}
	if o.LargeClusterSize == 0 {
		o.LargeClusterSize = 50
	}
	return o
}

// Check says what is wrong with the options.
func (o Options) Check() error {
	if t := o.UnhealthyZoneThreshold; t < 0 || t > 1 {
		return fmt.Errorf("--unhealthy-zone-threshold %g is not between 0 and 1", t)
	}
	if o.MonitorPeriod < 0 {
		return fmt.Errorf("--node-monitor-period %s must not be negative", o.MonitorPeriod)
	}
	return nil
}

// New returns the node lifecycle controller.
func New(o Options) *controller.Controller {
	o = o.withDefaults()
	return controller.New(controller.Spec[*corev1.Node]{
		Name: "node-controller",
		For:  core.Nodes,
		Watches: []controller.Watch{controller.Mapped(coordination.Leases, func(_ *controller.Kit, l *coordinationv1.Lease) []string {
			if l.Namespace != corev1.NamespaceNodeLease {
				return nil
			}
			return []string{l.Name}
		})},
		Reads: []*resource.Def{core.Pods.Def},
		Writes: []controller.Permission{
			controller.Update(core.Nodes.Def), controller.UpdateStatus(core.Nodes.Def), controller.Patch(core.Pods.Def, "status"),
		},
		// What the managers of clouds that others write do as this account, as in other clusters.
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"delete", "patch"}},
			{APIGroups: []string{""}, Resources: []string{"nodes/status"}, Verbs: []string{"patch"}},
		},
		Setup: func(k *controller.Kit) controller.Reconciler[*corev1.Node] { return newReconciler(k, o) },
	})
}

type reconciler struct {
	o      Options
	k      *controller.Kit
	nodes  controller.Client[*corev1.Node]
	leases controller.Client[*coordinationv1.Lease]
	pods   controller.Client[*corev1.Pod]

	metrics *metrics
	mu      struct {
		sync.Mutex
		seen  map[string]*sign // by node name
		pacer pacer
	}
}

func newReconciler(k *controller.Kit, o Options) *reconciler {
	r := &reconciler{
		o: o, k: k, nodes: controller.For(k, core.Nodes),
		leases: controller.For(k, coordination.Leases), pods: controller.For(k, core.Pods),
		metrics: controller.OwnMetrics(k, newMetrics),
	}
	all := func() []*corev1.Node { return r.nodes.List("", nil) }
	r.metrics.nodes.Store(&all)
	r.mu.seen = map[string]*sign{}
	return r
}

// sign is the last sign of life of a node. When it came counts by our clock: the
// node's may be wrong.
type sign struct {
	at        time.Time
	revision  int64     // of the lease that was seen last
	renewed   time.Time // what that says, by the node's clock
	heartbeat time.Time // of the Ready condition, likewise
	told      bool      // its pods know that it is silent
}

// renew takes in a lease, unless a later one was seen, and says whether it is a sign of life.
func (s *sign) renew(lease *coordinationv1.Lease) bool {
	rev := resource.Revision(lease)
	if rev <= s.revision {
		return false
	}
	s.revision = rev
	if lease.Spec.RenewTime == nil || lease.Spec.RenewTime.Time.Equal(s.renewed) {
		return false
	}
	s.renewed, s.at = lease.Spec.RenewTime.Time, time.Now()
	return true
}

// Reconcile looks whether a node is alive, and puts its conditions, taints and labels right.
func (r *reconciler) Reconcile(ctx context.Context, node *corev1.Node) (controller.Next, error) {
	defer r.metrics.looked(time.Now())
	left := r.left(node)
	if left <= 0 {
		alive, err := r.renewedSince(ctx, node)
		if err != nil {
			return controller.Done, err
		}
		if alive {
			left = r.left(node)
		}
	}
	if left <= 0 {
		lost, err := r.lose(ctx, node)
		if err != nil {
			return controller.Done, err
		}
		node = lost
	}
	node, err := r.mark(ctx, node)
	if err != nil {
		return controller.Done, err
	}
	if err := r.tellPods(ctx, node); err != nil {
		return controller.Done, err
	}
	if c := core.NodeCondition(&node.Status, corev1.NodeReady); left <= 0 || c != nil && c.Status != corev1.ConditionTrue {
		return controller.After(r.o.MonitorPeriod), nil
	}
	return controller.After(left), nil
}

// Gone notes that a node was removed.
func (r *reconciler) Gone(_ context.Context, key string) error {
	r.mu.Lock()
	_, known := r.mu.seen[key]
	delete(r.mu.seen, key)
	r.mu.Unlock()
	if known {
		r.event(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: key}}, "RemovingNode", fmt.Sprintf("Node %s event: Removing Node %s from Controller", key, key))
	}
	return nil
}

// left is how much of its grace period a node has left.
func (r *reconciler) left(node *corev1.Node) time.Duration {
	ready := core.NodeCondition(&node.Status, corev1.NodeReady)
	lease, _ := r.leases.Get(corev1.NamespaceNodeLease, node.Name)
	r.mu.Lock()
	s, known := r.mu.seen[node.Name]
	if !known {
		s = &sign{at: time.Now()}
		if ready == nil {
			s.at = node.CreationTimestamp.Time
		}
		r.mu.seen[node.Name] = s
	}
	if lease != nil {
		s.renew(lease)
	}
	if ready != nil && !ready.LastHeartbeatTime.Time.Equal(s.heartbeat) {
		s.heartbeat, s.at = ready.LastHeartbeatTime.Time, time.Now()
	}
	at := s.at
	r.mu.Unlock()
	if !known {
		r.event(node, "RegisteredNode", fmt.Sprintf("Node %s event: Registered Node %s in Controller", node.Name, node.Name))
	}
	grace := r.o.GracePeriod
	if ready == nil {
		grace = r.o.StartupGracePeriod
	}
	return time.Until(at.Add(grace))
}

// renewedSince looks past the cache for a lease that a node has renewed since, before the node is
// taken for lost: a cache that is behind is no reason to empty nodes.
func (r *reconciler) renewedSince(ctx context.Context, node *corev1.Node) (bool, error) {
	if ready := core.NodeCondition(&node.Status, corev1.NodeReady); ready != nil && ready.Status == corev1.ConditionUnknown {
		return false, nil // it is lost
	}
	lease, err := r.leases.Live(ctx, corev1.NamespaceNodeLease, node.Name)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look for the lease of a node that seems to be lost: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.mu.seen[node.Name]
	return s != nil && s.renew(lease), nil
}

func (r *reconciler) event(node *corev1.Node, reason, message string) {
	r.k.Events.Event(node, corev1.EventTypeNormal, reason, message)
}

// lose sets the conditions that only the node itself can know to Unknown.
func (r *reconciler) lose(ctx context.Context, node *corev1.Node) (*corev1.Node, error) {
	now := metav1.Now().Rfc3339Copy()
	lost := node.DeepCopy()
	for _, kind := range []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		c := core.NodeCondition(&lost.Status, kind)
		if c == nil {
			lost.Status.Conditions = append(lost.Status.Conditions, corev1.NodeCondition{
				Type: kind, Status: corev1.ConditionUnknown, Reason: "NodeStatusNeverUpdated", Message: "Kubelet never posted node status.",
				LastHeartbeatTime: node.CreationTimestamp, LastTransitionTime: now,
			})
		} else if c.Status != corev1.ConditionUnknown {
			c.Status, c.Reason, c.Message, c.LastTransitionTime = corev1.ConditionUnknown, "NodeStatusUnknown", "Kubelet stopped posting node status.", now
		}
	}
	if equality.Semantic.DeepEqual(lost.Status, node.Status) {
		return node, nil
	}
	if core.NodeIsReady(node) {
		r.event(node, "NodeNotReady", fmt.Sprintf("Node %s status is now: NodeNotReady", node.Name))
	}
	lost, err := r.nodes.UpdateStatus(ctx, lost)
	if err != nil {
		return nil, fmt.Errorf("mark node as lost: %w", err)
	}
	return lost, nil
}

// mark puts the node's taints and labels right.
func (r *reconciler) mark(ctx context.Context, node *corev1.Node) (*corev1.Node, error) {
	e := r.eviction(node)
	want, old := wantedTaints(node, e), oldLabels(node)
	if equality.Semantic.DeepEqual(want, node.Spec.Taints) && len(old) == 0 {
		return node, nil
	}
	node = node.DeepCopy()
	node.Spec.Taints = want
	maps.Copy(node.Labels, old)
	node, err := r.nodes.Update(ctx, node)
	if err != nil {
		return nil, fmt.Errorf("update taints and labels: %w", err)
	}
	if e == begin {
		r.metrics.evictions.WithLabelValues(zoneOf(node)).Inc()
	}
	return node, nil
}

// eviction says whether the pods of a node may be driven away.
func (r *reconciler) eviction(node *corev1.Node) eviction {
	ready := core.NodeCondition(&node.Status, corev1.NodeReady)
	if ready == nil || ready.Status == corev1.ConditionTrue {
		return keep
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p, now, zone := &r.mu.pacer, time.Now(), zoneOf(node)
	p.recount(func() []*corev1.Node { return r.nodes.List("", nil) }, now, r.o.GracePeriod)
	switch {
	case p.lost:
		return halt
	case evicting(node):
		return keep
	case p.take(zone, r.o.rate(p.zones[zone]), now):
		return begin
	}
	return keep
}

// tellPods makes the pods of a node that fell silent not ready, once: the node itself
// tells when they are ready again. Those of a node that says of itself that it is not ready
// stay as it says: they may serve all the same.
func (r *reconciler) tellPods(ctx context.Context, node *corev1.Node) error {
	ready := core.NodeCondition(&node.Status, corev1.NodeReady)
	silent := ready != nil && ready.Status == corev1.ConditionUnknown
	r.mu.Lock()
	s := r.mu.seen[node.Name]
	reported := s == nil || s.told == silent
	r.mu.Unlock()
	if reported {
		return nil
	}
	if silent {
		for _, pod := range r.pods.ByIndex("spec.nodeName", node.Name) {
			if err := r.unready(ctx, pod); err != nil {
				return err
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s.told = silent
	return nil
}

func (r *reconciler) unready(ctx context.Context, pod *corev1.Pod) error {
	if !core.PodReady(pod) {
		return nil
	}
	r.k.Events.Event(pod, corev1.EventTypeWarning, "NodeNotReady", "Node is not ready")
	_, err := r.pods.StrategicPatch(ctx, pod, "status", map[string]any{"status": map[string]any{
		"conditions": []any{map[string]any{
			"type": corev1.PodReady, "status": corev1.ConditionFalse, "observedGeneration": pod.Generation, "lastTransitionTime": metav1.Now(),
		}},
	}})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
