package plugins

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/core/claims"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

// bindTimeout is how long a pod keeps its place while volumes are bound and made,
// unless the profile says otherwise.
const bindTimeout = 10 * time.Minute

// preparation is what is to be done about the claims of a pod that has its place.
type preparation struct {
	keys     []string                        // of all of its claims that are not bound
	reserve  []reservation                   // volumes that are there
	toBeMade []*corev1.PersistentVolumeClaim // for the node
	written  map[string]int64                // by key: the claim's revision with the node in it
}

// reservation is a volume for a claim.
type reservation struct {
	volume *corev1.PersistentVolume
	claim  *corev1.PersistentVolumeClaim
}

// Reserve promises the pod's claims what they are to get, so that no other pod is
// given the same volume, or the same claim on another node.
func (p *volumeBinding) Reserve(c *Cycle, n *snapshot.Node) *Reason {
	if len(p.waiting) == 0 {
		return nil
	}
	x := &preparation{written: map[string]int64{}}
	var taken []*snapshot.Volume
	for i := range p.waiting {
		w := &p.waiting[i]
		x.keys = append(x.keys, w.key)
		if v := w.pick(n, taken); v != nil {
			taken = append(taken, v)
			c.Snapshot.Promise(w.key, snapshot.Promise{Volume: v.Obj.Name})
			x.reserve = append(x.reserve, reservation{v.Obj, w.claim})
			continue
		}
		c.Snapshot.Promise(w.key, snapshot.Promise{Node: n.Name})
		x.toBeMade = append(x.toBeMade, w.claim)
	}
	p.preparing[c.Pod.Obj.UID] = x
	p.snapshot = c.Snapshot
	return nil
}

// Unreserve takes the promises back.
func (p *volumeBinding) Unreserve(pod *snapshot.Pod, _ *snapshot.Node) { p.forget(pod) }

// PostBind ends the promises: they were kept.
func (p *volumeBinding) PostBind(pod *snapshot.Pod, _ *snapshot.Node) { p.forget(pod) }

func (p *volumeBinding) forget(pod *snapshot.Pod) {
	x := p.preparing[pod.Obj.UID]
	if x == nil {
		return
	}
	delete(p.preparing, pod.Obj.UID)
	for _, key := range x.keys {
		p.snapshot.Redeem(key)
	}
}

// PreBind writes into volumes and claims what was decided, and waits until the
// claims are bound.
func (p *volumeBinding) PreBind(c *Cycle, n *snapshot.Node) Work {
	x := p.preparing[c.Pod.Obj.UID]
	if x == nil {
		return Work{}
	}
	return Work{
		Do: func(ctx context.Context, t client.Transport) error {
			return Persist(ctx, func() error { return x.write(ctx, t, n.Name) })
		},
		Wait: Wait{For: p.timeout, Over: func() (bool, error) { return x.done(c.Snapshot, n) }},
	}
}

// write reserves volumes for their claims, and says for which node others are to
// be made.
func (x *preparation) write(ctx context.Context, t client.Transport, node string) error {
	volumes, all := client.For(t, core.PersistentVolumes), client.For(t, core.PersistentVolumeClaims)
	for _, r := range x.reserve {
		if err := r.write(ctx, volumes); err != nil {
			return fmt.Errorf("reserve volume %s for claim %s: %w", r.volume.Name, r.claim.Name, err)
		}
	}
	for _, c := range x.toBeMade {
		selected, err := selectNode(ctx, all, c, node)
		if err != nil {
			return fmt.Errorf("select node for claim %s: %w", c.Name, err)
		}
		x.written[c.Namespace+"/"+c.Name] = resource.Revision(selected)
	}
	return nil
}

// write writes the claim into the volume. Another pod with the claim may be doing the same: of a Deployment whose pods share
// one, all are bound at one time.
func (r reservation) write(ctx context.Context, volumes client.Client[*corev1.PersistentVolume]) error {
	for try, v := 1, r.volume; ; try++ {
		fresh := claims.Bind(v, r.claim)
		if fresh == nil {
			return nil
		}
		_, err := volumes.Update(ctx, fresh)
		if !apierrors.IsConflict(err) || try == claimTries {
			return err
		}
		newest, look := volumes.Get(ctx, "", v.Name)
		if look != nil {
			return look
		}
		if newest.Spec.ClaimRef != nil && !claims.Reserved(newest, r.claim) {
			return err
		}
		v = newest
	}
}

// selectNode writes into a claim for which node its volume is to be made, unless another pod with the claim has done so, and
// returns what it is then.
func selectNode(ctx context.Context, all client.Client[*corev1.PersistentVolumeClaim], c *corev1.PersistentVolumeClaim, node string) (*corev1.PersistentVolumeClaim, error) {
	for try, now := 1, c; ; try++ {
		if now.Annotations[claims.SelectedNode] == node || claims.Bound(now) {
			return now, nil
		}
		fresh := now.DeepCopy()
		if fresh.Annotations == nil {
			fresh.Annotations = map[string]string{}
		}
		fresh.Annotations[claims.SelectedNode] = node
		selected, err := all.Update(ctx, fresh)
		if !apierrors.IsConflict(err) || try == claimTries {
			return selected, err
		}
		newest, look := all.Get(ctx, c.Namespace, c.Name)
		if look != nil {
			return nil, look
		}
		if newest.UID != c.UID || newest.Annotations[claims.SelectedNode] != c.Annotations[claims.SelectedNode] && newest.Annotations[claims.SelectedNode] != node {
			return nil, err
		}
		now = newest
	}
}

// done reports whether all claims are bound, to volumes that the node can use. It
// fails if one never will be: its provisioner wants another node, or it is gone.
func (x *preparation) done(s *snapshot.Snapshot, n *snapshot.Node) (bool, error) {
	for _, key := range x.keys {
		c := s.Claim(key)
		switch {
		case c == nil:
			return false, fmt.Errorf("persistentvolumeclaim %q not found", key)
		case c.DeletionTimestamp != nil:
			return false, fmt.Errorf("persistentvolumeclaim %q is being deleted", key)
		case resource.Revision(c) < x.written[key]:
			return false, nil
		}
		given, _ := s.Promised(key)
		if selected := c.Annotations[claims.SelectedNode]; given.Node != "" && selected != given.Node {
			return false, fmt.Errorf("provisioning failed for PVC %q: selectedNode annotation value %q not set to scheduled node %q", key, selected, n.Name)
		}
		if !claims.Bound(c) || c.Status.Phase != corev1.ClaimBound {
			return false, nil
		}
		v := s.Volume(c.Spec.VolumeName)
		if v == nil {
			return false, nil // not seen yet
		}
		if !v.Reaches(n) {
			return false, fmt.Errorf("pv %q node affinity doesn't match node %q", v.Obj.Name, n.Name)
		}
	}
	return true, nil
}
