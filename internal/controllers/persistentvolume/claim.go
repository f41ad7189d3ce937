package persistentvolume

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/core/claims"
	"github.com/kemudi/kemudi/internal/api/core/csi"
	"github.com/kemudi/kemudi/internal/api/storage"
	"github.com/kemudi/kemudi/internal/cache"
)

// claim brings a claim on.
func (b *binder) claim(ctx context.Context, c *corev1.PersistentVolumeClaim) error {
	if fresh := handedOver(c); fresh != nil {
		_, err := b.claims.Update(ctx, fresh)
		return err // which brings it back
	}
	switch {
	case claims.Completed(c):
		return b.bound(ctx, c)
	case c.Spec.VolumeName != "":
		return b.chosen(ctx, c)
	}
	return b.unbound(ctx, c)
}

// unbound finds a volume for a claim, or says who will.
func (b *binder) unbound(ctx context.Context, c *corev1.PersistentVolumeClaim) error {
	class := claims.Class(c)
	delayed := waits(b.classes, class)
	v, err := b.find(c, delayed)
	if err != nil {
		return err
	}
	if v != nil {
		return b.bind(ctx, v, c)
	}
	if !claims.SaysClass(c) {
		if sc := storage.DefaultClass(b.classes.List("", nil)); sc != nil {
			c = c.DeepCopy()
			c.Spec.StorageClassName = &sc.Name
			_, err := b.claims.Update(ctx, c)
			b.metrics.gaveClass(err)
			return err
		}
	}
	switch _, placed := c.Annotations[claims.SelectedNode]; {
	case delayed && !placed:
		b.waitForPod(c)
	case class != "":
		return b.provision(ctx, c, class)
	default:
		b.events.Event(c, corev1.EventTypeNormal, "FailedBinding", "no persistent volumes available for this claim and no storage class is set")
	}
	return b.pending(ctx, c)
}

// find is the best volume for a claim: one that is reserved for it, or a free one
// unless it waits for a pod.
func (b *binder) find(c *corev1.PersistentVolumeClaim, delayed bool) (*corev1.PersistentVolume, error) {
	wish, err := claims.WishOf(c)
	if err != nil {
		return nil, err
	}
	suited := b.volumes.ByIndex(core.IndexClaim, cache.Key(c.Namespace, c.Name))
	suited = slices.DeleteFunc(suited, func(v *corev1.PersistentVolume) bool { return !wish.Kept(v) })
	if len(suited) == 0 && !delayed {
		suited = b.volumes.ByIndex(core.IndexFree, claims.Class(c))
		suited = slices.DeleteFunc(suited, func(v *corev1.PersistentVolume) bool { return !wish.Free(v) })
	}
	if len(suited) == 0 {
		return nil, nil
	}
	return slices.MinFunc(suited, claims.Compare), nil
}

// waitForPod says that a claim is bound when a pod that needs it gets its node.
func (b *binder) waitForPod(c *corev1.PersistentVolumeClaim) {
	var names []string
	for _, p := range b.pods.ByIndex(core.IndexClaim, cache.Key(c.Namespace, c.Name)) {
		if p.Spec.NodeName == "" && !core.PodTerminal(p) {
			names = append(names, p.Name)
		}
	}
	slices.Sort(names)
	switch len(names) {
	case 0:
		b.events.Event(c, corev1.EventTypeNormal, "WaitForFirstConsumer", "waiting for first consumer to be created before binding")
	case 1:
		b.events.Event(c, corev1.EventTypeNormal, "WaitForPodScheduled", fmt.Sprintf("waiting for pod %s to be scheduled", names[0]))
	default:
		b.events.Event(c, corev1.EventTypeNormal, "WaitForPodScheduled", fmt.Sprintf("waiting for pods %s to be scheduled", strings.Join(names, ",")))
	}
}

// provision tells the provisioner of the claim's class to make a volume.
func (b *binder) provision(ctx context.Context, c *corev1.PersistentVolumeClaim, class string) error {
	sc, ok := b.classes.Get("", class)
	if !ok {
		b.events.Event(c, corev1.EventTypeWarning, "ProvisioningFailed", fmt.Sprintf("storageclass.storage.k8s.io %q not found", class))
		return b.pending(ctx, c)
	}
	by, ok := csi.Driver(sc.Provisioner)
	if !ok {
		by = sc.Provisioner
	}
	if claims.BuiltIn(by) {
		b.events.Event(c, corev1.EventTypeWarning, "ProvisioningFailed", "no volume plugin matched name: "+by)
		return b.pending(ctx, c)
	}
	if c.Annotations[claims.Provisioner] != by || c.Annotations[claims.OldProvisioner] != by {
		fresh := c.DeepCopy()
		if fresh.Annotations == nil {
			fresh.Annotations = map[string]string{}
		}
		fresh.Annotations[claims.Provisioner], fresh.Annotations[claims.OldProvisioner] = by, by
		var err error
		if c, err = b.claims.Update(ctx, fresh); err != nil {
			return err
		}
	}
	b.begin(claimKey+cache.Key(c.Namespace, c.Name), provisioning, sc.Provisioner)
	b.events.Event(c, corev1.EventTypeNormal, "ExternalProvisioning", fmt.Sprintf("Waiting for a volume to be created either by the external provisioner '%s' or manually by the system administrator. "+
		"If volume creation is delayed, please verify that the provisioner is running and correctly registered.", by))
	return b.pending(ctx, c)
}

// chosen binds a claim to the volume that a person has named in it.
func (b *binder) chosen(ctx context.Context, c *corev1.PersistentVolumeClaim) error {
	v, ok := b.volumes.Get("", c.Spec.VolumeName)
	switch {
	case !ok:
		return b.pending(ctx, c)
	case v.Spec.ClaimRef == nil:
		wish, err := claims.WishOf(c)
		if err == nil {
			err = wish.Check(v)
		}
		if err != nil {
			b.events.Event(c, corev1.EventTypeWarning, "VolumeMismatch", fmt.Sprintf("Cannot bind to requested volume %q: %s", v.Name, err))
			return b.pending(ctx, c)
		}
		return b.bind(ctx, v, c)
	case claims.Reserved(v, c):
		return b.bind(ctx, v, c)
	}
	if _, ours := c.Annotations[claims.BoundByController]; ours {
		return fmt.Errorf("invalid binding of claim %s/%s to volume %q: volume already claimed by %s/%s",
			c.Namespace, c.Name, v.Name, v.Spec.ClaimRef.Namespace, v.Spec.ClaimRef.Name)
	}
	b.events.Event(c, corev1.EventTypeWarning, "FailedBinding", fmt.Sprintf("volume %q already bound to a different claim.", v.Name))
	return b.pending(ctx, c)
}

// bound looks whether a claim that was bound still has its volume.
func (b *binder) bound(ctx context.Context, c *corev1.PersistentVolumeClaim) error {
	if c.Spec.VolumeName == "" {
		return b.lost(ctx, c, "ClaimLost", "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!")
	}
	v, ok := b.volumes.Get("", c.Spec.VolumeName)
	switch {
	case !ok:
		return b.lost(ctx, c, "ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!")
	case v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID == c.UID:
		return b.bind(ctx, v, c)
	}
	return b.lost(ctx, c, "ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly")
}
