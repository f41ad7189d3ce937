package plugins

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"github.com/kemudi/kemudi/internal/api/core/claims"
	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

// volumeBinding refuses pods whose claims are not there or should be bound already,
// and nodes that a bound volume cannot be used on. For claims that wait for a pod it
// finds volumes that the node can use, or sees that some can be made for it; when the
// pod has its place it has them bound, which bindvolumes.go does.
type volumeBinding struct {
	plugin                                     int
	unbound, lost, outOfReach, delays, noSpace *Reason
	timeout                                    time.Duration // of what must be done before the binding
	rate                                       func(used, capacity int64) int64

	// About the pod at hand.
	bound   []*snapshot.Volume
	missing bool   // a bound volume is not there
	waiting []wish // the smallest first

	preparing map[types.UID]*preparation // of pods that have their place
	snapshot  *snapshot.Snapshot         // in which they were promised something
}

// wish is a claim that waits for a node.
type wish struct {
	*claims.Wish
	key   string
	claim *corev1.PersistentVolumeClaim
	size  apiresource.Quantity
	node  string             // for which its volume is being made; empty: none yet
	suits []*snapshot.Volume // the best first
}

func newVolumeBinding(i int, a *configv1.VolumeBindingArgs) *volumeBinding {
	p := &volumeBinding{
		plugin:     i,
		unbound:    lasting(i, "pod has unbound immediate PersistentVolumeClaims"),
		lost:       lasting(i, "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"),
		outOfReach: lasting(i, "node(s) didn't match PersistentVolume's node affinity"),
		delays:     lasting(i, "node(s) didn't find available persistent volumes to bind"),
		noSpace:    lasting(i, "node(s) did not have enough free storage"),
		preparing:  map[types.UID]*preparation{},
		timeout:    bindTimeout,
		rate:       byShape(EmptiestVolumes()),
	}
	if a != nil && a.BindTimeoutSeconds != nil {
		p.timeout = time.Duration(*a.BindTimeoutSeconds) * time.Second
	}
	if a != nil && len(a.Shape) > 0 {
		p.rate = byShape(a.Shape)
	}
	return p
}

func (*volumeBinding) Name() string { return "VolumeBinding" }

func (p *volumeBinding) PreFilter(c *Cycle) PreFilterResult {
	p.bound, p.waiting, p.missing = p.bound[:0], p.waiting[:0], false
	for _, key := range c.Pod.Claims {
		claim := c.Snapshot.Claim(key)
		_, name, _ := strings.Cut(key, "/")
		switch {
		case claim == nil && madeFor(c.Pod.Obj, name):
			return PreFilterResult{Reject: lasting(p.plugin, `waiting for ephemeral volume controller to create the persistentvolumeclaim "`+name+`"`)}
		case claim == nil:
			return PreFilterResult{Reject: lasting(p.plugin, `persistentvolumeclaim "`+name+`" not found`)}
		case claim.DeletionTimestamp != nil:
			return PreFilterResult{Reject: lasting(p.plugin, `persistentvolumeclaim "`+name+`" is being deleted`)}
		case claim.Status.Phase == corev1.ClaimLost:
			return PreFilterResult{Reject: lasting(p.plugin, `persistentvolumeclaim "`+name+`" bound to non-existent persistentvolume "`+claim.Spec.VolumeName+`"`)}
		case madeFor(c.Pod.Obj, name) && !claims.MadeFor(claim, c.Pod.Obj):
			return PreFilterResult{Reject: lasting(p.plugin, "PVC "+key+" was not created for pod "+c.Pod.Obj.Namespace+"/"+c.Pod.Obj.Name+" (pod is not owner)")}
		case claims.Bound(claim):
			if v := c.Snapshot.Volume(claim.Spec.VolumeName); v != nil {
				p.bound = append(p.bound, v)
			} else {
				p.missing = true
			}
		case claim.Spec.VolumeName == "" && c.Snapshot.Waits(claims.Class(claim)):
			w, err := p.wish(c.Snapshot, key, claim)
			if err != nil {
				return PreFilterResult{Reject: lasting(p.plugin, err.Error())}
			}
			p.waiting = append(p.waiting, w)
		default:
			return PreFilterResult{Reject: p.unbound}
		}
	}
	slices.SortStableFunc(p.waiting, func(a, b wish) int { return a.size.Cmp(b.size) })
	idle := len(p.waiting) == 0
	return PreFilterResult{Skip: len(p.bound) == 0 && !p.missing && idle, Idle: idle}
}

// madeFor reports whether a claim is to be made for one of the pod's volumes.
func madeFor(p *corev1.Pod, claim string) bool {
	for i := range p.Spec.Volumes {
		if v := &p.Spec.Volumes[i]; v.Ephemeral != nil && claims.OfVolume(p, v) == claim {
			return true
		}
	}
	return false
}

// wish finds the volumes that a claim could have, wherever they are.
func (p *volumeBinding) wish(s *snapshot.Snapshot, key string, claim *corev1.PersistentVolumeClaim) (wish, error) {
	w := wish{key: key, claim: claim, size: claim.Spec.Resources.Requests[corev1.ResourceStorage], node: claim.Annotations[claims.SelectedNode]}
	var err error
	if w.Wish, err = claims.WishOf(claim); err != nil {
		return w, err
	}
	if given, ok := s.Promised(key); ok {
		w.node = given.Node
		if v := s.Volume(given.Volume); v != nil {
			w.suits = append(w.suits, v)
		}
		return w, nil
	}
	if w.node != "" {
		return w, nil
	}
	for _, v := range s.Reserved(key) {
		if w.Kept(v.Obj) {
			w.suits = append(w.suits, v)
		}
	}
	if len(w.suits) == 0 {
		for name, v := range s.Free(claims.Class(claim)) {
			if s.PromisedTo(name) == "" && w.Free(v.Obj) {
				w.suits = append(w.suits, v)
			}
		}
	}
	slices.SortFunc(w.suits, func(a, b *snapshot.Volume) int { return claims.Compare(a.Obj, b.Obj) })
	return w, nil
}

func (p *volumeBinding) Filter(c *Cycle, n *snapshot.Node) *Reason {
	if p.missing {
		return p.lost
	}
	for _, v := range p.bound {
		if !v.Reaches(n) {
			return p.outOfReach
		}
	}
	var taken []*snapshot.Volume
	for i := range p.waiting {
		w := &p.waiting[i]
		if v := w.pick(n, taken); v != nil {
			taken = append(taken, v)
		} else if why := p.make(c.Snapshot, w, n); why != nil {
			return why
		}
	}
	return nil
}

// pick is the best volume that a node can use, but for those that are taken; nil:
// there is none.
func (w *wish) pick(n *snapshot.Node, taken []*snapshot.Volume) *snapshot.Volume {
	for _, v := range w.suits {
		if v.Reaches(n) && !slices.Contains(taken, v) {
			return v
		}
	}
	return nil
}

// make says why no volume can be made for a claim on a node.
func (p *volumeBinding) make(s *snapshot.Snapshot, w *wish, n *snapshot.Node) *Reason {
	sc := s.StorageClass(claims.Class(w.claim))
	switch {
	case w.node != "" && w.node != n.Name:
		return p.delays
	case sc == nil, sc.Provisioner == "", sc.Provisioner == claims.NoProvisioner, !snapshot.InTopology(sc, n):
		return p.delays
	case !s.Measured(sc):
		return nil
	}
	if _, ok := s.Space(sc, w.size, n); !ok {
		return p.noSpace
	}
	return nil
}

func (*volumeBinding) Wakers() Events { return ClaimChanged | NodeAdded | NodeLabels }
