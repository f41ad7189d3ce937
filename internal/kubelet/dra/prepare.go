package dra

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/kemudi/kemudi/internal/api/core"
)

// Wants reports whether the pod uses claims, which must be ready before it starts.
func (m *Manager) Wants(pod *v1.Pod) bool {
	return m != nil && (len(pod.Spec.ResourceClaims) > 0 || pod.Status.ExtendedResourceClaimStatus != nil)
}

// Prepare has the claims of a pod made ready. It may be called again, also after it has failed halfway.
func (m *Manager) Prepare(ctx context.Context, pod *v1.Pod) error {
	if m == nil {
		return nil
	}
	began := time.Now()
	err := m.prepareAll(ctx, pod)
	m.metrics.did("PrepareResources", began, err)
	if err != nil {
		return fmt.Errorf("prepare dynamic resources: %w", err)
	}
	return nil
}

func (m *Manager) prepareAll(ctx context.Context, pod *v1.Pod) error {
	// Nothing is put down before all drivers are known to be there: a pod for which
	// nothing was asked of them can go without them.
	wanted, err := m.claimsOf(ctx, pod)
	if err != nil {
		return err
	}
	plugins := map[string]*driver{}
	for _, c := range wanted {
		for _, name := range c.drivers() {
			if plugins[name], err = m.find(name); err != nil {
				return err
			}
		}
	}
	release, err := m.hold(ctx, wanted)
	if err != nil {
		return err
	}
	defer release()
	todo, err := m.enter(pod.UID, wanted)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(todo)) {
		if err := m.prepareBy(ctx, plugins[name], todo[name]); err != nil {
			return err
		}
	}
	if len(todo) == 0 {
		return nil
	}
	m.mu.Lock()
	for _, list := range todo {
		for _, c := range list {
			c.prepared = true
		}
	}
	m.mu.Unlock()
	return m.save()
}

