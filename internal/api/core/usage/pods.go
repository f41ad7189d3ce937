package usage

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/resource"
)

// pods take what their containers ask for until they have ended.
var pods = rules{
	unit:    corev1.ResourcePods,
	counts:  podCounts,
	amounts: func(obj resource.Object, _ World) corev1.ResourceList { return podAmounts(obj.(*corev1.Pod)) },
	require: func(names []corev1.ResourceName, obj resource.Object) error {
		return podRequires(names, obj.(*corev1.Pod))
	},
	ended: func(obj resource.Object, now time.Time) (bool, time.Time) {
		return podEnded(obj.(*corev1.Pod), now)
	},
	in: func(scope *corev1.ScopedResourceSelectorRequirement, obj resource.Object) bool {
		return podIn(scope, obj.(*corev1.Pod))
	},
	same:    func(before, after resource.Object) bool { return samePods(before.(*corev1.Pod), after.(*corev1.Pod)) },
	updates: []string{"resize"},
}

// ofPods are the amounts whose names stand as they are. Further ones are made of
// the names of huge pages and extended resources.
var ofPods = []corev1.ResourceName{
	corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage,
	corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory, corev1.ResourceRequestsEphemeralStorage,
	corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory, corev1.ResourceLimitsEphemeralStorage,
}

func podCounts(name corev1.ResourceName) bool {
	return slices.Contains(ofPods, name) || check.IsHugePages(name) ||
		strings.HasPrefix(string(name), corev1.ResourceRequestsHugePagesPrefix) ||
		isExtended(name)
}

// isExtended says whether a name is that of an extended resource as quotas count it: a
// node's, or the devices of a class by the name that each class has for pods.
func isExtended(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceImplicitExtendedClaimsPerClass) ||
		!check.IsNativeResource(name) && strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix)
}

func podAmounts(pod *corev1.Pod) corev1.ResourceList {
	// What a pod has been given counts until it has been taken back.
	o := resourcehelper.PodResourcesOptions{UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true}
	return compute(resourcehelper.PodRequests(pod, o), resourcehelper.PodLimits(pod, o))
}

// compute are requests and limits by the names that quotas have for them.
func compute(requests, limits corev1.ResourceList) corev1.ResourceList {
	amounts := corev1.ResourceList{}
	for name, q := range requests {
		switch {
		case name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage || check.IsHugePages(name):
			amounts[name] = q
			amounts[corev1.DefaultResourceRequestsPrefix+name] = q
		case check.IsExtendedResource(name) || strings.HasPrefix(string(name), resourcev1.ResourceDeviceClassPrefix):
			amounts[corev1.DefaultResourceRequestsPrefix+name] = q
		}
	}
	for name, q := range limits {
		switch name {
		case corev1.ResourceCPU:
			amounts[corev1.ResourceLimitsCPU] = q
		case corev1.ResourceMemory:
			amounts[corev1.ResourceLimitsMemory] = q
		case corev1.ResourceEphemeralStorage:
			amounts[corev1.ResourceLimitsEphemeralStorage] = q
		}
	}
	return amounts
}

// mustName are the amounts that each container must name under a quota of them.
// Upstream keeps to that although it takes it for a mistake: more do not come.
var mustName = []corev1.ResourceName{
	corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory,
	corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory,
}

func podRequires(names []corev1.ResourceName, pod *corev1.Pod) error {
	if resourcehelper.IsPodLevelResourcesSet(pod) {
		return nil
	}
	lacking := map[corev1.ResourceName][]string{} // containers
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			c := &containers[i]
			amounts := compute(c.Resources.Requests, c.Resources.Limits)
			for _, name := range names {
				if _, ok := amounts[name]; !ok && slices.Contains(mustName, name) {
					lacking[name] = append(lacking[name], c.Name)
				}
			}
		}
	}
	var parts []string
	for _, name := range names {
		if containers := lacking[name]; len(containers) > 0 {
			slices.Sort(containers)
			parts = append(parts, fmt.Sprintf("%s for: %s", name, strings.Join(containers, ",")))
		}
	}
	if len(parts) == 0 {
		return nil
	}
	return errors.New("must specify " + strings.Join(parts, "; "))
}

