package snapshot

import (
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/scheduler/devices"
)

// resourceClaims is the claims to devices, and which devices some of them are about to get.
type resourceClaims struct {
	inventory *devices.Inventory
	byKey     map[string]*ResourceClaim    // by namespace/name
	ofPod     map[types.UID]string         // claims made for the extended resources of a pod, by the pod
	promises  map[types.UID]*DevicePromise // by claim
}

// DevicePromise is what a claim is about to get. The pods that are to use it hold it together:
// whoever comes first writes it, and nobody else gets the devices as long as one of them may.
type DevicePromise struct {
	Allocation *resourcev1.AllocationResult // read-only
	Holders    int                          // pods

	key   string
	reach *nodeaffinity.LazyErrorNodeSelector // nil: every node
	seen  bool                                // the claim was there; if it is not any more, it is gone
	until int64                               // the revision of the claim that shows what became of it; 0: not known yet
}

// Reaches reports whether a node can use what is promised.
func (p *DevicePromise) Reaches(n *Node) bool { return reaches(p.reach, n) }

func newResourceClaims() resourceClaims {
	return resourceClaims{byKey: map[string]*ResourceClaim{}, ofPod: map[types.UID]string{}, promises: map[types.UID]*DevicePromise{}}
}

// ResourceClaim is a claim to devices.
type ResourceClaim struct {
	Obj *resourcev1.ResourceClaim // read-only

	reach    *nodeaffinity.LazyErrorNodeSelector // nil: every node
	expected int64                               // revision that it is known to have by now
}

// Outdated reports whether it is known that the claim is not like that any more.
func (c *ResourceClaim) Outdated() bool { return resource.Revision(c.Obj) < c.expected }

// Reaches reports whether a node can use what the claim has.
func (c *ResourceClaim) Reaches(n *Node) bool { return reaches(c.reach, n) }

func reaches(reach *nodeaffinity.LazyErrorNodeSelector, n *Node) bool {
	if reach == nil {
		return true
	}
	ok, err := reach.Match(n.Obj)
	return ok && err == nil
}

// reachOf is which nodes can use an allocation; nil: every node.
func reachOf(a *resourcev1.AllocationResult) *nodeaffinity.LazyErrorNodeSelector {
	if a == nil || a.NodeSelector == nil {
		return nil
	}
	return nodeaffinity.NewLazyErrorNodeSelector(a.NodeSelector)
}

// Compile says how expressions about devices are read. It is called once, before
// anything that has some is taken in.
func (s *Snapshot) Compile(compile devices.Compiler) { s.claims.inventory = devices.New(compile) }

// Devices is the devices of the cluster, and who has them: those to whom they were
// promised included.
func (s *Snapshot) Devices() *devices.Inventory { return s.claims.inventory }

// SetDeviceClass takes in a class of devices.
func (s *Snapshot) SetDeviceClass(c *resourcev1.DeviceClass) {
	s.claims.inventory.SetClass(c)
	s.servedAnew()
}

// RemoveDeviceClass forgets a class of devices.
func (s *Snapshot) RemoveDeviceClass(name string) {
	s.claims.inventory.RemoveClass(name)
	s.servedAnew()
}

// servedAnew: it may be others that serve extended resources, wherever nodes have none.
func (s *Snapshot) servedAnew() {
	for _, n := range s.slots {
		if n != nil {
			s.changed(n)
		}
	}
}

// SetResourceClaim takes in a claim's present state, and reports whether devices came
// free by that.
func (s *Snapshot) SetResourceClaim(obj *resourcev1.ResourceClaim) (freed bool) {
	key := obj.Namespace + "/" + obj.Name
	if old := s.claims.byKey[key]; old != nil && old.Obj.UID != obj.UID {
		freed = s.RemoveResourceClaim(obj.Namespace, obj.Name)
	}
	c := &ResourceClaim{Obj: obj, reach: reachOf(obj.Status.Allocation)}
	if old := s.claims.byKey[key]; old != nil {
		c.expected = old.expected
	}
	s.claims.byKey[key] = c
	if pod := ownerOfExtended(obj); pod != "" {
		s.claims.ofPod[pod] = key
	}
	return s.settle(obj.UID, key) || freed
}

// RemoveResourceClaim forgets a claim, and reports whether devices came free by that.
func (s *Snapshot) RemoveResourceClaim(namespace, name string) (freed bool) {
	key := namespace + "/" + name
	c := s.claims.byKey[key]
	if c == nil {
		return false
	}
	delete(s.claims.byKey, key)
	if pod := ownerOfExtended(c.Obj); s.claims.ofPod[pod] == key {
		delete(s.claims.ofPod, pod)
	}
	return s.settle(c.Obj.UID, key)
}

