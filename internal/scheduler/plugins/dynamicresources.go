package plugins

import (
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/dra"
	"github.com/kemudi/kemudi/internal/scheduler/devices"
	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

// deviceTimeout is how long a pod keeps its place while devices are prepared, unless
// the profile says otherwise.
const deviceTimeout = 10 * time.Minute

// stepsPerSecond is how many devices a search looks at in a second, about: what a
// profile says in time is a bound in steps, so that equal clusters give equal answers.
const stepsPerSecond = 10_000_000

// dynamicResources finds devices for the resource claims of pods, and for extended resources
// that devices serve. It keeps pods out of the queue whose claims are not there yet. Claims that have
// devices tie their pods to nodes that can use them; if none of those will do, and nobody else
// uses them, they lose them. When a pod has its place its claims are given what was
// found for them there, which binddevices.go does.
type dynamicResources struct {
	plugin                          int
	inUse, cannot, elsewhere, stale *Reason
	reasons                         map[string]*Reason // others, by text
	steps                           int
	timeout                         time.Duration // of what devices need before the binding

	// About the pod at hand.
	pod        *snapshot.Pod
	none       bool // it has to do with no device
	refused    bool // before any node was looked at
	claims     []*snapshot.ResourceClaim
	promises   []*snapshot.DevicePromise // of claims: what others have been promised for them; nil: nothing that they do not say
	failed     []bool                    // of claims: what they have cannot be prepared
	away       []bool                    // of claims: there is a node that cannot use what they have
	toAllocate []*resourcev1.ResourceClaim
	extended   extendedResources
	plan       *devices.Plan // of toAllocate; nil: nothing is to be allocated
	planErr    error         // toAllocate cannot be read
	prefers    bool          // requests have alternatives
	preference map[*snapshot.Node]int64

	preparing map[types.UID]*claiming // of pods that have their place
	undoing   map[types.UID]struct{}  // pods that had one, and whose claims are being given back
}

func newDynamicResources(i int, a *configv1.DynamicResourcesArgs) *dynamicResources {
	p := &dynamicResources{
		plugin:    i,
		inUse:     lasting(i, "resourceclaim in use"),
		cannot:    lasting(i, "cannot allocate all claims"),
		elsewhere: lasting(i, "resourceclaim not available on the node"),
		stale:     lasting(i, "cannot schedule extended resource claim"),
		reasons:   map[string]*Reason{}, preparing: map[types.UID]*claiming{}, undoing: map[types.UID]struct{}{}, preference: map[*snapshot.Node]int64{},
		steps: devices.MaxSteps, timeout: deviceTimeout,
	}
	if a != nil && a.FilterTimeout != nil && a.FilterTimeout.Duration > 0 {
		p.steps = int(min(float64(devices.MaxSteps), a.FilterTimeout.Seconds()*stepsPerSecond))
	}
	if a != nil && a.BindingTimeout != nil {
		p.timeout = a.BindingTimeout.Duration
	}
	return p
}

func (*dynamicResources) Name() string { return "DynamicResources" }

// claimOf is the key of a claim that a pod names; empty: it needs none there.
func claimOf(p *corev1.Pod, c *corev1.PodResourceClaim) (key string, made bool, err error) {
	made = c.ResourceClaimName == nil
	if made && c.ResourceClaimTemplateName == nil {
		return "", false, fmt.Errorf("pod %q, spec.resourceClaim %q: none of the supported fields are set", p.Namespace+"/"+p.Name, c.Name)
	}
	name, known := core.ResourceClaimName(p, c)
	switch {
	case !known:
		return "", made, fmt.Errorf("pod %q: ResourceClaim not created yet", p.Namespace+"/"+p.Name)
	case name == "":
		return "", made, nil
	}
	return p.Namespace + "/" + name, made, nil
}

// find finds a claim that a pod names; nil: it needs none there. With an error it returns
// the key of what the pod waits for; empty: a change of the pod.
func find(s *snapshot.Snapshot, p *corev1.Pod, c *corev1.PodResourceClaim) (claim *snapshot.ResourceClaim, key string, err error) {
	key, made, err := claimOf(p, c)
	if err != nil || key == "" {
		return nil, "", err
	}
	claim = s.ResourceClaim(key)
	switch {
	case claim == nil:
		return nil, key, fmt.Errorf("could not find resource claim %q", key)
	case claim.Obj.DeletionTimestamp != nil:
		return nil, key, fmt.Errorf("resourceclaim %q is being deleted", claim.Obj.Name)
	case made && !metav1.IsControlledBy(claim.Obj, p):
		return nil, key, fmt.Errorf("ResourceClaim %s was not created for pod %s (pod is not owner)", key, p.Namespace+"/"+p.Name)
	}
	return claim, key, nil
}

// PreEnqueue has pods wait whose claims are not there.
func (p *dynamicResources) PreEnqueue(s *snapshot.Snapshot, pod *snapshot.Pod) (key string, wait bool) {
	for i := range pod.Obj.Spec.ResourceClaims {
		if _, key, err := find(s, pod.Obj, &pod.Obj.Spec.ResourceClaims[i]); err != nil {
			return key, true
		}
	}
	return "", false
}

func (p *dynamicResources) PreFilter(c *Cycle) PreFilterResult {
	p.pod, p.none, p.refused, p.plan, p.planErr, p.prefers = c.Pod, true, false, nil, nil, false
	p.extended.reset()
	if len(c.Pod.Obj.Spec.ResourceClaims) == 0 && !p.extended.any(c) {
		return PreFilterResult{Skip: true, Idle: true}
	}
	p.claims, p.promises, p.failed, p.away, p.toAllocate = p.claims[:0], p.promises[:0], p.failed[:0], p.away[:0], p.toAllocate[:0]
	clear(p.preference)
	if why := p.read(c); why != nil {
		p.refused = true
		return PreFilterResult{Reject: why}
	}
	if p.none = len(p.claims) == 0 && len(p.extended.resources) == 0; p.none {
		return PreFilterResult{Skip: true, Idle: true}
	}
	if len(p.toAllocate) > 0 {
		p.plan, p.planErr = c.Snapshot.Devices().Plan(p.toAllocate)
		if _, refusal := errors.AsType[devices.Refusal](p.planErr); refusal {
			p.refused = true
			return PreFilterResult{Reject: p.refuse(p.planErr)}
		}
	}
	return PreFilterResult{}
}

// read looks at the claims of a pod.
func (p *dynamicResources) read(c *Cycle) *Reason {
	obj := c.Pod.Obj
	if _, ok := p.undoing[obj.UID]; ok {
		return p.because("the claims of pod " + obj.Namespace + "/" + obj.Name + " are in the process of being released")
	}
	for i := range obj.Spec.ResourceClaims {
		claim, _, err := find(c.Snapshot, obj, &obj.Spec.ResourceClaims[i])
		switch {
		case err != nil:
			return p.because(err.Error())
		case claim == nil || slices.Contains(p.claims, claim):
			continue
		case claim.Outdated():
			return p.because("resource claim " + claim.Obj.Namespace + "/" + claim.Obj.Name + " is in the process of being released")
		}
		promise, users := c.Snapshot.DevicesPromised(claim.Obj.UID), len(claim.Obj.Status.ReservedFor)
		if claim.Obj.Status.Allocation != nil {
			promise = nil // it says what it has
		} else if promise != nil {
			users = promise.Holders
		}
		switch {
		case claim.Obj.Status.Allocation == nil && promise == nil:
			p.toAllocate = append(p.toAllocate, claim.Obj)
			p.prefers = p.prefers || slices.ContainsFunc(claim.Obj.Spec.Devices.Requests, func(r resourcev1.DeviceRequest) bool { return len(r.FirstAvailable) > 0 })
		case !dra.Reserved(claim.Obj, obj.UID) && users >= resourcev1.ResourceClaimReservedForMaxSize:
			return p.inUse
		}
		p.claims, p.promises = append(p.claims, claim), append(p.promises, promise)
		p.failed = append(p.failed, p.late(claim.Obj))
		p.away = append(p.away, false)
	}
	return nil
}

// because makes a reason. Most texts name what they are about, so only some are kept.
func (p *dynamicResources) because(text string) *Reason {
	r := p.reasons[text]
	if r == nil {
		if len(p.reasons) >= 1000 {
			clear(p.reasons)
		}
		r = lasting(p.plugin, text)
		p.reasons[text] = r
	}
	return r
}

// refuse makes a reason of what was wrong with an allocation.
func (p *dynamicResources) refuse(err error) *Reason {
	refusal, ok := errors.AsType[devices.Refusal](err)
	switch {
	case !ok:
		return &Reason{Texts: []string{err.Error()}, Plugin: p.plugin, Final: true, Err: err}
	case string(refusal) == p.cannot.Texts[0]:
		return p.cannot
	}
	return p.because(string(refusal))
}

func (p *dynamicResources) Filter(c *Cycle, n *snapshot.Node) *Reason {
	if p.none {
		return nil
	}
	plan, why := p.planFor(c, n)
	if why != nil {
		return why
	}
	if plan != nil {
		preference, err := c.Snapshot.Devices().Try(plan, n.Obj, p.steps)
		if err != nil {
			return p.refuse(err)
		}
		if p.prefers {
			p.preference[n] = preference
		}
	}
	for i, claim := range p.claims {
		if p.failed[i] || !claim.Reaches(n) {
			p.away[i] = true
			why = p.elsewhere
		} else if promise := p.promises[i]; promise != nil && !promise.Reaches(n) {
			why = p.elsewhere // others write it, who take it back by themselves
		}
	}
	return why
}

// planFor is what is to be allocated on a node; nil: nothing.
func (p *dynamicResources) planFor(c *Cycle, n *snapshot.Node) (*devices.Plan, *Reason) {
	if p.planErr != nil {
		return nil, p.refuse(p.planErr)
	}
	if len(p.extended.resources) == 0 {
		return p.plan, nil
	}
	if p.extended.old != nil {
		return nil, p.stale
	}
	v := p.extended.variant(n)
	if v == nil {
		return p.plan, nil
	}
	if v.plan == nil && v.err == nil {
		v.make(c)
		v.plan, v.err = c.Snapshot.Devices().Plan(append(slices.Clip(p.toAllocate), v.claim))
	}
	if v.err != nil {
		return nil, p.refuse(v.err)
	}
	return v.plan, nil
}

// Score prefers nodes whose devices were asked for first.
func (p *dynamicResources) Score(_ *Cycle, nodes []*snapshot.Node, scores []int64) bool {
	if p.none || !p.prefers {
		return false
	}
	for i, n := range nodes {
		scores[i] = p.preference[n]
	}
	normalize(scores, false)
	return true
}

func (*dynamicResources) Wakers() Events {
	return ResourceClaimChanged | DevicesChanged | DeviceClassChanged | NodeAdded | NodeLabels | NodeAllocatable | PodRemoved
}

// Hint: of claims matter those of the pod, and those that gave devices back; of pods that
// go, those that may have held devices.
func (p *dynamicResources) Hint(c *Cycle, e *Event) bool {
	switch e.Kind {
	case PodRemoved:
		return len(e.Pod.Obj.Spec.ResourceClaims) > 0 ||
			slices.ContainsFunc(e.Pod.Requests, func(a snapshot.Amount) bool { return c.Snapshot.ServedByDevices(a.Resource) != nil })
	case ResourceClaimChanged:
		if e.Freed || e.Claim == nil {
			return true
		}
		if owner := metav1.GetControllerOfNoCopy(e.Claim); owner != nil && owner.UID == c.Pod.Obj.UID {
			return true
		}
		for i := range c.Pod.Obj.Spec.ResourceClaims {
			if key, _, err := claimOf(c.Pod.Obj, &c.Pod.Obj.Spec.ResourceClaims[i]); err == nil && key == e.Claim.Namespace+"/"+e.Claim.Name {
				return true
			}
		}
		return false
	}
	return true
}
