package attachdetach

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/core/claims"
	"github.com/kemudi/kemudi/internal/api/core/csi"
	"github.com/kemudi/kemudi/internal/api/storage"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/controller"
)

// subject is a volume, who needs it and where it is attached.
type subject struct {
	name           corev1.UniqueVolumeName
	driver, handle string
	of             *corev1.PersistentVolume               // as its driver knows it; nil: there is no such volume, nor a pod with it
	inline         bool                                   // it stands in its pods
	pods           map[string][]*corev1.Pod               // that need it, by node, the oldest first
	attachments    map[string]*storagev1.VolumeAttachment // by node
}

// attachment is the name of the volume's attachment to a node.
func (s *subject) attachment(node string) string {
	return storage.AttachmentName(s.handle, s.driver, node)
}

// memory is what has been of a volume. It is for who reconciles the volume.
type memory struct {
	nodes            map[string]*past
	wanted, attached int // how many of them need it and have it, as the metrics say
}

// past is what has been of a volume on a node, as far as the API does not say it. It begins anew after a restart.
type past struct {
	phase    phase
	since    time.Time // of the phase, or of when the pods were told last
	began    time.Time // of the phase, as far as an attacher is to do something
	unwanted time.Time // since when; zero: it is wanted
	awaited  bool
	news     string // what was told of the attacher's failure
	told     bool   // that another node has the volume
}

// volume brings a volume to where it is needed, and away from where it is not.
func (r *reconciler) volume(ctx context.Context, name corev1.UniqueVolumeName) (controller.Next, error) {
	driver, handle, ok := csi.Split(name)
	if !ok {
		return controller.Done, nil
	}
	s := &subject{name: name, driver: driver, handle: handle, pods: map[string][]*corev1.Pod{}, attachments: map[string]*storagev1.VolumeAttachment{}}
	r.look(s)
	d, _ := r.drivers.Get("", driver)
	v := volume{exclusive: s.of != nil && exclusive(s.of), unneeded: !storage.Attaches(d), patient: r.o.Patient}
	has, now := r.past(s), time.Now()
	for _, node := range s.order() {
		v.places = append(v.places, r.place(s, node, has[node], now))
	}
	steps, again := v.next()
	for _, step := range steps {
		if err := r.act(ctx, s, step, has[step.node]); err != nil {
			return controller.Done, err
		}
	}
	if again > 0 {
		return controller.After(again), nil
	}
	return controller.Done, nil
}

// look gathers who needs a volume, and where it is attached. Several PersistentVolumes may stand for it.
func (r *reconciler) look(s *subject) {
	volumes := r.volumes.ByIndex(core.IndexCSI, string(s.name))
	slices.SortFunc(volumes, func(a, b *corev1.PersistentVolume) int { return cmp.Compare(a.Name, b.Name) })
	for _, v := range volumes {
		r.take(s, v.Name)
		if c := r.claimOf(v); c != nil {
			s.of = core.Attachable(v)
			for _, p := range r.pods.ByIndex(core.IndexClaim, cache.Key(c.Namespace, c.Name)) {
				if claims.UsedBy(c, p) {
					r.needs(s, p)
				}
			}
		}
	}
	r.take(s, string(s.name))
	for _, p := range r.pods.ByIndex(core.IndexCSI, string(s.name)) {
		for i := range p.Spec.Volumes {
			if v := csi.Inline(&p.Spec.Volumes[i], p.Namespace); s.of == nil && v != nil && keyOf(v) == volumeKey+string(s.name) {
				s.of, s.inline = v, true
			}
		}
		r.needs(s, p)
	}
	for _, pods := range s.pods {
		slices.SortFunc(pods, older)
	}
}

// take notes the attachments that have a volume by one of its names.
func (r *reconciler) take(s *subject, volume string) {
	for _, a := range r.attachments.ByIndex(storage.IndexVolume, volume) {
		if a.Spec.Attacher == s.driver && a.Name == s.attachment(a.Spec.NodeName) { // A4
			s.attachments[a.Spec.NodeName] = a
		}
	}
}

