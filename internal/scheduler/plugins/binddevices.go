package plugins

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/dra"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

// claimTries is how often a claim is written that others write at the same time: each of
// those who may use it comes before at most once.
const claimTries = resourcev1.ResourceClaimReservedForMaxSize + 5

// errDevicesLate is the end of a wait for devices by the clock.
var errDevicesLate = errors.New("device binding timeout")

// claiming is what is to be done about the claims of a pod that has its place.
type claiming struct {
	pod      *corev1.Pod
	claims   []*bindingClaim
	snapshot *snapshot.Snapshot
	over     bool // the pod is not bound after all
	writing  bool // Do runs
	wrote    bool // or it may have
}

// bindingClaim is a claim that the pod is to use. Its owner is the scheduler, or Do
// while that runs.
type bindingClaim struct {
	obj        *resourcev1.ResourceClaim
	promised   types.UID                    // to whom; empty: to nobody, or not any more. Others may hold the promise too
	allocation *resourcev1.AllocationResult // what was promised; it is written unless one of the others was faster
	mappings   []corev1.ContainerExtendedResourceRequest
	written    *resourcev1.ResourceClaim // as it was written; nil: it was not, as far as is known
	doubtful   bool                      // whether it was written is not known
}

func (b *bindingClaim) key() string { return b.obj.Namespace + "/" + b.obj.Name }

// made reports whether the claim is made for extended resources, if the pod is bound.
func (b *bindingClaim) made() bool { return b.mappings != nil }

// Reserve promises the pod's claims what was found for them, so that no other pod is
// given the same devices.
func (p *dynamicResources) Reserve(c *Cycle, n *snapshot.Node) *Reason {
	x := &claiming{pod: c.Pod.Obj, snapshot: c.Snapshot}
	var shared []types.UID
	for i, claim := range p.claims {
		b := &bindingClaim{obj: claim.Obj}
		if promise := p.promises[i]; promise != nil {
			b.promised, b.allocation = claim.Obj.UID, promise.Allocation
			shared = append(shared, b.promised)
		}
		x.claims = append(x.claims, b)
	}
	plan, why := p.planFor(c, n)
	if why != nil {
		return why
	}
	if plan != nil {
		results, err := c.Snapshot.Devices().Allocate(plan, n.Obj, uuid.NewUUID)
		if err != nil {
			return p.refuse(err)
		}
		toAllocate := p.toAllocate
		if v := p.extended.variant(n); v != nil {
			toAllocate = append(slices.Clip(toAllocate), v.claim)
			x.claims = append(x.claims, &bindingClaim{obj: v.claim, mappings: v.mappings})
		}
		for i, obj := range toAllocate {
			b := x.claims[slices.IndexFunc(x.claims, func(b *bindingClaim) bool { return b.obj == obj })]
			b.promised, b.allocation = obj.UID, &results[i]
			c.Snapshot.PromiseDevices(obj.UID, b.key(), b.allocation)
		}
	}
	for _, claim := range shared {
		c.Snapshot.ShareDevices(claim)
	}
	if len(x.claims) > 0 {
		p.preparing[c.Pod.Obj.UID] = x
	}
	return nil
}

// Unreserve takes the promises back, or if claims are being written, does so when it is known
// what became of that.
func (p *dynamicResources) Unreserve(pod *snapshot.Pod, _ *snapshot.Node) {
	x := p.preparing[pod.Obj.UID]
	if x == nil {
		return
	}
	x.over = true
	if !x.writing {
		x.settle()
	}
}

// PostBind ends the promises: they were kept.
func (p *dynamicResources) PostBind(pod *snapshot.Pod, _ *snapshot.Node) {
	if x := p.preparing[pod.Obj.UID]; x != nil {
		delete(p.preparing, pod.Obj.UID)
		x.settle()
	}
}

// settle ends the promises of claims as far as is known what became of them, each once: another pod
// may promise the claim something then. It reports whether devices came free.
func (x *claiming) settle() (freed bool) {
	for _, b := range x.claims {
		switch {
		case b.promised == "" || b.doubtful:
		case b.written != nil:
			if b.written.UID != b.promised { // it has its own now
				x.snapshot.PromiseDevices(b.written.UID, b.written.Namespace+"/"+b.written.Name, b.allocation)
				x.snapshot.RecallDevices(b.promised)
			}
			freed = x.snapshot.KeepDevices(b.written.UID, resource.Revision(b.written)) || freed
			b.promised = ""
		default:
			freed = x.snapshot.RecallDevices(b.promised) || freed
			b.promised = ""
		}
	}
	return freed
}

