package simnode

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/nodedeclaredfeatures/features/restartallcontainers"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/coordination"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/dra"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
)

// How often a node shows that it is alive, as a real one.
const (
	leaseEvery  = 10 * time.Second
	statusEvery = 5 * time.Minute
)

// Version is what a simulated node tells to be the version of its agent. No other node has it.
const Version = "sim"

// Options describe a simulated node. Zero values are those of a machine
// with 4 CPUs, 16 GiB and a disk of 100 GiB.
type Options struct {
	Name    string
	Labels  map[string]string
	Taints  []corev1.Taint
	CPU     string
	Memory  string
	MaxPods int
	Devices map[string]string // extended resources, by name
	Drivers []Driver          // whose devices claims are given
	// Resources are what the node has in place of all that; nil: that.
	Resources corev1.ResourceList
	// StartAfter is how long a pod takes to run that does not say it. Default 1s.
	StartAfter time.Duration
	// Failing is the share of pods that fail, from 0 to 1: they end with code 1, or, where they
	// would be started again, never become ready.
	Failing float64
}

// Node pretends to run the pods that are bound to it. Annotations of a pod say
// how it behaves:
//
//	sim.kemudi.io/start-after   how long until it runs (default 1s)
//	sim.kemudi.io/ready-after   how long after that it is ready (default at once; "never")
//	sim.kemudi.io/exit-after    how long after its start it ends (default never)
//	sim.kemudi.io/exit-code     with which code (default 0)
//	sim.kemudi.io/stop-after    how long it takes to end when it is deleted (default at once)
//	sim.kemudi.io/cpu           how much of a processor it uses while it runs (default nothing)
//	sim.kemudi.io/memory        how much memory (default nothing)
type Node struct {
	o      Options
	nodes  client.Client[*corev1.Node]
	leases client.Client[*coordinationv1.Lease]
	slices client.Client[*resourcev1.ResourceSlice]
	pods   client.Client[*corev1.Pod]
	seen   client.Reader[*corev1.Pod]
	log    *slog.Logger
	ips    *Addresses
	skew   atomic.Int64 // by how much its clock is ahead of the cluster's; nanoseconds

	plans map[string]*plan // by pod key
	lease *coordinationv1.Lease
}

// plan is what is to happen to a pod next, and when.
type plan struct {
	pod    *corev1.Pod
	stages []stage
}

type stage struct {
	at time.Time
	do func(ctx context.Context, pod *corev1.Pod) error
}

// New returns a node that does not run yet. Its pods have addresses of ips, which are
// its own and outlive it if it is made anew.
func New(o Options, ips *Addresses, t client.Transport, log *slog.Logger) *Node {
	if o.CPU == "" {
		o.CPU = "4"
	}
	if o.Memory == "" {
		o.Memory = "16Gi"
	}
	if o.MaxPods == 0 {
		o.MaxPods = 110
	}
	if o.StartAfter == 0 {
		o.StartAfter = time.Second
	}
	return &Node{
		o: o, ips: ips, nodes: client.For(t, core.Nodes), leases: client.For(t, coordination.Leases),
		slices: client.For(t, dra.ResourceSlices), pods: client.For(t, core.Pods),
		seen: client.Cached(t, core.Pods, "spec.nodeName="+o.Name), log: log.With("node", o.Name), plans: map[string]*plan{},
	}
}

// Again is the node as it is on another control plane.
func (n *Node) Again(t client.Transport, log *slog.Logger) *Node { return New(n.o, n.ips, t, log) }

// StepClock sets the node's clock ahead by d, or back if d is negative.
func (n *Node) StepClock(d time.Duration) { n.skew.Add(int64(d)) }

// Run is the node's one goroutine: it heartbeats, and moves its pods on when
// their time comes or they change.
func (n *Node) Run(ctx context.Context) error {
	if err := n.register(ctx); err != nil {
		return fmt.Errorf("register node %s: %w", n.o.Name, err)
	}
	select {
	case <-n.seen.Synced():
	case <-ctx.Done():
		return nil
	}
	f := n.seen.Follow(cache.FollowOptions{Index: "spec.nodeName", Value: n.o.Name})
	defer f.Close()
	// Nodes do not beat in step.
	beat := time.NewTimer(time.Duration(rand.Int64N(int64(leaseEvery))))
	defer beat.Stop()
	status := time.NewTimer(statusEvery/2 + time.Duration(rand.Int64N(int64(statusEvery/2))))
	defer status.Stop()
	work := time.NewTimer(0)
	defer work.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-beat.C:
			beat.Reset(leaseEvery)
			n.report(n.beat(ctx))
		case <-status.C:
			status.Reset(statusEvery)
			n.report(n.setReady(ctx))
		case <-f.Ready():
			for _, d := range f.Next() {
				n.take(d)
			}
		case <-work.C:
		}
		work.Reset(n.work(ctx))
	}
}

