package podspec

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/resource"
)

// validateAffinity checks which nodes and which neighbours a pod wants.
func validateAffinity(errs *resource.Errors, a *corev1.Affinity) {
	if a == nil {
		return
	}
	if n := a.NodeAffinity; n != nil {
		if n.RequiredDuringSchedulingIgnoredDuringExecution != nil {
			ValidateNodeSelector(errs.At("nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"),
				n.RequiredDuringSchedulingIgnoredDuringExecution)
		}
		for i := range n.PreferredDuringSchedulingIgnoredDuringExecution {
			term := &n.PreferredDuringSchedulingIgnoredDuringExecution[i]
			at := errs.At("nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[%d]", i)
			checkWeight(at, term.Weight)
			// Values that no label can have are tolerated where they only prefer.
			validateNodeSelectorTerm(at.At("preference"), &term.Preference, func(*resource.Errors, string) {})
		}
	}
	if p := a.PodAffinity; p != nil {
		validatePodAffinity(errs.At("podAffinity"), p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if p := a.PodAntiAffinity; p != nil {
		validatePodAffinity(errs.At("podAntiAffinity"), p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)
	}
}

func checkWeight(errs *resource.Errors, weight int32) {
	if weight < 1 || weight > 100 {
		errs.Invalid("weight", weight, "must be in the range 1-100")
	}
}

// ValidateNodeSelector checks a choice of nodes.
func ValidateNodeSelector(errs *resource.Errors, s *corev1.NodeSelector) {
	if len(s.NodeSelectorTerms) == 0 {
		errs.Required("nodeSelectorTerms", "must have at least one node selector term")
	}
	for i := range s.NodeSelectorTerms {
		validateNodeSelectorTerm(errs.At("nodeSelectorTerms[%d]", i), &s.NodeSelectorTerms[i], check.LabelValue)
	}
}

func validateNodeSelectorTerm(errs *resource.Errors, t *corev1.NodeSelectorTerm, checkValue func(errs *resource.Errors, value string)) {
	for i := range t.MatchExpressions {
		r, at := &t.MatchExpressions[i], errs.At("matchExpressions[%d]", i)
		switch r.Operator {
		case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
			if len(r.Values) == 0 {
				at.Required("values", "must be specified when `operator` is 'In' or 'NotIn'")
			}
		case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
			if len(r.Values) > 0 {
				at.Forbidden("values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
			}
		case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
			if len(r.Values) != 1 {
				at.Required("values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
			}
		default:
			at.Invalid("operator", r.Operator, "not a valid selector operator")
		}
		check.QualifiedName(at, "key", r.Key)
		for j, value := range r.Values {
			checkValue(at.At("values[%d]", j), value)
		}
	}
	for i := range t.MatchFields {
		r, at := &t.MatchFields[i], errs.At("matchFields[%d]", i)
		if r.Operator != corev1.NodeSelectorOpIn && r.Operator != corev1.NodeSelectorOpNotIn {
			at.Invalid("operator", r.Operator, "not a valid selector operator")
		} else if len(r.Values) != 1 {
			at.Required("values", "must be only one value when `operator` is 'In' or 'NotIn' for node field selector")
		}
		if r.Key != metav1.ObjectNameField {
			at.Invalid("key", r.Key, "not a valid field selector key")
			continue
		}
		for j, value := range r.Values {
			check.DNSSubdomain(at.At("values[%d]", j), "", value)
		}
	}
}

func validatePodAffinity(errs *resource.Errors, required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
	for i := range required {
		validatePodAffinityTerm(errs.At("requiredDuringSchedulingIgnoredDuringExecution[%d]", i), &required[i])
	}
	for i := range preferred {
		at := errs.At("preferredDuringSchedulingIgnoredDuringExecution[%d]", i)
		checkWeight(at, preferred[i].Weight)
		validatePodAffinityTerm(at.At("podAffinityTerm"), &preferred[i].PodAffinityTerm)
	}
}

func validatePodAffinityTerm(errs *resource.Errors, t *corev1.PodAffinityTerm) {
	check.LabelSelector(errs, "labelSelector", t.LabelSelector)
	check.LabelSelector(errs, "namespaceSelector", t.NamespaceSelector)
	for _, namespace := range t.Namespaces {
		check.DNSLabel(errs, "namespace", namespace)
	}
	checkSelectorKeys(errs, "matchLabelKeys", t.MatchLabelKeys, t.LabelSelector)
	checkSelectorKeys(errs, "mismatchLabelKeys", t.MismatchLabelKeys, t.LabelSelector)
	for i, key := range t.MatchLabelKeys {
		// The key's own requirement has been put into the selector before: a
		// second one is the user's.
		if selectorMentions(t.LabelSelector, key) > 1 {
			errs.At("[%d]", i).Invalid("", key, "exists in both matchLabelKeys and labelSelector")
		}
		if slices.Contains(t.MismatchLabelKeys, key) {
			errs.At("matchLabelKeys[%d]", i).Invalid("", key, "exists in both matchLabelKeys and mismatchLabelKeys")
		}
	}
	if t.TopologyKey == "" {
		errs.Required("topologyKey", "can not be empty")
	}
	check.QualifiedName(errs, "topologyKey", t.TopologyKey)
}

// checkSelectorKeys checks keys of labels whose values are taken from the pod.
func checkSelectorKeys(errs *resource.Errors, at string, keys []string, s *metav1.LabelSelector) {
	if len(keys) > 0 && s == nil {
		errs.Forbidden(at, "must not be specified when labelSelector is not set")
		return
	}
	for i, key := range keys {
		check.QualifiedName(errs.At(at+"[%d]", i), "", key)
	}
}

func selectorMentions(s *metav1.LabelSelector, key string) int {
	if s == nil {
		return 0
	}
	n := 0
	if _, ok := s.MatchLabels[key]; ok {
		n++
	}
	for i := range s.MatchExpressions {
		if s.MatchExpressions[i].Key == key {
			n++
		}
	}
	return n
}

// validateSpread checks how pods are to be spread over domains. isPod says that
// the requirements of matchLabelKeys are in the selectors already.
func validateSpread(errs *resource.Errors, constraints []corev1.TopologySpreadConstraint, isPod bool) {
	for i := range constraints {
		c, at := &constraints[i], errs.At("topologySpreadConstraints[%d]", i)
		if c.MaxSkew <= 0 {
			at.Invalid("maxSkew", c.MaxSkew, "must be greater than zero")
		}
		if c.TopologyKey == "" {
			at.Required("topologyKey", "can not be empty")
		}
		check.OneOf(at, "whenUnsatisfiable", c.WhenUnsatisfiable, corev1.DoNotSchedule, corev1.ScheduleAnyway)
		again := func(o corev1.TopologySpreadConstraint) bool {
			return o.TopologyKey == c.TopologyKey && o.WhenUnsatisfiable == c.WhenUnsatisfiable
		}
		if slices.ContainsFunc(constraints[i+1:], again) {
			at.Duplicate("{topologyKey, whenUnsatisfiable}", fmt.Sprintf("{%v, %v}", c.TopologyKey, c.WhenUnsatisfiable))
		}
		if c.MinDomains != nil && *c.MinDomains <= 0 {
			at.Invalid("minDomains", *c.MinDomains, "must be greater than zero")
		}
		if c.MinDomains != nil && c.WhenUnsatisfiable != corev1.DoNotSchedule {
			at.Invalid("minDomains", *c.MinDomains,
				fmt.Sprintf("can only use minDomains if whenUnsatisfiable=%s, not %s", corev1.DoNotSchedule, c.WhenUnsatisfiable))
		}
		if c.NodeAffinityPolicy != nil {
			check.OneOf(at, "nodeAffinityPolicy", *c.NodeAffinityPolicy, corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore)
		}
		if c.NodeTaintsPolicy != nil {
			check.OneOf(at, "nodeTaintsPolicy", *c.NodeTaintsPolicy, corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore)
		}
		checkSelectorKeys(at, "matchLabelKeys", c.MatchLabelKeys, c.LabelSelector)
		allowed := 0
		if isPod {
			allowed = 1
		}
		for j, key := range c.MatchLabelKeys {
			if selectorMentions(c.LabelSelector, key) > allowed {
				at.At("matchLabelKeys[%d]", j).Invalid("", key, "exists in both matchLabelKeys and labelSelector")
			}
		}
		check.LabelSelector(at, "labelSelector", c.LabelSelector)
	}
}

// ValidateTolerations checks which taints a pod puts up with.
func ValidateTolerations(errs *resource.Errors, tolerations []corev1.Toleration) {
	for i := range tolerations {
		t, at := &tolerations[i], errs.At("[%d]", i)
		if t.Key != "" {
			check.QualifiedName(at, "key", t.Key)
		} else if t.Operator != corev1.TolerationOpExists {
			at.Invalid("operator", t.Operator,
				"operator must be Exists when `key` is empty, which means \"match all values and all keys\"")
		}
		if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
			at.Invalid("effect", t.Effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
		}
		switch t.Operator {
		case corev1.TolerationOpEqual, "":
			if msgs := utilvalidation.IsValidLabelValue(t.Value); len(msgs) > 0 {
				at.Invalid("operator", t.Value, strings.Join(msgs, ";"))
			}
		case corev1.TolerationOpExists:
			if t.Value != "" {
				at.Invalid("operator", t.Value, "value must be empty when `operator` is 'Exists'")
			}
		case corev1.TolerationOpLt, corev1.TolerationOpGt:
			if _, err := strconv.ParseInt(t.Value, 10, 64); err != nil {
				at.Invalid("value", t.Value, "must be a valid signed 64-bit integer")
			}
		default:
			resource.NotSupported(at, "operator", t.Operator, corev1.TolerationOpEqual, corev1.TolerationOpExists,
				corev1.TolerationOpLt, corev1.TolerationOpGt)
		}
		if t.Effect != "" {
			check.TaintEffect(at, t.Effect)
		}
	}
}

func NodeAffinity(s *corev1.PodSpec) *corev1.NodeAffinity {
	if s.Affinity == nil {
		return nil
	}
	return s.Affinity.NodeAffinity
}

func RequiredTerms(a *corev1.NodeAffinity) []corev1.NodeSelectorTerm {
	if a == nil || a.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	return a.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
}
