package quota

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/api/core/usage"
	"github.com/kemudi/kemudi/internal/resource"
)

// configuration is what the plugin may be told.
type configuration struct {
	APIVersion       string    `json:"apiVersion"`
	Kind             string    `json:"kind"`
	LimitedResources []limited `json:"limitedResources"`
}

// limited are amounts and scopes that nobody has without a quota that is about them.
type limited struct {
	APIGroup      string                                     `json:"apiGroup"`
	Resource      string                                     `json:"resource"`
	MatchContains []string                                   `json:"matchContains"` // what the names of the amounts contain
	MatchScopes   []corev1.ScopedResourceSelectorRequirement `json:"matchScopes"`
}

// read reads what the plugin is told.
func read(c admission.Configurations, name string) ([]limited, error) {
	var told configuration
	err := c.Read(name, &told,
		"apiserver.config.k8s.io/v1 ResourceQuotaConfiguration", "resourcequota.admission.k8s.io/v1 Configuration",
		"resourcequota.admission.k8s.io/v1beta1 Configuration", "resourcequota.admission.k8s.io/v1alpha1 Configuration")
	if err != nil {
		return nil, err
	}
	for i := range told.LimitedResources {
		if told.LimitedResources[i].Resource == "" {
			return nil, admission.Misconfigured(name, field.Required(field.NewPath("limitedResources").Index(i).Child("resource"), ""))
		}
	}
	return told.LimitedResources, nil
}

// limits are those that are about objects of a resource.
func (p *plugin) limits(def *resource.Def) []limited {
	if len(p.limited) == 0 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(p.limited), func(l limited) bool { return l.APIGroup != def.Group || l.Resource != def.Plural })
}

// covered refuses a write that takes something that is limited, and that none of the
// quotas is about.
func (w *write) covered(limits []limited, quotas []*corev1.ResourceQuota) error {
	var names []string
	var wanted []corev1.ScopedResourceSelectorRequirement
	for _, l := range limits {
		for _, name := range w.after.Names(time.Now()) {
			if slices.ContainsFunc(l.MatchContains, func(part string) bool { return strings.Contains(string(name), part) }) && !slices.Contains(names, string(name)) {
				names = append(names, string(name))
			}
		}
		wanted = append(wanted, w.counter.InWhich(l.MatchScopes, w.obj)...)
	}
	for _, q := range quotas {
		if w.counter.In(q, w.obj) {
			names = slices.DeleteFunc(names, func(name string) bool {
				_, ok := q.Status.Hard[corev1.ResourceName(name)]
				return ok
			})
		}
		about := w.counter.InWhich(usage.Scopes(q), w.obj)
		wanted = slices.DeleteFunc(wanted, func(s corev1.ScopedResourceSelectorRequirement) bool {
			return slices.ContainsFunc(about, func(a corev1.ScopedResourceSelectorRequirement) bool { return a.ScopeName == s.ScopeName })
		})
	}
	switch {
	case len(names) > 0:
		slices.Sort(names)
		return fmt.Errorf("insufficient quota to consume: %s", strings.Join(names, ","))
	case len(wanted) > 0:
		return fmt.Errorf("insufficient quota to match these scopes: %v", wanted)
	}
	return nil
}