func (n *Node) report(err error) {
	if err != nil {
		n.log.Warn("simulated node", "err", err)
	}
}

func (n *Node) register(ctx context.Context) error {
	labels := map[string]string{
		corev1.LabelHostname: n.o.Name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
		"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "amd64",
	}
	for k, v := range n.o.Labels {
		labels[k] = v
	}
	node, err := n.nodes.Create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.o.Name, Labels: labels},
		Spec:       corev1.NodeSpec{Taints: n.o.Taints},
	})
	if apierrors.IsAlreadyExists(err) {
		node, err = n.nodes.Get(ctx, "", n.o.Name)
	}
	if err != nil {
		return err
	}
	if err := n.publish(ctx, node); err != nil {
		return err
	}
	if err := n.setReady(ctx); err != nil {
		return err
	}
	return n.beat(ctx)
}

func (n *Node) setReady(ctx context.Context) error {
	node, err := n.nodes.Get(ctx, "", n.o.Name)
	if err != nil {
		return err
	}
	node = node.DeepCopy()
	resources := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(n.o.CPU), corev1.ResourceMemory: resource.MustParse(n.o.Memory),
		corev1.ResourcePods: *resource.NewQuantity(int64(n.o.MaxPods), resource.DecimalSI), corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"),
	}
	if n.o.Resources != nil {
		resources = n.o.Resources
	}
	for name, amount := range n.o.Devices {
		resources[corev1.ResourceName(name)] = resource.MustParse(amount)
	}
	node.Status.Capacity, node.Status.Allocatable = resources, resources
	// Pods that ask for it come here, too.
	node.Status.DeclaredFeatures = []string{restartallcontainers.RestartAllContainersOnContainerExits}
	if len(node.Status.Addresses) == 0 { // else a cloud has said more
		node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: n.o.Name}}
	}
	node.Status.NodeInfo.KubeletVersion, node.Status.NodeInfo.OperatingSystem, node.Status.NodeInfo.Architecture = Version, "linux", "amd64"
	now := metav1.NewTime(n.clock()).Rfc3339Copy()
	set := func(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason, message string) {
		for i := range node.Status.Conditions {
			c := &node.Status.Conditions[i]
			if c.Type == kind {
				if c.Status != status {
					c.LastTransitionTime = now
				}
				c.Status, c.Reason, c.Message, c.LastHeartbeatTime = status, reason, message, now
				return
			}
		}
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{
			Type: kind, Status: status, Reason: reason, Message: message, LastHeartbeatTime: now, LastTransitionTime: now,
		})
	}
	set(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory", "kubelet has sufficient memory available")
	set(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure", "kubelet has no disk pressure")
	set(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID", "kubelet has sufficient PID available")
	set(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady", "kubelet is posting ready status")
	_, err = n.nodes.UpdateStatus(ctx, node)
	if apierrors.IsConflict(err) {
		return n.setReady(ctx) // somebody else wrote it meanwhile
	}
	return err
}

// clock is what the node takes the time to be in what it tells of itself.
func (n *Node) clock() time.Time { return time.Now().Add(time.Duration(n.skew.Load())) }

// beat renews the node's lease.
func (n *Node) beat(ctx context.Context) error {
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: n.o.Name}}
	if n.lease != nil {
		l = n.lease.DeepCopy()
	}
	l.Spec = coordinationv1.LeaseSpec{HolderIdentity: &n.o.Name, LeaseDurationSeconds: ptr.To[int32](40), RenewTime: ptr.To(metav1.NewMicroTime(n.clock()))}
	var err error
	if n.lease == nil {
		n.lease, err = n.leases.Create(ctx, l)
		if apierrors.IsAlreadyExists(err) {
			n.lease, err = n.leases.Get(ctx, corev1.NamespaceNodeLease, n.o.Name)
		}
		return err
	}
	renewed, err := n.leases.Update(ctx, l)
	if err != nil {
		n.lease = nil
		return err
	}
	n.lease = renewed
	return nil
}

// take notes a change of a pod.
func (n *Node) take(d cache.Delta) {
	key, pod := d.Last().Key, d.Last().Object.(*corev1.Pod)
	if d.Now == nil {
		delete(n.plans, key)
		return
	}
	p := n.plans[key]
	if p == nil || p.pod.UID != pod.UID {
		p = &plan{pod: pod}
		n.plans[key] = p
		// One that runs and is not ready began to live before this node was started again.
		starts := pod.Status.Phase == corev1.PodPending || pod.Status.Phase == corev1.PodRunning && !core.PodReady(pod)
		if starts && pod.DeletionTimestamp == nil {
			p.stages = n.life(pod)
		}
	}
	if pod.DeletionTimestamp != nil && (!pod.DeletionTimestamp.Equal(p.pod.DeletionTimestamp) || len(p.stages) == 0) {
		stop := time.Now().Add(wait(pod, "stop-after", 0))
		if limit := pod.DeletionTimestamp.Time; stop.After(limit) {
			stop = limit
		}
		p.stages = []stage{{stop, n.finish}}
	}
	if pod.DeletionTimestamp == nil && resized(pod) {
		p.stages = slices.Insert(p.stages, 0, stage{time.Now(), n.resize})
	}
	p.pod = pod
}

// resized says whether containers are to have other resources than they have.
func resized(pod *corev1.Pod) bool {
	for i := range pod.Status.ContainerStatuses {
		s := &pod.Status.ContainerStatuses[i]
		at := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == s.Name })
		if s.State.Running != nil && s.Resources != nil && at >= 0 && !equality.Semantic.DeepEqual(*s.Resources, pod.Spec.Containers[at].Resources) {
			return true
		}
	}
	return false
}

