package snapshot

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/api/core"
)

// Pod is what the scheduler needs of a pod, pending or on a node.
type Pod struct {
	Obj         *corev1.Pod // read-only
	Priority    int32
	Terminating bool
	Constraints *Constraints
	Requests    []Amount // without zeros, in the order of the resources' indexes
	Scored      [2]int64 // CPU and memory that count in scores
	HostPorts   []HostPort
	Claims      []string // namespace/name of the volume claims it uses

	// Assumed: put on its node by us, and not yet seen there in the API.
	Assumed bool
	// Victim: we have asked for its deletion in favour of another pod.
	Victim bool

	node      *Node // nil: pending
	class     *Class
	shape     *Shape
	inNode    int // index in node.Pods
	inClass   int // index in class.pods
	held      []heldTerm
	nominated *Node // where it holds a place while pending
}

// HostPort is a port that a pod takes of its node.
type HostPort struct {
	IP       string // "0.0.0.0": all addresses
	Protocol corev1.Protocol
	Port     int32
}

// Conflicts reports whether both ports cannot be had on one node.
func (a HostPort) Conflicts(b HostPort) bool {
	return a.Port == b.Port && a.Protocol == b.Protocol && (a.IP == b.IP || a.IP == anyAddress || b.IP == anyAddress)
}

const anyAddress = "0.0.0.0"

// NewPod parses a pod. It is not part of the snapshot until it is added.
func (s *Snapshot) NewPod(obj *corev1.Pod) *Pod {
	p := &Pod{Obj: obj, Terminating: obj.DeletionTimestamp != nil, Constraints: s.constraintsOf(obj), HostPorts: hostPorts(obj), Claims: claimsOf(obj)}
	if obj.Spec.Priority != nil {
		p.Priority = *obj.Spec.Priority
	}
	p.Requests, p.Scored = s.requests(obj)
	return p
}

// Node is where the pod is, or nil.
func (p *Pod) Node() *Node { return p.node }

// Nominated is the node on which the pending pod holds a place, or nil.
func (p *Pod) Nominated() *Node { return p.nominated }

func hostPorts(p *corev1.Pod) (ports []HostPort) {
	take := func(c *corev1.Container) {
		for _, port := range c.Ports {
			if port.HostPort <= 0 {
				continue
			}
			hp := HostPort{IP: port.HostIP, Protocol: port.Protocol, Port: port.HostPort}
			if hp.IP == "" {
				hp.IP = anyAddress
			}
			if hp.Protocol == "" {
				hp.Protocol = corev1.ProtocolTCP
			}
			ports = append(ports, hp)
		}
	}
	for i := range p.Spec.InitContainers {
		if core.IsSidecar(&p.Spec.InitContainers[i]) {
			take(&p.Spec.InitContainers[i])
		}
	}
	for i := range p.Spec.Containers {
		take(&p.Spec.Containers[i])
	}
	return ports
}

// Pod returns the pod on a node with the UID, or nil.
func (s *Snapshot) Pod(uid types.UID) *Pod { return s.pods[uid] }

// Pods yields all pods on nodes.
func (s *Snapshot) Pods() func(yield func(*Pod) bool) {
	return func(yield func(*Pod) bool) {
		for _, p := range s.pods {
			if !yield(p) {
				return
			}
		}
	}
}

// Add puts a pod on the node with the name, known or not. The pod must not be
// on a node yet (S1).
func (s *Snapshot) Add(p *Pod, node string) {
	s.place(p, s.nodeRecord(node))
	s.pods[p.Obj.UID] = p
}

// Remove takes a pod off its node (S1).
func (s *Snapshot) Remove(p *Pod) {
	n := p.node
	s.take(p)
	delete(s.pods, p.Obj.UID)
	s.dropIfGone(n)
}

// Try puts pods on a node for the time of fn.
func (s *Snapshot) Try(pods []*Pod, n *Node, fn func()) {
	s.WhatIf(n, func() {
		for _, p := range pods {
			s.place(p, n)
		}
		fn()
		for _, p := range slices.Backward(pods) {
			s.take(p)
		}
	})
}

// Lift takes a pod off its node until Lower puts it back.
func (s *Snapshot) Lift(p *Pod) { s.take(p) }

// Lower puts a lifted pod back on its node.
func (s *Snapshot) Lower(p *Pod, n *Node) { s.place(p, n) }

// Update takes in a new state of a pod that is on a node, and stays there.
func (s *Snapshot) Update(p *Pod, obj *corev1.Pod) {
	requests, scored := s.requests(obj)
	terminating := obj.DeletionTimestamp != nil
	same := p.Terminating == terminating && slices.Equal(p.Requests, requests) && p.Scored == scored
	if same && equalLabels(p.Obj.Labels, obj.Labels) {
		p.Obj = obj
		s.changed(p.node) // when it started matters to preemption
		return
	}
	n := p.node
	s.take(p)
	p.Obj, p.Terminating, p.Requests, p.Scored, p.class, p.shape = obj, terminating, requests, scored, nil, nil
	s.place(p, n)
}

func equalLabels(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if w, ok := b[k]; !ok || w != v {
			return false
		}
	}
	return true
}

func (s *Snapshot) place(p *Pod, n *Node) {
	p.node, p.inNode = n, len(n.Pods)
	n.Pods = append(n.Pods, p)
	n.use(p, +1)
	s.volumes.use(p, +1)
	s.count(p)
	s.changed(n)
}

func (s *Snapshot) take(p *Pod) {
	s.uncount(p)
	n := p.node
	n.use(p, -1)
	s.volumes.use(p, -1)
	last := len(n.Pods) - 1
	n.Pods[p.inNode] = n.Pods[last]
	n.Pods[p.inNode].inNode = p.inNode
	n.Pods[last] = nil
	n.Pods = n.Pods[:last]
	p.node = nil
	s.changed(n)
}

// count takes a pod on a node into all counts.
func (s *Snapshot) count(p *Pod) {
	c := s.Class(p)
	p.inClass = len(c.pods)
	c.pods = append(c.pods, p)
	p.countIn(+1)
	for i := range p.Constraints.own {
		p.held = append(p.held, s.hold(&p.Constraints.own[i], p.node))
	}
}

// uncount undoes count.
func (s *Snapshot) uncount(p *Pod) {
	for _, h := range p.held {
		s.release(h, p.node)
	}
	p.held = p.held[:0]
	p.countIn(-1)
	c := p.class
	last := len(c.pods) - 1
	c.pods[p.inClass] = c.pods[last]
	c.pods[p.inClass].inClass = p.inClass
	c.pods[last] = nil
	c.pods = c.pods[:last]
}

// countIn counts the pod in the sets of its class.
func (p *Pod) countIn(delta int32) {
	for _, ps := range p.class.sets {
		ps.pod(p, delta)
	}
}

// Nominate holds a place for a pending pod on a node, or with an empty name on
// none. A node that is not known holds none either.
func (s *Snapshot) Nominate(p *Pod, node string) {
	if n := p.nominated; n != nil {
		n.Nominated = slices.DeleteFunc(n.Nominated, func(x *Pod) bool { return x == p })
		p.nominated = nil
		s.changed(n)
	}
	if n := s.byName[node]; n != nil && n.Obj != nil {
		n.Nominated = append(n.Nominated, p)
		p.nominated = n
		s.changed(n)
	}
}

// PodCount is the number of pods on nodes.
func (s *Snapshot) PodCount() int { return len(s.pods) }