// ownerOfExtended is the pod for whose extended resources a claim was made; empty: none.
func ownerOfExtended(c *resourcev1.ResourceClaim) types.UID {
	if c.Annotations[resourcev1.ExtendedResourceClaimAnnotation] != "true" {
		return ""
	}
	if owner := metav1.GetControllerOfNoCopy(c); owner != nil && owner.Kind == "Pod" {
		return owner.UID
	}
	return ""
}

// ResourceClaim returns a claim by "namespace/name", or nil.
func (s *Snapshot) ResourceClaim(key string) *ResourceClaim { return s.claims.byKey[key] }

// ExpectResourceClaim says that a claim has a revision by now.
func (s *Snapshot) ExpectResourceClaim(key string, rev int64) {
	if c := s.claims.byKey[key]; c != nil {
		c.expected = max(c.expected, rev)
	}
}

// ServedByDevices is the class whose devices serve an extended resource where nodes have none
// of it; nil: there is none.
func (s *Snapshot) ServedByDevices(resource int) *resourcev1.DeviceClass {
	if resource <= EphemeralStorage {
		return nil
	}
	return s.claims.inventory.Serves(string(s.ResourceName(resource)))
}

// ExtendedResourceClaim returns the claim that was made for the extended resources of
// a pod, or nil.
func (s *Snapshot) ExtendedResourceClaim(pod types.UID) *ResourceClaim {
	return s.claims.byKey[s.claims.ofPod[pod]]
}

// PromiseDevices promises a claim devices. Who calls it holds the promise, until KeepDevices or
// RecallDevices: B7 of the scheduler.
func (s *Snapshot) PromiseDevices(claim types.UID, key string, a *resourcev1.AllocationResult) {
	c := s.claims.byKey[key]
	s.claims.promises[claim] = &DevicePromise{Allocation: a, Holders: 1, key: key, reach: reachOf(a), seen: c != nil && c.Obj.UID == claim}
	s.claims.inventory.Take(claim, a)
}

// DevicesPromised is what a claim is about to get; nil: nothing.
func (s *Snapshot) DevicesPromised(claim types.UID) *DevicePromise { return s.claims.promises[claim] }

// ShareDevices holds a promise with those who do already.
func (s *Snapshot) ShareDevices(claim types.UID) { s.claims.promises[claim].Holders++ }

// KeepDevices lets go of a promise that was written: the claim as it is from a revision on says what it
// has. It reports whether devices came free by that.
func (s *Snapshot) KeepDevices(claim types.UID, rev int64) (freed bool) {
	p := s.claims.promises[claim]
	if p == nil {
		return false
	}
	p.Holders, p.until = p.Holders-1, max(p.until, rev)
	return s.settle(claim, p.key)
}

// RecallDevices lets go of a promise that was not written, and reports whether devices came
// free by that.
func (s *Snapshot) RecallDevices(claim types.UID) (freed bool) {
	p := s.claims.promises[claim]
	if p == nil {
		return false
	}
	if p.Holders--; p.Holders == 0 && p.until == 0 {
		delete(s.claims.promises, claim)
	}
	return s.settle(claim, p.key)
}

// EndDevices ends the promise to a claim that is gone and may never have been seen. It reports
// whether devices came free by that.
func (s *Snapshot) EndDevices(claim types.UID) (freed bool) {
	p := s.claims.promises[claim]
	if p == nil {
		return false
	}
	delete(s.claims.promises, claim)
	return s.settle(claim, p.key)
}

// settle notes what a claim has: what it says, or what it was promised as long as
// it cannot say so.
func (s *Snapshot) settle(claim types.UID, key string) (freed bool) {
	c := s.claims.byKey[key]
	if c != nil && c.Obj.UID != claim {
		c = nil
	}
	if p := s.claims.promises[claim]; p != nil {
		p.seen = p.seen || c != nil
		if c != nil && c.Obj.Status.Allocation != nil { // as it was promised, or somebody was faster
			s.claims.inventory.Take(claim, c.Obj.Status.Allocation)
		}
		if p.Holders > 0 || p.until == 0 || !p.seen || c != nil && resource.Revision(c.Obj) < p.until {
			return false
		}
		delete(s.claims.promises, claim)
	}
	if c != nil && c.Obj.Status.Allocation != nil {
		s.claims.inventory.Take(claim, c.Obj.Status.Allocation)
		return false
	}
	return s.claims.inventory.Release(claim)
}