// claimsOf are the claims that the pod uses, as their allocations say.
func (m *Manager) claimsOf(ctx context.Context, pod *v1.Pod) ([]*claim, error) {
	var out []*claim
	for i := range pod.Spec.ResourceClaims {
		pc := &pod.Spec.ResourceClaims[i]
		name, known := core.ResourceClaimName(pod, pc)
		if !known {
			return nil, fmt.Errorf("pod \"%s/%s\": ResourceClaim not created yet", pod.Namespace, pod.Name)
		}
		if name == "" {
			continue // it needs none
		}
		c, err := m.claimOf(ctx, pod, name, pc.ResourceClaimTemplateName != nil)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	if s := pod.Status.ExtendedResourceClaimStatus; s != nil && s.ResourceClaimName != "" {
		c, err := m.claimOf(ctx, pod, s.ResourceClaimName, false)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// claimOf gets a claim of the pod, which must have been reserved for it; own says that it was made for it.
func (m *Manager) claimOf(ctx context.Context, pod *v1.Pod, name string, own bool) (*claim, error) {
	ctx, cancel := context.WithTimeout(ctx, apiDeadline)
	defer cancel()
	got, err := m.api.Get(ctx, pod.Namespace, name)
	if err != nil {
		return nil, fmt.Errorf("fetch ResourceClaim %s: %w", name, err)
	}
	if own && !metav1.IsControlledBy(got, pod) {
		return nil, fmt.Errorf("ResourceClaim %s/%s was not created for Pod %s/%s (Pod is not owner)", got.Namespace, name, pod.Namespace, pod.Name)
	}
	if !slices.ContainsFunc(got.Status.ReservedFor, func(r resourcev1.ResourceClaimConsumerReference) bool { return r.UID == pod.UID }) {
		return nil, fmt.Errorf("pod %s (%s) is not allowed to use ResourceClaim %s (%s)", pod.Name, pod.UID, name, got.UID)
	}
	if got.Status.Allocation == nil {
		return nil, fmt.Errorf("ResourceClaim %s: %w", name, errors.New("not allocated"))
	}
	c := &claim{ClaimUID: got.UID, ClaimName: name, Namespace: pod.Namespace, PodUIDs: map[types.UID]struct{}{}, DriverState: map[string]*driverState{}}
	for _, r := range got.Status.Allocation.Devices.Results {
		c.DriverState[r.Driver] = &driverState{}
	}
	return c, nil
}

// enter puts down that the pod uses the claims (W1), and returns those that are to be made ready, by driver.
func (m *Manager) enter(uid types.UID, wanted []*claim) (todo map[string][]*claim, err error) {
	if len(wanted) == 0 {
		return nil, nil
	}
	m.mu.Lock()
	todo = map[string][]*claim{}
	for _, c := range wanted {
		there := m.mu.claims[c.key()]
		if there == nil {
			there = c
			m.mu.claims[c.key()] = c
		}
		if there.ClaimUID != c.ClaimUID {
			err = fmt.Errorf("old ResourceClaim with same name %s and different UID %s still exists (previous pod force-deleted?!)", c.ClaimName, there.ClaimUID)
			break
		}
		there.PodUIDs[uid] = struct{}{}
		if there.prepared {
			continue
		}
		for _, name := range there.drivers() {
			todo[name] = append(todo[name], there)
		}
	}
	m.mu.Unlock()
	return todo, errors.Join(err, m.save())
}

// prepareBy has one driver make its part of claims ready, all by one call.
func (m *Manager) prepareBy(ctx context.Context, d *driver, claims []*claim) error {
	resp, err := m.prepare(ctx, d, messages(claims))
	if err != nil {
		return fmt.Errorf("NodePrepareResources: %w", err)
	}
	for _, uid := range slices.Sorted(maps.Keys(resp.Claims)) {
		i := slices.IndexFunc(claims, func(c *claim) bool { return string(c.ClaimUID) == uid })
		if i < 0 {
			return fmt.Errorf("NodePrepareResources returned result for unknown claim UID %s", uid)
		}
		if text := resp.Claims[uid].GetError(); text != "" {
			return fmt.Errorf("NodePrepareResources failed for ResourceClaim %s: %s", claims[i].ClaimName, text)
		}
		s := &driverState{}
		for _, got := range resp.Claims[uid].GetDevices() {
			s.Devices = append(s.Devices, device{
				PoolName: got.GetPoolName(), DeviceName: got.GetDeviceName(), ShareID: (*types.UID)(got.ShareId),
				RequestNames: got.GetRequestNames(), CDIDeviceIDs: got.GetCdiDeviceIds(),
			})
		}
		m.mu.Lock()
		claims[i].DriverState[d.name] = s
		m.mu.Unlock()
	}
	if left := len(claims) - len(resp.Claims); left != 0 {
		return fmt.Errorf("NodePrepareResources skipped %d ResourceClaims", left)
	}
	return nil
}

// hold keeps others from dealing with the claims until release is called: what one pod takes back
// another must not take for ready.
func (m *Manager) hold(ctx context.Context, claims []*claim) (release func(), err error) {
	var held []types.NamespacedName
	release = func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, key := range held {
			close(m.mu.busy[key])
			delete(m.mu.busy, key)
		}
	}
	keys := make([]types.NamespacedName, len(claims))
	for i, c := range claims {
		keys[i] = c.key()
	}
	slices.SortFunc(keys, compareNames) // in one order, so that nobody waits for who waits for him
	for _, key := range slices.Compact(keys) {
		for {
			m.mu.Lock()
			others := m.mu.busy[key]
			if others == nil {
				m.mu.busy[key] = make(chan struct{})
				held = append(held, key)
			}
			m.mu.Unlock()
			if others == nil {
				break
			}
			select {
			case <-others:
			case <-ctx.Done():
				release()
				return nil, context.Cause(ctx)
			}
		}
	}
	return release, nil
}

// messages are claims as drivers are told of them.
func messages(claims []*claim) []*drapb.Claim {
	out := make([]*drapb.Claim, len(claims))
	for i, c := range claims {
		out[i] = &drapb.Claim{Namespace: c.Namespace, Uid: string(c.ClaimUID), Name: c.ClaimName}
	}
	return out
}

// Unprepare has what is ready for a pod taken back, unless other pods use it (W2). It may be called again.
func (m *Manager) Unprepare(ctx context.Context, uid types.UID) error {
	if m == nil || len(m.usedBy(uid)) == 0 {
		return nil
	}
	began := time.Now()
	err := m.unprepareAll(ctx, uid)
	m.metrics.did("UnprepareResources", began, err)
	if err != nil {
		return fmt.Errorf("unprepare dynamic resources: %w", err)
	}
	return nil
}

func (m *Manager) usedBy(uid types.UID) []*claim {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []*claim
	for _, key := range slices.SortedFunc(maps.Keys(m.mu.claims), compareNames) {
		if _, ok := m.mu.claims[key].PodUIDs[uid]; ok {
			out = append(out, m.mu.claims[key])
		}
	}
	return out
}

func (m *Manager) unprepareAll(ctx context.Context, uid types.UID) error {
	used := m.usedBy(uid)
	release, err := m.hold(ctx, used)
	if err != nil {
		return err
	}
	defer release()
	todo := map[string][]*claim{}
	var last []*claim
	for _, c := range used {
		m.mu.Lock()
		if len(c.PodUIDs) > 1 {
			delete(c.PodUIDs, uid)
			m.mu.Unlock()
			continue
		}
		c.prepared = false // also if it cannot be taken back now
		last = append(last, c)
		for _, name := range c.drivers() {
			todo[name] = append(todo[name], c)
		}
		m.mu.Unlock()
	}
	for _, name := range slices.Sorted(maps.Keys(todo)) {
		if err := m.unprepareBy(ctx, name, todo[name]); err != nil {
			return err
		}
	}
	m.mu.Lock()
	for _, c := range last {
		delete(c.PodUIDs, uid)
		delete(m.mu.claims, c.key())
	}
	m.mu.Unlock()
	return m.save()
}

// unprepareBy has one driver take back its part of claims, all by one call.
func (m *Manager) unprepareBy(ctx context.Context, name string, claims []*claim) error {
	d, err := m.find(name)
	if err != nil {
		return err
	}
	resp, err := m.unprepare(ctx, d, messages(claims))
	if err != nil {
		return fmt.Errorf("NodeUnprepareResources: %w", err)
	}
	for _, uid := range slices.Sorted(maps.Keys(resp.Claims)) {
		i := slices.IndexFunc(claims, func(c *claim) bool { return string(c.ClaimUID) == uid })
		if i < 0 {
			return fmt.Errorf("NodeUnprepareResources returned result for unknown claim UID %s", uid)
		}
		if text := resp.Claims[uid].GetError(); text != "" {
			return fmt.Errorf("NodeUnprepareResources failed for ResourceClaim %s: %s", claims[i].ClaimName, text)
		}
	}
	if left := len(claims) - len(resp.Claims); left != 0 {
		return fmt.Errorf("NodeUnprepareResources skipped %d ResourceClaims", left)
	}
	return nil
}
