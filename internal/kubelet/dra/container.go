package dra

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/api/core"
)

// use is a claim, or one request of it, that a container refers to.
type use struct {
	claim, request string
	resource       v1.ResourceName // what its status calls it; empty: nothing
}

// uses are those of a container.
func uses(pod *v1.Pod, c *v1.Container) []use {
	var out []use
	for _, r := range c.Resources.Claims {
		i := slices.IndexFunc(pod.Spec.ResourceClaims, func(pc v1.PodResourceClaim) bool { return pc.Name == r.Name })
		if i < 0 {
			continue
		}
		if name, _ := core.ResourceClaimName(pod, &pod.Spec.ResourceClaims[i]); name != "" {
			called := "claim:" + r.Name
			if r.Request != "" {
				called += "/" + r.Request
			}
			out = append(out, use{name, r.Request, v1.ResourceName(called)})
		}
	}
	if s := pod.Status.ExtendedResourceClaimStatus; s != nil {
		for _, r := range s.RequestMappings {
			if q := c.Resources.Requests[v1.ResourceName(r.ResourceName)]; r.ContainerName == c.Name && !q.IsZero() {
				out = append(out, use{s.ResourceClaimName, r.RequestName, ""})
			}
		}
	}
	return out
}

// CDI lists the CDI devices that a container gets for the claims that it refers to.
func (m *Manager) CDI(pod *v1.Pod, c *v1.Container) ([]string, error) {
	if !m.Wants(pod) {
		return nil, nil
	}
	var out []string
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, u := range uses(pod, c) {
		claim := m.mu.claims[types.NamespacedName{Namespace: pod.Namespace, Name: u.claim}]
		if claim == nil {
			return nil, fmt.Errorf("internal error: unable to get claim info for ResourceClaim %s in namespace %s", u.claim, pod.Namespace)
		}
		out = append(out, claim.cdi(u.request)...)
	}
	return out, nil
}

// Health is how the devices of the claims of a pod's containers are, by container; nil: it has none.
func (m *Manager) Health(pod *v1.Pod) map[string][]v1.ResourceStatus {
	if !m.Wants(pod) {
		return nil
	}
	out := map[string][]v1.ResourceStatus{}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		for _, u := range uses(pod, c) {
			claim := m.mu.claims[types.NamespacedName{Namespace: pod.Namespace, Name: u.claim}]
			if claim == nil || u.resource == "" {
				continue
			}
			if s := (v1.ResourceStatus{Name: u.resource, Resources: m.healthOfLocked(claim, u.request)}); len(s.Resources) > 0 {
				out[c.Name] = append(out[c.Name], s)
			}
		}
	}
	return out
}

// healthOfLocked is how the devices of a request are.
func (m *Manager) healthOfLocked(c *claim, request string) []v1.ResourceHealth {
	var out []v1.ResourceHealth
	for _, name := range c.drivers() {
		for i := range c.DriverState[name].Devices {
			d := &c.DriverState[name].Devices[i]
			h := m.healthLocked(name, d)
			if d.serves(request) && !slices.ContainsFunc(out, func(o v1.ResourceHealth) bool { return o.ResourceID == h.ResourceID }) {
				out = append(out, h)
			}
		}
	}
	return out
}

// Claim is a claim that a container uses, Device one device of it.
type Claim struct {
	Name    string
	Devices []Device
}

// Device is a device that a driver has made ready.
type Device struct {
	Driver, Pool, Name string
	ShareID            *string
	CDI                []string
}

// Of are the claims that a container uses, with the devices that it has of them.
func (m *Manager) Of(pod *v1.Pod, c *v1.Container) []Claim {
	if !m.Wants(pod) {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	requests := map[string][]string{}
	for _, u := range uses(pod, c) {
		requests[u.claim] = append(requests[u.claim], u.request)
	}
	var out []Claim
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		claim := m.mu.claims[types.NamespacedName{Namespace: pod.Namespace, Name: name}]
		if claim == nil {
			continue
		}
		one := Claim{Name: name}
		for _, driver := range claim.drivers() {
			for i := range claim.DriverState[driver].Devices {
				d := &claim.DriverState[driver].Devices[i]
				if slices.ContainsFunc(requests[name], d.serves) {
					one.Devices = append(one.Devices, Device{driver, d.PoolName, d.DeviceName, (*string)(d.ShareID), d.CDIDeviceIDs})
				}
			}
		}
		out = append(out, one)
	}
	return out
}
