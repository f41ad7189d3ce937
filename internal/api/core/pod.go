package core

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/api/core/claims"
	"github.com/kemudi/kemudi/internal/api/core/csi"
	"github.com/kemudi/kemudi/internal/api/core/podspec"
	"github.com/kemudi/kemudi/internal/resource"
)

// Pods is groups of containers that run together on one node.
//
// Package podspec fills a pod and refuses a bad one; pod_update.go and
// pod_resize.go say what may change, pod_status.go is what nodes report, and
// pod_info.go answers questions about pods.
var Pods = resource.Define(resource.Spec[*corev1.Pod]{
	Names:   resource.Names{Version: "v1", Kind: "Pod", Plural: "pods", Short: []string{"po"}, Categories: []string{"all"}, Namespaced: true},
	Default: podspec.Default, Prepare: preparePod, Validate: validatePod, Warn: podspec.Warn,
	HasGeneration: true,
	Needs:         podspec.NeedsGroups(func(p *corev1.Pod) *corev1.PodSpec { return &p.Spec }),
	Deletion:      resource.Deletion[*corev1.Pod]{GracePeriod: podGracePeriod, AnswersDeleted: true},
	Caching:       resource.Caching[*corev1.Pod]{PodSpec: func(p *corev1.Pod) *corev1.PodSpec { return &p.Spec }, ByLabels: true},
	Columns:       podColumns, Rows: resource.Rows[*corev1.Pod]{Conditions: podEnded},
	Fields: map[string]func(*corev1.Pod) string{
		"spec.nodeName":            func(p *corev1.Pod) string { return p.Spec.NodeName },
		"spec.restartPolicy":       func(p *corev1.Pod) string { return string(p.Spec.RestartPolicy) },
		"spec.schedulerName":       func(p *corev1.Pod) string { return p.Spec.SchedulerName },
		"spec.serviceAccountName":  func(p *corev1.Pod) string { return p.Spec.ServiceAccountName },
		"spec.hostNetwork":         func(p *corev1.Pod) string { return strconv.FormatBool(p.Spec.HostNetwork) },
		"status.phase":             func(p *corev1.Pod) string { return string(p.Status.Phase) },
		"status.podIP":             podIP,
		"status.podIPs":            podIP,
		"status.nominatedNodeName": func(p *corev1.Pod) string { return p.Status.NominatedNodeName },
	},
	Index: map[string]func(*corev1.Pod) []string{
		"spec.nodeName":    func(p *corev1.Pod) []string { return []string{p.Spec.NodeName} },
		IndexClaim:         podClaims,
		IndexCSI:           podVolumes,
		IndexPodGroup:      PodGroupKeys,
		IndexResourceClaim: podResourceClaims,
		IndexUnmadeClaim:   unmadeClaims,
	},
	Sub: []resource.Sub[*corev1.Pod]{
		{Name: "status", Merge: mergePodStatus, Validate: validatePodStatus},
		{Name: "ephemeralcontainers", Merge: mergeEphemeralContainers, Validate: validateEphemeralUpdate},
		{Name: "resize", Merge: mergeResize, Validate: validateResize},
		{Name: "binding", Verbs: resource.Create, Handler: resource.HandleBinding, Body: bindingBody},
		{Name: "eviction", Verbs: resource.Create, Handler: resource.HandleEviction, Body: &resource.Body{
			Group: "policy", Version: "v1", Kind: "Eviction", New: func() runtime.Object { return &policyv1.Eviction{} },
			Also: []string{"policy/v1beta1"}, // what kubectl before 1.22 sends
		}},
		{Name: "log", Verbs: resource.Get, Handler: resource.HandleLog},
		{Name: "exec", Verbs: resource.Create | resource.Get, Handler: resource.HandleExec, Body: &resource.Body{
			Version: "v1", Kind: "PodExecOptions", New: func() runtime.Object { return &corev1.PodExecOptions{} },
		}},
		{Name: "attach", Verbs: resource.Create | resource.Get, Handler: resource.HandleAttach, Body: &resource.Body{
			Version: "v1", Kind: "PodAttachOptions", New: func() runtime.Object { return &corev1.PodAttachOptions{} },
		}},
		{Name: "portforward", Verbs: resource.Create | resource.Get, Handler: resource.HandlePortForward, Body: &resource.Body{
			Version: "v1", Kind: "PodPortForwardOptions", New: func() runtime.Object { return &corev1.PodPortForwardOptions{} },
		}},
		{Name: "proxy", Verbs: proxyVerbs, Handler: resource.HandleProxy, Body: &resource.Body{
			Version: "v1", Kind: "PodProxyOptions", New: func() runtime.Object { return &corev1.PodProxyOptions{} },
		}},
	},
})

func podClaims(p *corev1.Pod) []string {
	names := claims.Of(p)
	for i := range names {
		names[i] = p.Namespace + "/" + names[i]
	}
	return names
}

