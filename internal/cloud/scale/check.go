package scale

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Complete fills in what pools that people wrote do not say, and returns what is wrong with the rest.
func Complete(pools []Pool) error {
	for i := range pools {
		if err := pools[i].complete(); err != nil {
			return fmt.Errorf("pools[%d].%w", i, err)
		}
		if slices.ContainsFunc(pools[:i], func(other Pool) bool { return other.Name == pools[i].Name }) {
			return fmt.Errorf("pools[%d].name: there is another pool %q", i, pools[i].Name)
		}
	}
	return nil
}

func (p *Pool) complete() error {
	if wrong := validation.IsDNS1123Label(p.Name); len(wrong) > 0 {
		return fmt.Errorf("name: %q: %s", p.Name, wrong[0])
	}
	if p.Min < 0 || p.Max < p.Min {
		return fmt.Errorf("min: %d is not between 0 and max, %d", p.Min, p.Max)
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if _, ok := p.Resources[name]; !ok {
			return fmt.Errorf("resources: %s is missing: say how much a machine has for pods", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.Resources)) {
		if amount := p.Resources[name]; amount.Sign() <= 0 {
			return fmt.Errorf("resources[%s]: %s is no amount above zero", name, amount.String())
		}
	}
	if _, ok := p.Resources[corev1.ResourcePods]; !ok {
		p.Resources[corev1.ResourcePods] = apiresource.MustParse(defaultPods)
	}
	for _, key := range slices.Sorted(maps.Keys(p.Labels)) {
		if wrong := slices.Concat(validation.IsQualifiedName(key), validation.IsValidLabelValue(p.Labels[key])); len(wrong) > 0 {
			return fmt.Errorf("labels: %s=%s: %s", key, p.Labels[key], wrong[0])
		}
	}
	for i, t := range p.Taints {
		switch t.Effect {
		case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		default:
			return fmt.Errorf("taints[%d].effect: %q is neither NoSchedule, PreferNoSchedule nor NoExecute", i, t.Effect)
		}
	}
	for _, d := range []struct {
		field    string
		of       *metav1.Duration
		fallback time.Duration
	}{{"idleAfter", &p.IdleAfter, defaultIdleAfter}, {"comeWithin", &p.ComeWithin, defaultComeWithin}} {
		if d.of.Duration < 0 {
			return fmt.Errorf("%s: %s is negative", d.field, d.of.Duration)
		}
		if d.of.Duration == 0 {
			d.of.Duration = d.fallback
		}
	}
	return nil
}
