package snapshot

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// volumes is the claims, what they are bound to, and which pods use them.
type volumes struct {
	claims  map[string]*corev1.PersistentVolumeClaim // by namespace/name
	volumes map[string]*Volume                       // by name
	waiting map[string]bool                          // storage classes that bind claims to where a pod goes
	users   map[string]int                           // pods on nodes by claim
}

func newVolumes() volumes {
	return volumes{
		claims: map[string]*corev1.PersistentVolumeClaim{}, volumes: map[string]*Volume{},
		waiting: map[string]bool{}, users: map[string]int{},
	}
}

// Volume is a persistent volume.
type Volume struct {
	Obj *corev1.PersistentVolume

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
	record := &Volume{Obj: v}
	if a := v.Spec.NodeAffinity; a != nil && a.Required != nil {
		record.reach = nodeaffinity.NewLazyErrorNodeSelector(a.Required)
	}
	s.volumes.volumes[v.Name] = record
}

// RemoveVolume forgets a persistent volume.
func (s *Snapshot) RemoveVolume(name string) { delete(s.volumes.volumes, name) }

// Volume returns a persistent volume, or nil.
func (s *Snapshot) Volume(name string) *Volume { return s.volumes.volumes[name] }

// SetStorageClass tells whether the claims of a class wait for a pod before
// they are bound.
func (s *Snapshot) SetStorageClass(name string, waits bool) {
	if waits {
		s.volumes.waiting[name] = true
	} else {
		delete(s.volumes.waiting, name)
	}
}

// Waits reports whether the claims of a class wait for a pod.
func (s *Snapshot) Waits(class string) bool { return s.volumes.waiting[class] }

// claimsOf returns the keys of the claims that a pod uses.
func claimsOf(p *corev1.Pod) (keys []string) {
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		switch {
		case v.PersistentVolumeClaim != nil:
			keys = append(keys, p.Namespace+"/"+v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			keys = append(keys, p.Namespace+"/"+p.Name+"-"+v.Name)
		}
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