// podEnded says whether a pod is over, or should have been for the time that it
// had for that once more: what hangs on a lost node does not stop its successors.
func podEnded(pod *corev1.Pod, now time.Time) (ended bool, at time.Time) {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return true, time.Time{}
	}
	if pod.DeletionTimestamp == nil || pod.DeletionGracePeriodSeconds == nil {
		return false, time.Time{}
	}
	at = pod.DeletionTimestamp.Add(time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second)
	return now.After(at), at
}

func podIn(scope *corev1.ScopedResourceSelectorRequirement, pod *corev1.Pod) bool {
	bounded := pod.Spec.ActiveDeadlineSeconds != nil && *pod.Spec.ActiveDeadlineSeconds >= 0
	switch scope.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return bounded
	case corev1.ResourceQuotaScopeNotTerminating:
		return !bounded
	case corev1.ResourceQuotaScopeBestEffort:
		return qosClass(pod) == corev1.PodQOSBestEffort
	case corev1.ResourceQuotaScopeNotBestEffort:
		return qosClass(pod) != corev1.PodQOSBestEffort
	case corev1.ResourceQuotaScopePriorityClass:
		if pod.Spec.PriorityClassName == "" {
			return selects(scope)
		}
		return selects(scope, pod.Spec.PriorityClassName)
	case corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		return crossesNamespaces(pod.Spec.Affinity)
	}
	return false
}

func qosClass(pod *corev1.Pod) corev1.PodQOSClass {
	if pod.Status.QOSClass != "" {
		return pod.Status.QOSClass
	}
	return core.QOSClass(pod)
}

// crossesNamespaces says whether a term of affinity names namespaces.
func crossesNamespaces(a *corev1.Affinity) bool {
	if a == nil {
		return false
	}
	names := func(t corev1.PodAffinityTerm) bool { return len(t.Namespaces) > 0 || t.NamespaceSelector != nil }
	weighted := func(t corev1.WeightedPodAffinityTerm) bool { return names(t.PodAffinityTerm) }
	if p := a.PodAffinity; p != nil && (slices.ContainsFunc(p.RequiredDuringSchedulingIgnoredDuringExecution, names) ||
		slices.ContainsFunc(p.PreferredDuringSchedulingIgnoredDuringExecution, weighted)) {
		return true
	}
	p := a.PodAntiAffinity
	return p != nil && (slices.ContainsFunc(p.RequiredDuringSchedulingIgnoredDuringExecution, names) ||
		slices.ContainsFunc(p.PreferredDuringSchedulingIgnoredDuringExecution, weighted))
}

// samePods compares what may change of a pod that quotas count: most of what nodes
// report is not part of it.
func samePods(before, after *corev1.Pod) bool {
	return before.Status.Phase == after.Status.Phase && before.DeletionTimestamp.Equal(after.DeletionTimestamp) &&
		before.Generation == after.Generation &&
		equality.Semantic.DeepEqual(before.Spec.ActiveDeadlineSeconds, after.Spec.ActiveDeadlineSeconds) &&
		(sameGiven(before, after) || SameAmounts(podAmounts(before), podAmounts(after)))
}

// sameGiven says that the node has given two states of a pod the same.
func sameGiven(before, after *corev1.Pod) bool {
	return slices.EqualFunc(before.Status.ContainerStatuses, after.Status.ContainerStatuses, sameStatus) &&
		slices.EqualFunc(before.Status.InitContainerStatuses, after.Status.InitContainerStatuses, sameStatus) &&
		equality.Semantic.DeepEqual(before.Status.Resources, after.Status.Resources) &&
		equality.Semantic.DeepEqual(before.Status.AllocatedResources, after.Status.AllocatedResources)
}

func sameStatus(a, b corev1.ContainerStatus) bool {
	return a.Name == b.Name && equality.Semantic.DeepEqual(a.Resources, b.Resources) &&
		equality.Semantic.DeepEqual(a.AllocatedResources, b.AllocatedResources)
}

// SameAmounts reports whether two lists name the same resources with the same amounts, however these are written.
func SameAmounts(a, b corev1.ResourceList) bool {
	if len(a) != len(b) {
		return false
	}
	for name, q := range a {
		other, ok := b[name]
		if !ok || q.Cmp(other) != 0 {
			return false
		}
	}
	return true
}