// life is what happens to a new pod.
func (n *Node) life(pod *corev1.Pod) []stage {
	start := time.Now().Add(wait(pod, "start-after", n.o.StartAfter))
	fails := n.o.Failing > 0 && rand.Float64() < n.o.Failing
	if fails && pod.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		return []stage{
			{start, func(ctx context.Context, p *corev1.Pod) error { return n.setRunning(ctx, p, false) }},
			{start, func(ctx context.Context, p *corev1.Pod) error { return n.terminate(ctx, p, 1) }},
		}
	}
	stages := []stage{{start, func(ctx context.Context, p *corev1.Pod) error { return n.setRunning(ctx, p, false) }}}
	if pod.Annotations["sim.kemudi.io/ready-after"] != "never" && !fails {
		stages = append(stages, stage{start.Add(wait(pod, "ready-after", 0)), func(ctx context.Context, p *corev1.Pod) error { return n.setRunning(ctx, p, true) }})
	}
	if pod.Annotations["sim.kemudi.io/exit-after"] != "" {
		stages = append(stages, stage{start.Add(wait(pod, "exit-after", 0)), n.exit})
	}
	return stages
}

func wait(pod *corev1.Pod, name string, fallback time.Duration) time.Duration {
	if d, err := time.ParseDuration(pod.Annotations["sim.kemudi.io/"+name]); err == nil {
		return d
	}
	return fallback
}

// work does what is due and returns how long until there is more.
func (n *Node) work(ctx context.Context) time.Duration {
	next := time.Hour
	for _, p := range n.plans {
		for len(p.stages) > 0 {
			if left := time.Until(p.stages[0].at); left > 0 {
				next = min(next, left)
				break
			}
			err := p.stages[0].do(ctx, p.pod)
			switch {
			case err == nil, apierrors.IsNotFound(err):
				p.stages = p.stages[1:]
			default: // somebody else wrote it meanwhile: again when that is seen
				next = min(next, 10*time.Millisecond)
			}
			if err != nil {
				break
			}
		}
	}
	return next
}