// PreBind writes into claims what they got and that the pod may use them, and waits until
// that is seen, and what is to be prepared is.
func (p *dynamicResources) PreBind(c *Cycle, n *snapshot.Node) Work {
	x := p.preparing[c.Pod.Obj.UID]
	if x == nil {
		return Work{}
	}
	w := Work{Wait: Wait{For: p.timeout, Late: errDevicesLate, Over: func() (bool, error) { return x.ready(p) }}}
	if drivers := x.waitsFor(); len(drivers) > 0 {
		w.Wait.Note = &Note{"BindingConditionsPending", "waiting for binding conditions for device on node " + n.Name}
		w.Wait.Drivers = drivers
	}
	if !slices.ContainsFunc(x.claims, func(b *bindingClaim) bool { return b.promised != "" || !dra.Reserved(b.obj, x.pod.UID) }) {
		return w
	}
	x.writing, x.wrote = true, true
	w.Do = x.write
	w.Done = func(error) bool {
		x.writing = false
		if x.over {
			return x.settle()
		}
		return false
	}
	return w
}

// waitsFor is the drivers whose devices have to be prepared first.
func (x *claiming) waitsFor() (drivers []string) {
	for _, b := range x.claims {
		a := b.allocation
		if a == nil {
			a = b.obj.Status.Allocation
		}
		for i := range a.Devices.Results {
			if r := &a.Devices.Results[i]; len(r.BindingConditions) > 0 && !slices.Contains(drivers, r.Driver) {
				drivers = append(drivers, r.Driver)
			}
		}
	}
	slices.Sort(drivers)
	return drivers
}

// write writes all claims, one after the other.
func (x *claiming) write(ctx context.Context, t client.Transport) error {
	for _, b := range x.claims {
		if b.promised == "" && dra.Reserved(b.obj, x.pod.UID) {
			continue
		}
		if err := x.bind(ctx, t, b); err != nil {
			return err
		}
	}
	return nil
}

// bind writes one claim. Each write names the revision that was read; if somebody was faster,
// it is read again.
func (x *claiming) bind(ctx context.Context, t client.Transport, b *bindingClaim) error {
	all := client.For(t, dra.ResourceClaims)
	obj := b.obj
	if b.made() {
		fresh := obj.DeepCopy()
		fresh.UID = ""
		made, err := all.Create(ctx, fresh)
		if err != nil {
			return fmt.Errorf("create claim for extended resources %s: %w", obj.Namespace+"/"+obj.GenerateName, err)
		}
		b.written, obj = made, made
	}
	for try := 1; ; try++ {
		err := x.reserve(ctx, all, b, obj)
		if err == nil {
			break
		}
		if !apierrors.IsConflict(err) || try == claimTries {
			return err
		}
		if obj, err = all.Get(ctx, obj.Namespace, obj.Name); err != nil {
			return fmt.Errorf("get updated claim %s after conflict: %w", nameOfClaim(b.obj), err)
		}
		if obj.UID != b.obj.UID && !b.made() {
			return fmt.Errorf("claim %s got deleted in the meantime", nameOfClaim(b.obj))
		}
	}
	if !b.made() {
		return nil
	}
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": x.pod.UID}, "status": map[string]any{
		"extendedResourceClaimStatus": corev1.PodExtendedResourceClaimStatus{ResourceClaimName: b.written.Name, RequestMappings: b.mappings},
	}})
	if err != nil {
		return fmt.Errorf("encode status patch: %w", err)
	}
	_, err = client.For(t, core.Pods).Patch(ctx, x.pod.Namespace, x.pod.Name, "status", client.Patch{Type: types.StrategicMergePatchType, Data: data})
	if err != nil {
		return fmt.Errorf("update pod %s/%s ExtendedResourceClaimStatus: %w", x.pod.Namespace, x.pod.Name, err)
	}
	return nil
}

func nameOfClaim(c *resourcev1.ResourceClaim) string { return c.Namespace + "/" + c.Name }

