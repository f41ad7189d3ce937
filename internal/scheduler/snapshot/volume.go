package snapshot

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/kemudi/kemudi/internal/api/core/claims"
	"github.com/kemudi/kemudi/internal/api/core/csi"
)

// volumes is the claims, what they are bound to or could be, and which pods use them.
type volumes struct {
	claims   map[string]*corev1.PersistentVolumeClaim // by namespace/name
	volumes  map[string]*Volume                       // by name
	free     map[string]map[string]*Volume            // of volumes those that are nobody's, by class and name
	reserved map[string]map[string]*Volume            // the others, by the claim that they name, and name
	users    map[string]int                           // pods on nodes by claim
	promises map[string]*promise                      // by claim
	promised map[string]string                        // which claim was promised a volume, by its name
	storage
}

func newVolumes() volumes {
	return volumes{
		claims: map[string]*corev1.PersistentVolumeClaim{}, volumes: map[string]*Volume{},
		free: map[string]map[string]*Volume{}, reserved: map[string]map[string]*Volume{}, users: map[string]int{},
		promises: map[string]*promise{}, promised: map[string]string{}, storage: newStorage(),
	}
}

// Volume is a persistent volume.
type Volume struct {
	Obj *corev1.PersistentVolume
	// CSI is what the volume is to the driver that sees to it; nil: none does.
	CSI *corev1.CSIPersistentVolumeSource

	reach *nodeaffinity.LazyErrorNodeSelector // nil: every node
}

// Reaches reports whether a node can use the volume.
func (v *Volume) Reaches(n *Node) bool {
	if v.reach == nil {
		return true
	}
	ok, err := v.reach.Match(n.Obj)
	return ok && err == nil
}

// SetClaim takes in a claim's present state.
func (s *Snapshot) SetClaim(c *corev1.PersistentVolumeClaim) {
	s.volumes.claims[c.Namespace+"/"+c.Name] = c
}

// RemoveClaim forgets a claim.
func (s *Snapshot) RemoveClaim(namespace, name string) {
	delete(s.volumes.claims, namespace+"/"+name)
}

// Claim returns a claim by "namespace/name", or nil.
func (s *Snapshot) Claim(key string) *corev1.PersistentVolumeClaim { return s.volumes.claims[key] }

// ClaimUsers is how many pods on nodes use a claim.
func (s *Snapshot) ClaimUsers(key string) int { return s.volumes.users[key] }

// SetVolume takes in a persistent volume's present state.
func (s *Snapshot) SetVolume(v *corev1.PersistentVolume) {
	s.RemoveVolume(v.Name)
	record, affinity := &Volume{Obj: v}, v.Spec.NodeAffinity
	if known := csi.Of(v); known != nil { // where it is, the driver may say by other labels than what was built in once
		record.CSI, affinity = known.Spec.CSI, known.Spec.NodeAffinity
	}
	if a := affinity; a != nil && a.Required != nil {
		record.reach = nodeaffinity.NewLazyErrorNodeSelector(a.Required)
	}
	s.volumes.volumes[v.Name] = record
	list, key := s.volumes.shelf(v)
	if list[key] == nil {
		list[key] = map[string]*Volume{}
	}
	list[key][v.Name] = record
}

// RemoveVolume forgets a persistent volume.
func (s *Snapshot) RemoveVolume(name string) {
	v := s.volumes.volumes[name]
	if v == nil {
		return
	}
	delete(s.volumes.volumes, name)
	list, key := s.volumes.shelf(v.Obj)
	delete(list[key], name)
	if len(list[key]) == 0 {
		delete(list, key)
	}
}

// shelf is where a volume is found by those who need one.
func (v *volumes) shelf(obj *corev1.PersistentVolume) (list map[string]map[string]*Volume, key string) {
	if ref := obj.Spec.ClaimRef; ref != nil {
		return v.reserved, ref.Namespace + "/" + ref.Name
	}
	return v.free, claims.VolumeClass(obj)
}

// Free are the volumes of a class that are nobody's, by name.
func (s *Snapshot) Free(class string) map[string]*Volume { return s.volumes.free[class] }

// Reserved are the volumes that name a claim, by name.
func (s *Snapshot) Reserved(claim string) map[string]*Volume { return s.volumes.reserved[claim] }

// Volume returns a persistent volume, or nil.
func (s *Snapshot) Volume(name string) *Volume { return s.volumes.volumes[name] }

// Promise is what a claim is to get for pods that are on their way to a node: a
// volume, or one that is made for that node.
type Promise struct {
	Volume string
	Node   string // empty: the volume is there
}

type promise struct {
	Promise
	pods int // for which it was given
}

// Promised is what a claim was promised; ok is false if that is nothing.
func (s *Snapshot) Promised(claim string) (p Promise, ok bool) {
	if given := s.volumes.promises[claim]; given != nil {
		return given.Promise, true
	}
	return Promise{}, false
}

// PromisedTo is the claim that a volume was promised to; empty: none.
func (s *Snapshot) PromisedTo(volume string) string { return s.volumes.promised[volume] }

// Promise promises a claim something, once more if it was promised before.
func (s *Snapshot) Promise(claim string, p Promise) {
	given := s.volumes.promises[claim]
	if given == nil {
		given = &promise{Promise: p}
		s.volumes.promises[claim] = given
		if p.Volume != "" {
			s.volumes.promised[p.Volume] = claim
		}
	}
	given.pods++
}

// Redeem ends a promise that was kept, or need not be any more.
func (s *Snapshot) Redeem(claim string) {
	given := s.volumes.promises[claim]
	if given == nil {
		return
	}
	if given.pods--; given.pods == 0 {
		delete(s.volumes.promises, claim)
		delete(s.volumes.promised, given.Volume)
	}
}

// claimsOf returns the keys of the claims that a pod uses.
func claimsOf(p *corev1.Pod) []string {
	keys := claims.Of(p)
	for i := range keys {
		keys[i] = p.Namespace + "/" + keys[i]
	}
	return keys
}

func (v *volumes) use(p *Pod, delta int) {
	for _, key := range p.Claims {
		v.users[key] += delta
		if v.users[key] == 0 {
			delete(v.users, key)
		}
	}
}
