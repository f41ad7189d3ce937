package netpolicy

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/podnet/nft/table"
)

// pod is what the model knows of a pod.
type pod struct {
	key   types.NamespacedName
	facts facts
	addrs []netip.Addr // by which others know it; none: it has none of its own (any more)

	in       map[*peers]uint16         // the sets in use that it is in, and its port if it is in with one
	profiles [len(directions)]*profile // of a pod of this node: what it may do; nil: all
	targets  []netip.Addr              // the addresses for which the rules say so
	claimed  [len(directions)]*profile // what they say
}

// facts is what counts of a Pod.
type facts struct {
	uid       types.UID
	mirrors   string // the static pod that it is the mirror of
	made      time.Time
	labels    labels.Set
	status    []netip.Addr // what its status says
	ports     map[portName]uint16
	local     bool // it is on this node
	connected bool // it has, or is to have, a network of its own
}

// isolated reports whether the rules hold back anything of the pod.
func (p *pod) isolated() bool { return p.claimed != [len(directions)]*profile{} }

var _ table.Owner = (*pod)(nil)

// Before reports whether p is the older of two pods that have one address.
func (p *pod) Before(o table.Owner) bool {
	other := o.(*pod)
	if !p.facts.made.Equal(other.facts.made) {
		return p.facts.made.Before(other.facts.made)
	}
	return p.key.String() < other.key.String()
}

func factsOf(p *corev1.Pod, node string) facts {
	f := facts{
		uid: p.UID, mirrors: p.Annotations[corev1.MirrorPodAnnotationKey], made: p.CreationTimestamp.Time, labels: p.Labels, local: p.Spec.NodeName == node,
		connected: !p.Spec.HostNetwork && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed,
	}
	if !f.connected {
		return f
	}
	f.status = podAddrs(&p.Status)
	note := func(list []corev1.ContainerPort) {
		for i := range list {
			name := portName{protoOf(list[i].Protocol), list[i].Name}
			if _, taken := f.ports[name]; taken || name.name == "" {
				continue
			}
			if f.ports == nil {
				f.ports = map[portName]uint16{}
			}
			f.ports[name] = uint16(list[i].ContainerPort)
		}
	}
	for i := range p.Spec.Containers {
		note(p.Spec.Containers[i].Ports)
	}
	for i := range p.Spec.InitContainers {
		if ptr.Deref(p.Spec.InitContainers[i].RestartPolicy, "") == corev1.ContainerRestartPolicyAlways {
			note(p.Spec.InitContainers[i].Ports)
		}
	}
	return f
}

func podAddrs(s *corev1.PodStatus) (list []netip.Addr) {
	texts := []string{s.PodIP}
	for _, ip := range s.PodIPs {
		texts = append(texts, ip.IP)
	}
	for _, text := range texts {
		if a, err := netip.ParseAddr(text); err == nil && !slices.Contains(list, a.Unmap()) {
			list = append(list, a.Unmap())
		}
	}
	return list
}

// same reports whether two states of a pod are one to policies.
func (f *facts) same(o *facts) bool {
	return f.uid == o.uid && f.local == o.local && f.connected == o.connected && f.made.Equal(o.made) &&
		slices.Equal(f.status, o.status) && maps.Equal(f.labels, o.labels) && maps.Equal(f.ports, o.ports)
}

// attachment is the network of a pod of this node, as who made it says: that is true
// before the pod's status says it, and when the status still tells of an earlier one.
type attachment struct {
	uid   types.UID
	addrs []netip.Addr
}

// Attach takes in that a pod of this node has these addresses. Another pod that had them has
// none any more.
func (m *Model) Attach(key types.NamespacedName, uid types.UID, addrs []netip.Addr) {
	if had, ok := m.attached[key]; ok {
		m.detach(key, had)
	}
	for _, a := range addrs {
		if other, ok := m.holders[a]; ok {
			m.detach(other, m.attached[other])
			m.refresh(other)
		}
		m.holders[a] = key
	}
	m.attached[key] = attachment{uid, addrs}
	m.refresh(key)
}