// reserve writes that the pod may use a claim, with what was allocated to it.
func (x *claiming) reserve(ctx context.Context, all client.Client[*resourcev1.ResourceClaim], b *bindingClaim, obj *resourcev1.ResourceClaim) error {
	if obj.DeletionTimestamp != nil {
		return fmt.Errorf("claim %s got deleted in the meantime", nameOfClaim(obj))
	}
	doing := "add reservation to claim"
	fresh := obj.DeepCopy()
	switch a := obj.Status.Allocation; {
	case a == nil && b.allocation == nil:
		return fmt.Errorf("claim %s got deallocated in the meantime", nameOfClaim(obj))
	case a == nil:
		doing = "add allocation and reservation to claim"
		if !slices.Contains(fresh.Finalizers, resourcev1.Finalizer) {
			fresh.Finalizers = append(fresh.Finalizers, resourcev1.Finalizer)
			stored, err := all.Update(ctx, fresh)
			if err != nil {
				return fmt.Errorf("add finalizer to claim %s: %w", nameOfClaim(obj), err)
			}
			fresh = stored.DeepCopy()
		}
		fresh.Status.Allocation = b.allocation.DeepCopy()
	case b.allocation != nil && !equality.Semantic.DeepEqual(a.Devices.Results, b.allocation.Devices.Results):
		return fmt.Errorf("claim %s got allocated elsewhere in the meantime", nameOfClaim(obj))
	}
	if !dra.Reserved(fresh, x.pod.UID) {
		fresh.Status.ReservedFor = append(fresh.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: x.pod.Name, UID: x.pod.UID})
	}
	if fresh.Status.Allocation.AllocationTimestamp == nil {
		fresh.Status.Allocation.AllocationTimestamp = &metav1.Time{Time: time.Now()}
	}
	stored, err := all.UpdateStatus(ctx, fresh)
	if err != nil {
		switch apierrors.ReasonForError(err) {
		case metav1.StatusReasonUnknown, metav1.StatusReasonInternalError, metav1.StatusReasonServerTimeout, metav1.StatusReasonTimeout:
			b.doubtful = true
		}
		return fmt.Errorf("%s %s: %w", doing, nameOfClaim(obj), err)
	}
	b.written = stored
	return nil
}

// ready reports whether the snapshot shows what was written, and all that has to be
// prepared is. It fails if that never will be.
func (x *claiming) ready(p *dynamicResources) (bool, error) {
	for _, b := range x.claims {
		obj := b.obj
		if b.written != nil {
			obj = b.written
		}
		seen := x.snapshot.ResourceClaim(nameOfClaim(obj))
		switch {
		case seen == nil && b.made():
			return false, nil // not yet
		case seen == nil, seen.Obj.UID != obj.UID:
			return false, fmt.Errorf("could not find resource claim %q", nameOfClaim(obj))
		case resource.Revision(seen.Obj) < resource.Revision(obj):
			return false, nil
		case seen.Obj.Status.Allocation == nil:
			return false, fmt.Errorf("claim %s got deallocated in the meantime", nameOfClaim(obj))
		}
		ready, err := prepared(seen.Obj)
		switch {
		case err != nil:
			return false, err
		case !ready && p.expired(seen.Obj):
			return false, errDevicesLate
		case !ready:
			return false, nil
		}
	}
	return true, nil
}

// prepared reports whether all devices of a claim say that pods that use them can be bound.
// It fails if one says that it cannot be.
func prepared(c *resourcev1.ResourceClaim) (bool, error) {
	ready := true
	for i := range c.Status.Allocation.Devices.Results {
		r := &c.Status.Allocation.Devices.Results[i]
		if len(r.BindingConditions) == 0 {
			continue
		}
		conditions := conditionsOf(c, r)
		for _, kind := range r.BindingFailureConditions {
			if cond := apimeta.FindStatusCondition(conditions, kind); cond != nil && cond.Status == metav1.ConditionTrue {
				return false, fmt.Errorf("claim %s binding failed: reason=%s, message=%q", c.Name, cond.Reason, cond.Message)
			}
		}
		for _, kind := range r.BindingConditions {
			ready = ready && apimeta.IsStatusConditionTrue(conditions, kind)
		}
	}
	return ready, nil
}

// conditionsOf is what a claim's status says about one of its devices.
func conditionsOf(c *resourcev1.ResourceClaim, r *resourcev1.DeviceRequestAllocationResult) []metav1.Condition {
	for i := range c.Status.Devices {
		d := &c.Status.Devices[i]
		if d.Driver == r.Driver && d.Pool == r.Pool && d.Device == r.Device && (d.ShareID == nil) == (r.ShareID == nil) && (d.ShareID == nil || *d.ShareID == string(*r.ShareID)) {
			return d.Conditions
		}
	}
	return nil
}

// expired reports whether a claim has waited for its devices as long as it may. This is
// the one thing that is decided by the clock: it goes on where another process stopped.
func (p *dynamicResources) expired(c *resourcev1.ResourceClaim) bool {
	at := c.Status.Allocation.AllocationTimestamp
	return at != nil && !time.Now().Before(at.Add(p.timeout))
}