// needs notes that a pod needs the volume, if it does.
func (r *reconciler) needs(s *subject, p *corev1.Pod) {
	if p.Spec.NodeName == "" {
		return
	}
	if ended(p) {
		if n, ok := r.nodes.Get("", p.Spec.NodeName); !ok || n.Annotations[keepsAnnotation] != "true" {
			return
		}
	}
	s.pods[p.Spec.NodeName] = append(s.pods[p.Spec.NodeName], p)
}

// claimOf is the claim that a volume is bound to, and that says so too; nil: there is none.
func (r *reconciler) claimOf(v *corev1.PersistentVolume) *corev1.PersistentVolumeClaim {
	ref := v.Spec.ClaimRef
	if ref == nil {
		return nil
	}
	c, ok := r.claims.Get(ref.Namespace, ref.Name)
	if !ok || c.UID != ref.UID || c.Spec.VolumeName != v.Name || c.Status.Phase != corev1.ClaimBound {
		return nil
	}
	return c
}

func older(a, b *corev1.Pod) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// order are the nodes that the volume is about: those whose pods need it, in the order of these, then the others.
func (s *subject) order() []string {
	nodes := slices.SortedFunc(maps.Keys(s.pods), func(a, b string) int { return older(s.pods[a][0], s.pods[b][0]) })
	for _, node := range slices.Sorted(maps.Keys(s.attachments)) {
		if s.pods[node] == nil {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// exclusive reports whether only one node may have a volume at a time. One that does not say how it is used
// is left to its driver.
func exclusive(v *corev1.PersistentVolume) bool {
	modes := v.Spec.AccessModes
	return len(modes) > 0 && !slices.Contains(modes, corev1.ReadWriteMany) && !slices.Contains(modes, corev1.ReadOnlyMany)
}

// past is what has been of a volume on the nodes that it is about now; what was of others is forgotten.
func (r *reconciler) past(s *subject) map[string]*past {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, is := r.mu.volumes[s.name], map[string]*past{}
	if m == nil {
		m = &memory{}
		r.mu.volumes[s.name] = m
	}
	for _, node := range s.order() {
		if is[node] = m.nodes[node]; is[node] == nil {
			is[node] = &past{}
		}
	}
	for node := range m.nodes {
		if is[node] == nil {
			delete(r.mu.leaving, s.attachment(node))
			r.measure(s, m.nodes[node], absent)
		}
	}
	r.metrics.count(s, m, len(s.pods), len(s.attachments))
	if m.nodes = is; len(is) == 0 {
		delete(r.mu.volumes, s.name)
	}
	return is
}

// place is how things stand on a node, and brings up to date what has been.
func (r *reconciler) place(s *subject, name string, has *past, now time.Time) place {
	p := place{node: name, wanted: len(s.pods[name]) > 0, inUse: true}
	if n, ok := r.nodes.Get("", name); ok {
		_, p.managed = n.Annotations[storage.ManagedAnnotation]
		p.inUse, p.ready, p.outOfService = slices.Contains(n.Status.VolumesInUse, s.name), core.NodeIsReady(n), outOfService(n)
	}
	a := s.attachments[name]
	p.phase = phaseOf(a)
	if has.phase != p.phase {
		r.measure(s, has, p.phase)
		has.phase, has.since, has.began = p.phase, now, now
	}
	switch p.phase {
	case absent:
		has.news = ""
	case asked:
		has.awaited, has.told = true, false
		if e := a.Status.AttachError; e != nil && said(e) != has.news {
			p.news = said(e)
		}
	case done:
		has.news, has.told = "", false
	case leaving:
		if e := a.Status.DetachError; e != nil && said(e) != has.news {
			has.news = said(e)
			r.metrics.failed(s.driver, detaching, has.began)
		}
	}
	if p.wanted {
		has.unwanted = time.Time{}
	} else if has.unwanted.IsZero() {
		has.unwanted = now
	}
	if p.phase != done && p.phase != asked {
		r.left(s.attachment(name))
	}
	if !has.unwanted.IsZero() {
		p.unwanted = now.Sub(has.unwanted)
	}
	p.silent, p.awaited, p.told = now.Sub(has.since), has.awaited, has.told
	return p
}

// measure notes how long it has taken that a volume has come to another phase on a node.
func (r *reconciler) measure(s *subject, has *past, now phase) {
	switch {
	case has.phase == asked && now == done:
		r.metrics.done(s.driver, attaching, has.began)
	case has.phase == leaving && now == absent:
		r.metrics.done(s.driver, detaching, has.began)
	case has.phase != absent && now == absent: // nobody has held it up
		r.metrics.done(s.driver, detaching, time.Now())
	}
}

func phaseOf(a *storagev1.VolumeAttachment) phase {
	switch {
	case a == nil:
		return absent
	case a.DeletionTimestamp != nil:
		return leaving
	case a.Status.Attached:
		return done
	}
	return asked
}

// said is what an attacher says and when, by which it is told apart from what it said before.
func said(e *storagev1.VolumeError) string {
	return e.Time.UTC().Format(time.RFC3339) + " " + e.Message
}

// act does one thing about a volume on a node.
func (r *reconciler) act(ctx context.Context, s *subject, step step, has *past) error {
	a := s.attachments[step.node]
	switch step.act {
	case attach:
		return r.attach(ctx, s, step.node)
	case detach, detachLost, detachBroken:
		return r.detach(ctx, s.name, a, step.act)
	case tellAttached:
		has.awaited = false
		r.tellSuccess(s, step.node)
	case tellFailed:
		has.news, has.since = said(a.Status.AttachError), time.Now()
		r.metrics.failed(s.driver, attaching, has.began)
		r.tellFailure(s, step.node, a.Status.AttachError.Message)
	case tellSilent:
		has.since = time.Now()
		r.metrics.failed(s.driver, attaching, has.began)
		r.tellFailure(s, step.node, fmt.Sprintf("timed out waiting for external-attacher of %s CSI driver to attach volume %s", s.driver, s.handle))
	case tellLeaving:
		has.since = time.Now()
		r.tellFailure(s, step.node, "volume attachment is being deleted")
	case tellElsewhere:
		has.told = true
		r.tellElsewhere(s, step.node)
	}
	return nil
}

// attach asks for a volume on a node.
func (r *reconciler) attach(ctx context.Context, s *subject, node string) error {
	source := storagev1.VolumeAttachmentSource{PersistentVolumeName: &s.of.Name}
	if s.inline {
		source = storagev1.VolumeAttachmentSource{InlineVolumeSpec: s.of.Spec.DeepCopy()}
	}
	_, err := r.attachments.Create(ctx, &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: s.attachment(node)},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: s.driver, NodeName: node, Source: source},
	})
	if err == nil || apierrors.IsAlreadyExists(err) {
		return nil
	}
	r.tellFailure(s, node, fmt.Sprintf("kubernetes.io/csi: attacher.Attach failed: %v", err))
	return fmt.Errorf("attach volume %s to node %s: %w", s.of.Name, node, err)
}

// detach takes a volume from a node, unless it turns out that the node uses it and may go on to do so.
func (r *reconciler) detach(ctx context.Context, name corev1.UniqueVolumeName, a *storagev1.VolumeAttachment, how act) (err error) {
	r.leave(a.Name)
	defer func() {
		if err != nil {
			r.left(a.Name)
		}
	}()
	n, err := r.report(ctx, a.Spec.NodeName)
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return err
	case how == detach && slices.Contains(n.Status.VolumesInUse, name): // it was faster (A3); its own change brings us back
		r.left(a.Name)
		_, err = r.report(ctx, a.Spec.NodeName)
		return err
	}
	if err := r.attachments.DeleteByUID(ctx, a); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("detach volume from node %s: %w", a.Spec.NodeName, err)
	}
	switch how {
	case detachLost:
		r.metrics.forced.WithLabelValues("timeout").Inc()
	case detachBroken:
		r.metrics.forced.WithLabelValues("out-of-service").Inc()
	}
	return nil
}