func (m *Model) detach(key types.NamespacedName, at attachment) {
	delete(m.attached, key)
	for _, a := range at.addrs {
		delete(m.holders, a)
	}
}

// refresh looks anew at which addresses a pod has.
func (m *Model) refresh(key types.NamespacedName) {
	if p := m.pods[key]; p != nil {
		m.change(p, p.facts)
	}
}

// SetPod takes in a pod that is new or changed.
func (m *Model) SetPod(obj *corev1.Pod) {
	key := types.NamespacedName{Namespace: obj.Namespace, Name: obj.Name}
	now := factsOf(obj, m.node)
	p := m.pods[key]
	if p != nil && p.facts.same(&now) {
		return
	}
	if at, ok := m.attached[key]; ok && !at.is(&now) {
		if p != nil && p.facts.uid == at.uid && now.made.Before(p.facts.made) {
			return // a pod of this name that was there before
		}
		if p != nil && p.facts.uid == at.uid {
			m.detach(key, at)
		}
	}
	if p == nil {
		p = &pod{key: key, in: map[*peers]uint16{}}
		m.pods[key] = p
		m.space(key.Namespace).pods[p] = true
	}
	delete(m.gone, p)
	m.change(p, now)
}

// is reports whether the attachment is that of a pod.
func (at attachment) is(f *facts) bool { return at.uid == f.uid || at.uid == types.UID(f.mirrors) }

// DeletePod forgets a pod. One of the same name that came after it stays.
func (m *Model) DeletePod(obj *corev1.Pod) {
	key := types.NamespacedName{Namespace: obj.Namespace, Name: obj.Name}
	p := m.pods[key]
	if p == nil || p.facts.uid != obj.UID && string(p.facts.uid) != obj.Annotations[corev1.MirrorPodAnnotationKey] {
		return
	}
	if at, ok := m.attached[key]; ok && at.is(&p.facts) {
		m.detach(key, at)
	}
	m.change(p, facts{uid: obj.UID})
	m.gone[p] = true
}

// addrsOf are the addresses that a pod with these facts has.
func (m *Model) addrsOf(key types.NamespacedName, f *facts) []netip.Addr {
	if !f.connected {
		return nil
	}
	if at, ok := m.attached[key]; ok && f.local && at.is(f) {
		return at.addrs
	}
	if !f.local {
		return f.status
	}
	return slices.DeleteFunc(slices.Clone(f.status), func(a netip.Addr) bool { // what has been given to another by now
		_, given := m.holders[a]
		return given
	})
}

// change gives a pod new facts.
func (m *Model) change(p *pod, now facts) {
	was, had := p.in, p.addrs
	m.leave(p)
	if p.facts.local || now.local {
		m.dirty[p] = true
	}
	p.facts, p.addrs, p.in = now, m.addrsOf(p.key, &now), map[*peers]uint16{}
	m.enter(p)
	for s, port := range was {
		if after, still := p.in[s]; still && after == port {
			continue
		}
		m.recheck(had...)
		return
	}
	for _, a := range had {
		if len(was) > 0 && !slices.Contains(p.addrs, a) {
			m.recheck(a)
		}
	}
}

// leave takes a pod out of all sets of peers, enter puts it into those that it belongs to.
func (m *Model) leave(p *pod) {
	for s := range p.in {
		m.withdraw(s, p)
	}
	for _, a := range p.addrs {
		if delete(m.at[a], p); len(m.at[a]) == 0 {
			delete(m.at, a)
		}
	}
}

func (m *Model) enter(p *pod) {
	for _, a := range p.addrs {
		if m.at[a] == nil {
			m.at[a] = map[*pod]bool{}
		}
		m.at[a][p] = true
	}
	admit := func(s *peers) { m.admit(s, p) }
	m.space(p.key.Namespace).peers.each(p.facts.labels, admit)
	m.anywhere.each(p.facts.labels, admit)
}