// late reports whether a claim has devices that cannot be prepared, or not in time.
func (p *dynamicResources) late(c *resourcev1.ResourceClaim) bool {
	if c.Status.Allocation == nil {
		return false
	}
	ready, err := prepared(c)
	return err != nil || !ready && p.expired(c)
}

// Undo takes back what PreBind wrote: that the pod may use its claims, and the claim that
// was made for it.
func (p *dynamicResources) Undo(pod *snapshot.Pod, _ *snapshot.Node) Work {
	x := p.preparing[pod.Obj.UID]
	if x == nil {
		return Work{}
	}
	delete(p.preparing, pod.Obj.UID)
	if !x.wrote {
		return Work{}
	}
	p.undoing[pod.Obj.UID] = struct{}{}
	return Work{Do: x.undo, Done: func(error) bool {
		delete(p.undoing, pod.Obj.UID)
		for _, b := range x.claims {
			if b.written != nil {
				x.snapshot.ExpectResourceClaim(nameOfClaim(b.written), resource.Revision(b.written))
			}
			b.doubtful = false
		}
		x.settle()
		for _, b := range x.claims {
			if b.made() && b.written != nil {
				x.snapshot.EndDevices(b.written.UID)
			}
		}
		return true
	}}
}

func (x *claiming) undo(ctx context.Context, t client.Transport) error {
	all := client.For(t, dra.ResourceClaims)
	var errs []error
	for _, b := range x.claims {
		switch {
		case b.written == nil && !b.doubtful:
		case b.made():
			errs = append(errs, deleteClaim(ctx, all, b.written))
		default:
			data, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": b.obj.UID}, "status": map[string]any{
				"reservedFor": []map[string]any{{"$patch": "delete", "uid": x.pod.UID}},
			}})
			if err != nil {
				return fmt.Errorf("encode status patch: %w", err)
			}
			stored, err := all.Patch(ctx, b.obj.Namespace, b.obj.Name, "status", client.Patch{Type: types.StrategicMergePatchType, Data: data})
			if err == nil {
				b.written = stored
			} else if !apierrors.IsNotFound(err) {
				errs = append(errs, fmt.Errorf("give back claim %s: %w", nameOfClaim(b.obj), err))
			}
		}
	}
	return errors.Join(errs...)
}

// deleteClaim deletes a claim for extended resources that nobody uses.
func deleteClaim(ctx context.Context, all client.Client[*resourcev1.ResourceClaim], obj *resourcev1.ResourceClaim) error {
	for try := 1; ; try++ {
		now, err := all.Get(ctx, obj.Namespace, obj.Name)
		if err == nil && now.UID == obj.UID && slices.Contains(now.Finalizers, resourcev1.Finalizer) {
			now = now.DeepCopy()
			now.Finalizers = slices.DeleteFunc(now.Finalizers, func(f string) bool { return f == resourcev1.Finalizer })
			_, err = all.Update(ctx, now)
		}
		if err == nil {
			err = all.Delete(ctx, obj.Namespace, obj.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &obj.UID}})
		}
		switch {
		case err == nil, apierrors.IsNotFound(err):
			return nil
		case !apierrors.IsConflict(err) || try == claimTries:
			return fmt.Errorf("delete claim %s: %w", nameOfClaim(obj), err)
		}
	}
}

// PostFilter has a claim give back its devices that nobody but the pod uses and that keep it
// from some node; or deletes the claim that an attempt before has left.
func (p *dynamicResources) PostFilter(c *Cycle) (note string, w Work) {
	if p.pod != c.Pod || p.none || p.refused {
		return "", Work{}
	}
	for i, claim := range p.claims {
		if users := claim.Obj.Status.ReservedFor; p.away[i] && (len(users) == 0 || len(users) == 1 && users[0].UID == c.Pod.Obj.UID) {
			return "deallocation of ResourceClaim completed", Work{Do: func(ctx context.Context, t client.Transport) error {
				fresh := claim.Obj.DeepCopy()
				fresh.Status = resourcev1.ResourceClaimStatus{}
				if _, err := client.For(t, dra.ResourceClaims).UpdateStatus(ctx, fresh); err != nil {
					return fmt.Errorf("deallocate claim %s: %w", nameOfClaim(fresh), err)
				}
				return nil
			}}
		}
	}
	if old := p.extended.old; old != nil {
		return "deletion of ResourceClaim completed", Work{Do: func(ctx context.Context, t client.Transport) error {
			return deleteClaim(ctx, client.For(t, dra.ResourceClaims), old.Obj)
		}}
	}
	return "", Work{}
}
