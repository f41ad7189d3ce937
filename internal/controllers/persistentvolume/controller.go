package persistentvolume

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/core/claims"
	"github.com/kemudi/kemudi/internal/api/storage"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/resource"
)

// Keys are those of claims and of volumes.
const (
	claimKey  = "claim "
	volumeKey = "volume "
)

// New returns the binder. It has one worker: two could choose the same volume.
func New(o Options) *controller.Controller {
	pods := controller.Mapped(core.Pods, byRecycler)
	pods.SkipNew = true // one that an earlier run has made is in the way when the volume's turn comes
	pods.Same = func(before, after resource.Object) bool {
		return before.(*corev1.Pod).Status.Phase == after.(*corev1.Pod).Status.Phase
	}
	return controller.NewKeyed(controller.Keyed{
		Name:    "persistent-volume-binder",
		Source:  "persistentvolume-controller",
		Workers: 1,
		Watches: []controller.Watch{
			controller.Mapped(core.PersistentVolumeClaims, byClaim),
			controller.Mapped(core.PersistentVolumes, byVolume),
			controller.Mapped(storage.StorageClasses, byClass),
			pods,
		},
		Writes: []controller.Permission{
			controller.Update(core.PersistentVolumeClaims.Def), controller.UpdateStatus(core.PersistentVolumeClaims.Def),
			controller.Update(core.PersistentVolumes.Def), controller.UpdateStatus(core.PersistentVolumes.Def),
			controller.Create(core.Pods.Def), controller.Delete(core.Pods.Def),
			{Verb: "list", Def: core.Events.Def}, // of pods that empty volumes
		},
		Setup: func(k *controller.Kit) func(ctx context.Context, key string) (controller.Next, error) {
			b := &binder{
				o: o, events: k.Events, claims: controller.For(k, core.PersistentVolumeClaims), volumes: controller.For(k, core.PersistentVolumes),
				classes: controller.For(k, storage.StorageClasses), pods: controller.For(k, core.Pods), told: client.For(k.Transport(), core.Events),
				metrics: controller.OwnMetrics(k, newMetrics), recycling: map[string]*recycling{}, begun: map[string]begun{},
			}
			b.metrics.binder.Store(b)
			return b.reconcile
		},
	})
}

// binder is one run of the controller.
type binder struct {
	o       Options
	events  client.EventSink
	claims  controller.Client[*corev1.PersistentVolumeClaim]
	volumes controller.Client[*corev1.PersistentVolume]
	classes controller.Client[*storagev1.StorageClass]
	pods    controller.Client[*corev1.Pod]
	told    client.Client[*corev1.Event]
	metrics *metrics

	begun     map[string]begun      // what provisioners are to do, by key; the one worker's
	recycling map[string]*recycling // volumes that are being emptied, by name; the one worker's
}

func (b *binder) reconcile(ctx context.Context, key string) (controller.Next, error) {
	if name, ok := strings.CutPrefix(key, volumeKey); ok {
		if v, ok := b.volumes.Get("", name); ok {
			return b.volume(ctx, v)
		}
		if err := b.endRecycling(ctx, name); err != nil {
			return controller.Done, err
		}
		delete(b.recycling, name)
		b.ended(key, deleting)
		return controller.Done, nil
	}
	namespace, name, _ := strings.Cut(strings.TrimPrefix(key, claimKey), "/")
	if c, ok := b.claims.Get(namespace, name); ok {
		return controller.Done, b.claim(ctx, c)
	}
	delete(b.begun, key)
	return controller.Done, nil
}

// byClaim wakes a claim, its volume and those that are reserved for it.
func byClaim(k *controller.Kit, c *corev1.PersistentVolumeClaim) []string {
	id := cache.Key(c.Namespace, c.Name)
	keys := []string{claimKey + id}
	if c.Spec.VolumeName != "" {
		keys = append(keys, volumeKey+c.Spec.VolumeName)
	}
	for _, v := range controller.For(k, core.PersistentVolumes).ByIndex(core.IndexClaim, id) {
		if v.Name != c.Spec.VolumeName {
			keys = append(keys, volumeKey+v.Name)
		}
	}
	return keys
}

// byVolume wakes a volume, the claims that name it or that it names, and, if it is
// free, those that could have it.
func byVolume(k *controller.Kit, v *corev1.PersistentVolume) []string {
	keys := []string{volumeKey + v.Name}
	if ref := v.Spec.ClaimRef; ref != nil {
		keys = append(keys, claimKey+cache.Key(ref.Namespace, ref.Name))
	}
	all := controller.For(k, core.PersistentVolumeClaims)
	for _, c := range all.ByIndex(core.IndexVolume, v.Name) {
		keys = append(keys, claimKey+cache.Key(c.Namespace, c.Name))
	}
	class := claims.VolumeClass(v)
	if v.Spec.ClaimRef != nil || v.Status.Phase != corev1.VolumeAvailable || waits(controller.For(k, storage.StorageClasses), class) {
		return keys
	}
	for _, c := range all.ByIndex(core.IndexUnbound, class) {
		keys = append(keys, claimKey+cache.Key(c.Namespace, c.Name))
	}
	return keys
}

// byClass wakes the claims of a class that have no volume, and those of no class if
// this is what they get.
func byClass(k *controller.Kit, sc *storagev1.StorageClass) (keys []string) {
	all := controller.For(k, core.PersistentVolumeClaims)
	for _, c := range all.ByIndex(core.IndexUnbound, sc.Name) {
		keys = append(keys, claimKey+cache.Key(c.Namespace, c.Name))
	}
	if !storage.IsDefaultClass(sc) {
		return keys
	}
	for _, c := range all.ByIndex(core.IndexUnbound, "") {
		if !claims.SaysClass(c) {
			keys = append(keys, claimKey+cache.Key(c.Namespace, c.Name))
		}
	}
	return keys
}

// waits reports whether the claims of a class are bound when a pod needs them.
func waits(classes controller.Client[*storagev1.StorageClass], name string) bool {
	sc, ok := classes.Get("", name)
	return name != "" && ok && ptr.Deref(sc.VolumeBindingMode, storagev1.VolumeBindingImmediate) == storagev1.VolumeBindingWaitForFirstConsumer
}