func (n *Node) setRunning(ctx context.Context, pod *corev1.Pod, ready bool) error {
	return n.update(ctx, pod, func(s *corev1.PodStatus) error {
		s.Phase = corev1.PodRunning
		if s.PodIP == "" {
			ips, err := n.ips.next(n.taken)
			if err != nil {
				return err
			}
			s.PodIP, s.PodIPs = ips[0].IP, ips
			s.StartTime = ptr.To(metav1.Now().Rfc3339Copy())
		}
		s.ContainerStatuses = containers(pod, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: started(s)}}, ready)
		for _, kind := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized} {
			condition(s, kind, true)
		}
		condition(s, corev1.ContainersReady, ready)
		condition(s, corev1.PodReady, ready)
		return nil
	})
}

// resize gives the containers of a pod the resources that they are to have: simulated ones always get them.
func (n *Node) resize(ctx context.Context, pod *corev1.Pod) error {
	return n.update(ctx, pod, func(s *corev1.PodStatus) error {
		if s.Phase != corev1.PodRunning || len(s.ContainerStatuses) == 0 {
			return nil // it has ended meanwhile
		}
		first := &s.ContainerStatuses[0]
		s.ContainerStatuses = containers(pod, first.State, first.Ready)
		return nil
	})
}

// taken says that a pod which has not ended has the address.
func (n *Node) taken(ip string) bool {
	for _, p := range n.plans {
		if p.pod.Status.PodIP == ip && !core.PodTerminal(p.pod) {
			return true
		}
	}
	return false
}

func (n *Node) exit(ctx context.Context, pod *corev1.Pod) error {
	code, err := strconv.Atoi(pod.Annotations["sim.kemudi.io/exit-code"])
	if err != nil {
		code = 0
	}
	return n.terminate(ctx, pod, code)
}

// terminate lets the containers of a pod end with a code.
func (n *Node) terminate(ctx context.Context, pod *corev1.Pod, code int) error {
	return n.update(ctx, pod, func(s *corev1.PodStatus) error {
		s.Phase = corev1.PodSucceeded
		reason := "Completed"
		if code != 0 {
			s.Phase, reason = corev1.PodFailed, "Error"
		}
		s.ContainerStatuses = containers(pod, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: int32(code), Reason: reason, StartedAt: started(s), FinishedAt: metav1.Now().Rfc3339Copy(),
		}}, false)
		condition(s, corev1.ContainersReady, false)
		condition(s, corev1.PodReady, false)
		return nil
	})
}

// finish removes a pod that has ended because it was deleted. Where a finalizer
// keeps it, others see that it was killed.
func (n *Node) finish(ctx context.Context, pod *corev1.Pod) error {
	if len(pod.Finalizers) > 0 && !core.PodTerminal(pod) {
		if err := n.terminate(ctx, pod, 137); err != nil {
			return err
		}
	}
	return n.pods.Delete(ctx, pod.Namespace, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To[int64](0), Preconditions: &metav1.Preconditions{UID: &pod.UID},
	})
}

func (n *Node) update(ctx context.Context, pod *corev1.Pod, change func(*corev1.PodStatus) error) error {
	now, err := n.pods.Get(ctx, pod.Namespace, pod.Name)
	if err != nil {
		return err
	}
	if now.UID != pod.UID {
		return nil
	}
	now = now.DeepCopy()
	if err := change(&now.Status); err != nil {
		return err
	}
	_, err = n.pods.UpdateStatus(ctx, now)
	return err
}

// started says since when the containers run, which is now if they do not yet: they start together.
func started(s *corev1.PodStatus) metav1.Time {
	for i := range s.ContainerStatuses {
		if running := s.ContainerStatuses[i].State.Running; running != nil {
			return running.StartedAt
		}
	}
	return metav1.Now().Rfc3339Copy()
}

func containers(pod *corev1.Pod, state corev1.ContainerState, ready bool) []corev1.ContainerStatus {
	var out []corev1.ContainerStatus
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		s := corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, ImageID: "sim://" + c.Image, State: state, Ready: ready, Started: ptr.To(state.Running != nil),
		}
		if state.Running != nil { // without them no resize is possible
			s.Resources, s.AllocatedResources = &c.Resources, c.Resources.Requests
		}
		out = append(out, s)
	}
	return out
}

func condition(s *corev1.PodStatus, kind corev1.PodConditionType, on bool) {
	status := corev1.ConditionFalse
	if on {
		status = corev1.ConditionTrue
	}
	core.SetPodCondition(s, corev1.PodCondition{Type: kind, Status: status, LastTransitionTime: metav1.Now().Rfc3339Copy()})
}
