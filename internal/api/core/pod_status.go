package core

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	netutils "k8s.io/utils/net"

	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/api/core/podspec"
	"github.com/kemudi/kemudi/internal/resource"
)

// mergePodStatus lets a client change the status, and metadata but for owners.
func mergePodStatus(p, old *corev1.Pod) {
	p.Spec = old.Spec
	p.DeletionTimestamp = old.DeletionTimestamp
	p.OwnerReferences = old.OwnerReferences
	if p.Status.QOSClass == "" {
		p.Status.QOSClass = old.Status.QOSClass
	}
	keepObservedGenerations(&p.Status, &old.Status)
}

// keepObservedGenerations keeps what writers that do not know observedGeneration
// would take away. There may be several conditions of a type: the first of them
// follows the first.
func keepObservedGenerations(s, old *corev1.PodStatus) {
	if s.ObservedGeneration == 0 {
		s.ObservedGeneration = old.ObservedGeneration
	}
	for i := range s.Conditions {
		c := &s.Conditions[i]
		if c.ObservedGeneration != 0 {
			continue
		}
		nth := 0
		for j := range s.Conditions[:i] {
			if s.Conditions[j].Type == c.Type {
				nth++
			}
		}
		for j := range old.Conditions {
			if old.Conditions[j].Type != c.Type {
				continue
			}
			if nth == 0 {
				c.ObservedGeneration = old.Conditions[j].ObservedGeneration
				break
			}
			nth--
		}
	}
}

// validatePodStatus checks a change of a pod's status.
func validatePodStatus(p, old *corev1.Pod, errs *resource.Errors) {
	validateAnnotationChanges(errs.At("metadata"), p.Annotations, old.Annotations)
	podspec.ValidateAnnotations(errs.At("metadata"), p.Annotations, &p.Spec)
	for i := range p.Status.Conditions {
		switch t := p.Status.Conditions[i].Type; t {
		case corev1.PodScheduled, corev1.PodReady, corev1.PodInitialized, corev1.ContainersReady:
		default:
			check.QualifiedName(errs.At("metadata.conditions[%d]", i), "Type", string(t))
		}
	}
	at := errs.At("status")
	if name := p.Status.NominatedNodeName; name != "" && name != old.Status.NominatedNodeName {
		check.DNSSubdomain(at, "nominatedNodeName", name)
	}
	if p.Status.QOSClass != old.Status.QOSClass {
		at.Immutable("qosClass", p.Status.QOSClass)
	}
	if !podspec.CanRestartAll(&old.Spec) {
		validateTransitions(at.At("containerStatuses"), old.Status.ContainerStatuses, p.Status.ContainerStatuses, func(name string) restarts {
			return restartsOf(findContainer(old.Spec.Containers, name), old.Spec.RestartPolicy)
		})
		validateTransitions(at.At("initContainerStatuses"), old.Status.InitContainerStatuses, p.Status.InitContainerStatuses, func(name string) restarts {
			return restartsOf(findContainer(old.Spec.InitContainers, name), initPolicy(old.Spec.RestartPolicy))
		})
	}
	validateTransitions(at.At("ephemeralContainerStatuses"), old.Status.EphemeralContainerStatuses, p.Status.EphemeralContainerStatuses,
		func(string) restarts { return restarts{policy: corev1.RestartPolicyNever} })
	validateClaimStatuses(at, p)
	validatePodIPs(at, p, old)
	validateStatusDetails(at, p)
}

// validateStatusDetails checks what a node says of containers' users and devices.
func validateStatusDetails(errs *resource.Errors, p *corev1.Pod) {
	for _, list := range []struct {
		name       string
		statuses   []corev1.ContainerStatus
		containers []corev1.Container
		ephemeral  bool
	}{
		{"containerStatuses", p.Status.ContainerStatuses, p.Spec.Containers, false},
		{"initContainerStatuses", p.Status.InitContainerStatuses, p.Spec.InitContainers, false},
		{"ephemeralContainerStatuses", p.Status.EphemeralContainerStatuses, nil, true},
	} {
		for i := range list.statuses {
			s := &list.statuses[i]
			at := errs.At(list.name+"[%d]", i)
			if s.User != nil && s.User.Linux != nil {
				validateStatusUser(at, s.User.Linux, p.Spec.OS)
			}
			if list.ephemeral && len(s.AllocatedResourcesStatus) > 0 {
				at.Forbidden("allocatedResourcesStatus", "must not be specified in container status")
				continue
			}
			validateAllocated(at, s, findContainer(list.containers, s.Name))
		}
	}
}

func validateStatusUser(errs *resource.Errors, u *corev1.LinuxContainerUser, os *corev1.PodOS) {
	if os != nil && os.Name == corev1.Windows {
		errs.Forbidden("linux", "cannot be set for a windows pod")
		return
	}
	check.UserID(errs, "linux.uid", &u.UID)
	check.GroupID(errs, "linux.gid", &u.GID)
	for i := range u.SupplementalGroups {
		check.GroupID(errs.At("linux.supplementalGroups[%d]", i), "", &u.SupplementalGroups[i])
	}
}

