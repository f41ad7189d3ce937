package attachdetach

import (
	"context"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/core/claims"
	"github.com/kemudi/kemudi/internal/api/core/csi"
	"github.com/kemudi/kemudi/internal/api/storage"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/resource"
)

// Keys are those of volumes, by the names that nodes have for them, of nodes, and of attachments whose
// volume is not there.
const (
	volumeKey = "volume "
	nodeKey   = "node "
	strayKey  = "attachment "
)

// keepsAnnotation is of nodes that keep the volumes of pods that have ended.
const keepsAnnotation = "volumes.kubernetes.io/keep-terminated-pod-volumes"

// New returns the controller.
func New(o Options) *controller.Controller {
	pods := controller.Mapped(core.Pods, byPod)
	pods.Same = samePod
	nodes := controller.Mapped(core.Nodes, byNode)
	nodes.Same = sameNode
	drivers := controller.Mapped(storage.CSIDrivers, byDriver)
	drivers.Same = func(before, after resource.Object) bool {
		return storage.Attaches(before.(*storagev1.CSIDriver)) == storage.Attaches(after.(*storagev1.CSIDriver))
	}
	return controller.NewKeyed(controller.Keyed{
		Name:   "attachdetach-controller",
		Source: "attachdetach-controller",
		Watches: []controller.Watch{
			pods, nodes, drivers, controller.Mapped(core.PersistentVolumeClaims, byClaim), controller.Mapped(core.PersistentVolumes, byVolume),
			controller.Mapped(storage.VolumeAttachments, byAttachment),
		},
		Writes: []controller.Permission{
			controller.Create(storage.VolumeAttachments.Def), controller.Delete(storage.VolumeAttachments.Def), controller.UpdateStatus(core.Nodes.Def),
		},
		Workers: 10,
		Setup: func(k *controller.Kit) func(ctx context.Context, key string) (controller.Next, error) {
			r := &reconciler{
				o: o, events: k.Events, metrics: controller.OwnMetrics(k, newMetrics),
				pods: controller.For(k, core.Pods), nodes: controller.For(k, core.Nodes), claims: controller.For(k, core.PersistentVolumeClaims),
				volumes: controller.For(k, core.PersistentVolumes), drivers: controller.For(k, storage.CSIDrivers),
				attachments: controller.For(k, storage.VolumeAttachments),
			}
			r.metrics.volumes.Reset() // of an earlier run
			r.mu.volumes, r.mu.leaving = map[corev1.UniqueVolumeName]*memory{}, map[string]bool{}
			return r.reconcile
		},
	})
}

// reconciler is one run of the controller.
type reconciler struct {
	o           Options
	events      client.EventSink
	metrics     *metrics
	pods        controller.Client[*corev1.Pod]
	nodes       controller.Client[*corev1.Node]
	claims      controller.Client[*corev1.PersistentVolumeClaim]
	volumes     controller.Client[*corev1.PersistentVolume]
	drivers     controller.Client[*storagev1.CSIDriver]
	attachments controller.Client[*storagev1.VolumeAttachment]
	mu          struct {
		sync.Mutex
		volumes map[corev1.UniqueVolumeName]*memory
		leaving map[string]bool // attachments, by name, that are being taken away (A3)
	}
}

func (r *reconciler) reconcile(ctx context.Context, key string) (controller.Next, error) {
	if name, ok := strings.CutPrefix(key, volumeKey); ok {
		return r.volume(ctx, corev1.UniqueVolumeName(name))
	}
	if name, ok := strings.CutPrefix(key, nodeKey); ok {
		return controller.Done, r.node(ctx, name)
	}
	return controller.Done, r.stray(ctx, strings.TrimPrefix(key, strayKey))
}

// byPod wakes the volumes that a pod has attached.
func byPod(k *controller.Kit, p *corev1.Pod) (keys []string) {
	if p.Spec.NodeName == "" {
		return nil
	}
	for _, name := range claims.Of(p) {
		if c, ok := controller.For(k, core.PersistentVolumeClaims).Get(p.Namespace, name); ok {
			keys = append(keys, byClaim(k, c)...)
		}
	}
	for i := range p.Spec.Volumes {
		if v := csi.Inline(&p.Spec.Volumes[i], p.Namespace); v != nil {
			keys = append(keys, keyOf(v))
		}
	}
	return keys
}

// byClaim wakes the volume of a claim.
func byClaim(k *controller.Kit, c *corev1.PersistentVolumeClaim) []string {
	if v, ok := controller.For(k, core.PersistentVolumes).Get("", c.Spec.VolumeName); ok {
		if v := core.Attachable(v); v != nil {
			return []string{keyOf(v)}
		}
	}
	return nil
}