// podVolumes are what nodes call the volumes that stand in a pod and must be attached, and their drivers.
func podVolumes(p *corev1.Pod) (names []string) {
	for i := range p.Spec.Volumes {
		if v := csi.Inline(&p.Spec.Volumes[i], p.Namespace); v != nil {
			names = append(names, string(csi.Name(v.Spec.CSI.Driver, v.Spec.CSI.VolumeHandle)), v.Spec.CSI.Driver)
		}
	}
	return names
}

// IndexPodGroup is the index of pods by the key of their group.
const IndexPodGroup = "podgroup"

// PodGroupName is the name of the group that a pod belongs to; empty: to none.
func PodGroupName(p *corev1.Pod) string {
	if g := p.Spec.SchedulingGroup; g != nil && g.PodGroupName != nil {
		return *g.PodGroupName
	}
	return ""
}

// PodGroupKeys is the key of the group that a pod belongs to, if it does.
func PodGroupKeys(p *corev1.Pod) []string {
	if name := PodGroupName(p); name != "" {
		return []string{p.Namespace + "/" + name}
	}
	return nil
}

// proxyVerbs are those of every proxy subresource: whatever HTTP can ask.
var proxyVerbs = resource.Create | resource.Delete | resource.Get | resource.Patch | resource.Update

// podGracePeriod is how long a pod may take to end. It is gone at once where
// nothing runs, and a second request can only shorten what the first one gave.
func podGracePeriod(p *corev1.Pod, asked *int64) int64 {
	if given := p.DeletionGracePeriodSeconds; p.DeletionTimestamp != nil && given != nil {
		if asked == nil || *asked >= *given {
			return *given
		}
		return max(*asked, 0)
	}
	if p.Spec.NodeName == "" || PodTerminal(p) {
		return 0
	}
	seconds := int64(0)
	switch {
	case asked != nil:
		seconds = *asked
	case p.Spec.TerminationGracePeriodSeconds != nil:
		seconds = *p.Spec.TerminationGracePeriodSeconds
	}
	if seconds < 0 {
		return 1
	}
	return seconds
}

// preparePod gives a new pod its status, and keeps that of an old one.
func preparePod(p, old *corev1.Pod) {
	podspec.MirrorServiceAccount(&p.Spec)
	podspec.DropUnsupported(&p.Spec)
	if old != nil {
		p.Status = old.Status
		return
	}
	p.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: QOSClass(p)}
	if len(p.Spec.SchedulingGates) > 0 {
		p.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
			Reason: corev1.PodReasonSchedulingGated, Message: "Scheduling is blocked due to non-empty scheduling gates",
		}}
	}
	mergeLabelKeys(p)
	podspec.AppArmorFromAnnotations(p)
}

// mergeLabelKeys puts the pod's own values of matchLabelKeys and
// mismatchLabelKeys into the selectors beside them (KEP-3633, KEP-3243).
func mergeLabelKeys(p *corev1.Pod) {
	merge := func(s *metav1.LabelSelector, op metav1.LabelSelectorOperator, keys []string) {
		for _, key := range keys {
			if value, ok := p.Labels[key]; ok && s != nil {
				s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: op, Values: []string{value}})
			}
		}
	}
	terms := func(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
		for i := range required {
			merge(required[i].LabelSelector, metav1.LabelSelectorOpIn, required[i].MatchLabelKeys)
			merge(required[i].LabelSelector, metav1.LabelSelectorOpNotIn, required[i].MismatchLabelKeys)
		}
		for i := range preferred {
			t := &preferred[i].PodAffinityTerm
			merge(t.LabelSelector, metav1.LabelSelectorOpIn, t.MatchLabelKeys)
			merge(t.LabelSelector, metav1.LabelSelectorOpNotIn, t.MismatchLabelKeys)
		}
	}
	if a := p.Spec.Affinity; a != nil && a.PodAffinity != nil {
		terms(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if a := p.Spec.Affinity; a != nil && a.PodAntiAffinity != nil {
		terms(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	for i := range p.Spec.TopologySpreadConstraints {
		c := &p.Spec.TopologySpreadConstraints[i]
		merge(c.LabelSelector, metav1.LabelSelectorOpIn, c.MatchLabelKeys)
	}
}

// Bindings is the old way to say on which node a pod runs: it is not stored.
var Bindings = resource.Define(resource.Spec[*corev1.Binding]{
	Names:    resource.Names{Version: "v1", Kind: "Binding", Plural: "bindings", Namespaced: true},
	Handler:  resource.HandleBinding,
	Validate: func(b, _ *corev1.Binding, errs *resource.Errors) { ValidateBinding(b, errs) },
})

var bindingBody = &resource.Body{Version: "v1", Kind: "Binding", New: func() runtime.Object { return &corev1.Binding{} }}

// ValidateBinding checks the body of pods/binding.
func ValidateBinding(b *corev1.Binding, errs *resource.Errors) {
	if b.Target.Kind != "" && b.Target.Kind != "Node" {
		resource.NotSupported(errs, "target.kind", b.Target.Kind, "Node", "<empty>")
	}
	check.Required(errs, "target.name", b.Target.Name)
}