func validateAllocated(errs *resource.Errors, s *corev1.ContainerStatus, c *corev1.Container) {
	for i := range s.AllocatedResourcesStatus {
		allocated, at := &s.AllocatedResourcesStatus[i], errs.At("allocatedResourcesStatus[%d]", i)
		if c != nil {
			checkAllocatedName(at, allocated.Name, c)
		}
		for j, r := range allocated.Resources {
			check.OneOf(at.At("resources[%d]", j), "health", r.Health, corev1.ResourceHealthStatusHealthy,
				corev1.ResourceHealthStatusUnhealthy, corev1.ResourceHealthStatusUnknown)
			same := func(o corev1.ResourceHealth) bool { return o.ResourceID == r.ResourceID }
			if slices.ContainsFunc(allocated.Resources[:j], same) {
				at.At("resources[%d]", j).Duplicate("resourceID", r.ResourceID)
			}
		}
	}
}

func checkAllocatedName(errs *resource.Errors, name corev1.ResourceName, c *corev1.Container) {
	claim, ok := strings.CutPrefix(string(name), "claim:")
	if !ok {
		if _, requested := c.Resources.Requests[name]; !requested {
			errs.Invalid("name", name, "must match one of the container's resource requests")
		}
		return
	}
	for _, ref := range c.Resources.Claims {
		if claim == ref.Name && ref.Request == "" || claim == ref.Name+"/"+ref.Request && ref.Request != "" {
			return
		}
	}
	errs.Invalid("name", name,
		"must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty")
}

// restarts says when a container may leave the terminated state.
type restarts struct {
	policy corev1.RestartPolicy
	rules  bool // rules of its own may bring it back whatever the policy says
}

func restartsOf(c *corev1.Container, pod corev1.RestartPolicy) restarts {
	if c == nil {
		return restarts{policy: pod}
	}
	r := restarts{policy: pod, rules: len(c.RestartPolicyRules) > 0}
	if c.RestartPolicy != nil {
		r.policy = corev1.RestartPolicy(*c.RestartPolicy)
	}
	return r
}

// initPolicy is the policy of init containers: in a pod that may be restarted,
// they run again whatever they did, once its sandbox has been lost.
func initPolicy(pod corev1.RestartPolicy) corev1.RestartPolicy {
	if pod == corev1.RestartPolicyOnFailure {
		return corev1.RestartPolicyAlways
	}
	return pod
}

func findContainer(containers []corev1.Container, name string) *corev1.Container {
	for i := range containers {
		if containers[i].Name == name {
			return &containers[i]
		}
	}
	return nil
}

// validateTransitions refuses that a container comes back which has ended for good.
func validateTransitions(errs *resource.Errors, old, statuses []corev1.ContainerStatus, of func(name string) restarts) {
	for i := range old {
		ended := old[i].State.Terminated
		if ended == nil {
			continue
		}
		r := of(old[i].Name)
		if r.rules || r.policy == corev1.RestartPolicyAlways || r.policy == corev1.RestartPolicyOnFailure && ended.ExitCode != 0 {
			continue
		}
		for j := range statuses {
			if statuses[j].Name == old[i].Name && statuses[j].State.Terminated == nil {
				errs.At("[%d]", i).Forbidden("state", "may not be transitioned to non-terminated state")
			}
		}
	}
}

func validateClaimStatuses(errs *resource.Errors, p *corev1.Pod) {
	list := p.Status.ResourceClaimStatuses
	for i := range list {
		s, at := &list[i], errs.At("resourceClaimStatuses[%d]", i)
		if !slices.ContainsFunc(p.Spec.ResourceClaims, func(c corev1.PodResourceClaim) bool { return c.Name == s.Name }) {
			at.Invalid("name", s.Name, "must match the name of an entry in `spec.resourceClaims`")
		}
		if slices.ContainsFunc(list[:i], func(o corev1.PodResourceClaimStatus) bool { return o.Name == s.Name }) {
			at.Duplicate("name", s.Name)
		}
		if s.ResourceClaimName != nil {
			for _, msg := range utilvalidation.IsDNS1123Subdomain(*s.ResourceClaimName) {
				at.Invalid("name", *s.ResourceClaimName, msg)
			}
		}
	}
}

func validatePodIPs(errs *resource.Errors, p, old *corev1.Pod) {
	var ips, before []string
	for i := range old.Status.PodIPs {
		before = append(before, old.Status.PodIPs[i].IP)
	}
	for i := range p.Status.PodIPs {
		ips = append(ips, p.Status.PodIPs[i].IP)
	}
	validateIPs(errs, "podIPs", ips, before)

	if len(p.Status.HostIPs) == 0 {
		return
	}
	if p.Status.HostIP != p.Status.HostIPs[0].IP {
		errs.Invalid("hostIPs[0].ip", p.Status.HostIPs[0].IP, "must be equal to `hostIP`")
	}
	ips, before = nil, nil
	for i := range old.Status.HostIPs {
		before = append(before, old.Status.HostIPs[i].IP)
	}
	for i := range p.Status.HostIPs {
		ips = append(ips, p.Status.HostIPs[i].IP)
	}
	validateIPs(errs, "hostIPs", ips, before)
}

// validateIPs accepts at most one address of each family.
func validateIPs(errs *resource.Errors, list string, ips, before []string) {
	for i, ip := range ips {
		check.IP(errs.At(list+"[%d]", i), "", ip, before...)
	}
	if len(ips) < 2 {
		return
	}
	if dual, err := netutils.IsDualStackIPStrings(ips); err == nil && !dual || len(ips) > 2 {
		errs.Invalid(list, ips, "may specify no more than one IP for each IP family")
	}
	for i, ip := range ips {
		if slices.Contains(ips[:i], ip) {
			errs.At(list+"[%d]", i).Duplicate("", ip)
		}
	}
}