// byVolume wakes a volume and, if it is gone, what is left of its attachments.
func byVolume(k *controller.Kit, v *corev1.PersistentVolume) (keys []string) {
	attachable := core.Attachable(v)
	if attachable == nil {
		return nil
	}
	keys = append(keys, keyOf(attachable))
	if _, ok := controller.For(k, core.PersistentVolumes).Get("", v.Name); !ok {
		for _, a := range controller.For(k, storage.VolumeAttachments).ByIndex(storage.IndexVolume, v.Name) {
			keys = append(keys, strayKey+a.Name)
		}
	}
	return keys
}

// byAttachment wakes the volume that is attached and the node that is told of it.
func byAttachment(k *controller.Kit, a *storagev1.VolumeAttachment) []string {
	keys := []string{nodeKey + a.Spec.NodeName}
	if v := volumeOf(controller.For(k, core.PersistentVolumes), a); v != nil {
		return append(keys, keyOf(v))
	}
	return append(keys, strayKey+a.Name)
}

// byNode wakes a node, what is attached to it and what is to be.
func byNode(k *controller.Kit, n *corev1.Node) []string {
	keys := []string{nodeKey + n.Name}
	for _, a := range controller.For(k, storage.VolumeAttachments).ByIndex(storage.IndexNode, n.Name) {
		keys = append(keys, byAttachment(k, a)...)
	}
	for _, p := range controller.For(k, core.Pods).ByIndex("spec.nodeName", n.Name) {
		keys = append(keys, byPod(k, p)...)
	}
	return keys
}

// byDriver wakes the volumes of a driver.
func byDriver(k *controller.Kit, d *storagev1.CSIDriver) (keys []string) {
	for _, v := range controller.For(k, core.PersistentVolumes).ByIndex(core.IndexCSI, d.Name) {
		keys = append(keys, byVolume(k, v)...)
	}
	for _, p := range controller.For(k, core.Pods).ByIndex(core.IndexCSI, d.Name) {
		keys = append(keys, byPod(k, p)...)
	}
	return keys
}

// keyOf is the key of a volume of a driver.
func keyOf(v *corev1.PersistentVolume) string {
	return volumeKey + string(csi.Name(v.Spec.CSI.Driver, v.Spec.CSI.VolumeHandle))
}

// volumeOf is the volume that an attachment of this controller's is of, as its driver knows it; nil: it is not
// there, or the attachment is another's (A4).
func volumeOf(volumes controller.Client[*corev1.PersistentVolume], a *storagev1.VolumeAttachment) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{}
	if name := a.Spec.Source.PersistentVolumeName; name != nil {
		there, ok := volumes.Get("", *name)
		if !ok {
			return nil
		}
		if v = core.Attachable(there); v == nil {
			return nil
		}
	} else if a.Spec.Source.InlineVolumeSpec != nil {
		v.Spec = *a.Spec.Source.InlineVolumeSpec
	}
	if v.Spec.CSI == nil || a.Name != storage.AttachmentName(v.Spec.CSI.VolumeHandle, a.Spec.Attacher, a.Spec.NodeName) {
		return nil
	}
	return v
}

// samePod reports whether a change of a pod changes nothing about what it needs.
func samePod(before, after resource.Object) bool {
	a, b := before.(*corev1.Pod), after.(*corev1.Pod)
	return a.Spec.NodeName == b.Spec.NodeName && ended(a) == ended(b)
}

// sameNode reports whether a change of a node changes nothing about its volumes.
func sameNode(before, after resource.Object) bool {
	a, b := before.(*corev1.Node), after.(*corev1.Node)
	return slices.Equal(a.Status.VolumesInUse, b.Status.VolumesInUse) && slices.Equal(a.Status.VolumesAttached, b.Status.VolumesAttached) &&
		core.NodeIsReady(a) == core.NodeIsReady(b) && outOfService(a) == outOfService(b) &&
		a.Annotations[storage.ManagedAnnotation] == b.Annotations[storage.ManagedAnnotation] && a.Annotations[keepsAnnotation] == b.Annotations[keepsAnnotation]
}

// ended reports whether a pod needs its volumes no more: nothing of it runs, or will.
func ended(p *corev1.Pod) bool {
	if core.PodTerminal(p) || p.DeletionTimestamp == nil {
		return core.PodTerminal(p)
	}
	return !slices.ContainsFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.State.Terminated == nil && s.State.Waiting == nil
	})
}

// outOfService reports whether people say that a node is down for good.
func outOfService(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}
