package podsecurity

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"github.com/kemudi/kemudi/internal/admission"
)

// How much is looked at of the pods of a namespace whose labels change.
const (
	mostPods    = 3000
	longestLook = time.Second
)

// namespace refuses labels that mean nothing, and warns of pods that a stricter label
// would not let in.
func (p *plugin) namespace(a *admission.Attributes) error {
	ns, ok := a.Object.(*corev1.Namespace)
	if !ok || a.Sub != "" {
		return nil
	}
	now, faults := api.PolicyToEvaluate(ns.Labels, p.defaults)
	old, isUpdate := a.Old.(*corev1.Namespace)
	if !isUpdate {
		if len(faults) > 0 {
			return apierrors.NewInvalid(a.Def.GVK().GroupKind(), ns.Name, faults)
		}
		p.warnExempt(a, ns, now)
		return nil
	}
	before, oldFaults := api.PolicyToEvaluate(old.Labels, p.defaults)
	if len(faults) > 0 && (len(oldFaults) == 0 || !reflect.DeepEqual(faults, oldFaults)) {
		return apierrors.NewInvalid(a.Def.GVK().GroupKind(), ns.Name, faults)
	}
	switch {
	case now.Enforce == before.Enforce, now.Enforce.Level == api.LevelPrivileged:
		return nil
	case now.Enforce.Version == before.Enforce.Version && api.CompareLevels(now.Enforce.Level, before.Enforce.Level) < 1:
		return nil // no stricter than it was
	case slices.Contains(p.config.Exemptions.Namespaces, ns.Name):
		p.warnExempt(a, ns, now)
		return nil
	}
	for _, text := range p.review(ns.Name, now.Enforce) {
		a.Warn(text)
	}
	return nil
}

// review tells which pods of a namespace violate what it is to enforce.
func (p *plugin) review(namespace string, enforce api.LevelVersion) (warnings []string) {
	pods := p.oneOfEach(p.pods.List(namespace, nil))
	type group struct {
		first string // pod by name
		count int
	}
	groups, begin, checked := map[string]group{}, time.Now(), 0
	for _, pod := range pods[:min(len(pods), mostPods)] {
		checked++
		if r := policy.AggregateCheckResults(p.evaluator().EvaluatePod(enforce, &pod.ObjectMeta, &pod.Spec)); !r.Allowed {
			g := groups[r.ForbiddenReason()]
			if g.count++; g.count == 1 || pod.Name < g.first {
				g.first = pod.Name
			}
			groups[r.ForbiddenReason()] = g
		}
		if time.Since(begin) > longestLook {
			break
		}
	}
	if checked < len(pods) {
		warnings = append(warnings, fmt.Sprintf("new PodSecurity enforce level only checked against the first %d of %d existing pods", checked, len(pods)))
	}
	if len(groups) > 0 {
		warnings = append(warnings, fmt.Sprintf("existing pods in namespace %q violate the new PodSecurity enforce level %q", namespace, enforce.String()))
	}
	var lines []string
	for reason, g := range groups {
		switch g.count {
		case 1:
			lines = append(lines, fmt.Sprintf("%s: %s", g.first, reason))
		case 2:
			lines = append(lines, fmt.Sprintf("%s (and 1 other pod): %s", g.first, reason))
		default:
			lines = append(lines, fmt.Sprintf("%s (and %d other pods): %s", g.first, g.count-1, reason))
		}
	}
	slices.Sort(lines)
	return append(warnings, lines...)
}

// oneOfEach are the pods that are not exempt; the second and later ones of a
// controller, which are much like the first, come last.
func (p *plugin) oneOfEach(pods []*corev1.Pod) []*corev1.Pod {
	var first, others []*corev1.Pod
	seen := map[types.UID]bool{}
	for _, pod := range pods {
		class, owner := pod.Spec.RuntimeClassName, metav1.GetControllerOfNoCopy(pod)
		switch {
		case class != nil && slices.Contains(p.config.Exemptions.RuntimeClasses, *class):
		case owner != nil && seen[owner.UID]:
			others = append(others, pod)
		default:
			first = append(first, pod)
			if owner != nil {
				seen[owner.UID] = true
			}
		}
	}
	return append(first, others...)
}

// warnExempt tells who labels an exempt namespace that this does nothing.
func (p *plugin) warnExempt(a *admission.Attributes, ns *corev1.Namespace, asked api.Policy) {
	if !slices.Contains(p.config.Exemptions.Namespaces, ns.Name) || asked.FullyPrivileged() || asked.Equivalent(&p.defaults) {
		return
	}
	var modes []string
	for _, m := range []struct {
		name, level, version string
		asked                api.LevelVersion
	}{
		{"enforce", api.EnforceLevelLabel, api.EnforceVersionLabel, asked.Enforce},
		{"audit", api.AuditLevelLabel, api.AuditVersionLabel, asked.Audit},
		{"warn", api.WarnLevelLabel, api.WarnVersionLabel, asked.Warn},
	} {
		_, level := ns.Labels[m.level]
		_, version := ns.Labels[m.version]
		if m.asked.Level != api.LevelPrivileged && (level || version) {
			modes = append(modes, m.name+"="+m.asked.String())
		}
	}
	a.Warn(fmt.Sprintf("namespace %q is exempt from Pod Security, and the policy (%s) will be ignored", ns.Name, strings.Join(modes, ", ")))
}
