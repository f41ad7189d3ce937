package node

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	nodev1alpha1 "k8s.io/api/node/v1alpha1"
	nodev1beta1 "k8s.io/api/node/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/api/core/podspec"
	"github.com/kemudi/kemudi/internal/resource"
)

// RuntimeClasses is the container runtimes that pods may ask for by name.
var RuntimeClasses = resource.Define(resource.Spec[*nodev1.RuntimeClass]{
	Names:    resource.Names{Group: "node.k8s.io", Version: "v1", Kind: "RuntimeClass", Plural: "runtimeclasses"},
	Update:   resource.UpdateCreates | resource.UpdateNeedsRevision,
	Validate: validateRuntimeClass,
	Warn:     warnRuntimeClass,
	Columns: []resource.Column[*nodev1.RuntimeClass]{{
		Name: "Handler", Description: nodev1.RuntimeClass{}.SwaggerDoc()["handler"],
		Value: func(c *nodev1.RuntimeClass) any { return c.Handler },
	}},
	Versions: []resource.Version[*nodev1.RuntimeClass]{
		resource.SameWire[*nodev1beta1.RuntimeClass](resource.Version[*nodev1.RuntimeClass]{
			Group: "node.k8s.io", Version: "v1beta1",
			Deprecated: "node.k8s.io/v1beta1 RuntimeClass is deprecated in v1.22+, unavailable in v1.25+",
		}),
		{
			Group: "node.k8s.io", Version: "v1alpha1",
			New: func() resource.Object { return &nodev1alpha1.RuntimeClass{} },
			To: func(obj resource.Object) (*nodev1.RuntimeClass, error) {
				return fromAlpha(obj.(*nodev1alpha1.RuntimeClass)), nil
			},
			From: func(c *nodev1.RuntimeClass) (resource.Object, error) { return toAlpha(c), nil },
		},
	},
})

func validateRuntimeClass(c, old *nodev1.RuntimeClass, errs *resource.Errors) {
	if c.Handler == "" {
		errs.Required("handler", "")
	} else {
		check.DNSLabel(errs, "handler", c.Handler)
	}
	if old != nil && c.Handler != old.Handler {
		errs.Immutable("handler", c.Handler)
	}
	if c.Overhead != nil {
		needs := corev1.ResourceRequirements{Limits: c.Overhead.PodFixed}
		check.Requirements(errs.At("overhead.podFixed"), &needs, nil, check.ContainerResourceName)
	}
	if c.Scheduling == nil {
		return
	}
	check.Labels(errs, "scheduling.nodeSelector", c.Scheduling.NodeSelector)
	tolerations := c.Scheduling.Tolerations
	podspec.ValidateTolerations(errs.At("scheduling.tolerations"), tolerations)
	for i := range tolerations {
		same := func(o corev1.Toleration) bool { return equality.Semantic.DeepEqual(o, tolerations[i]) }
		if slices.ContainsFunc(tolerations[:i], same) {
			errs.At("scheduling.tolerations[%d]", i).Duplicate("", tolerations[i])
		}
	}
}

// In v1alpha1 there is a spec, and the handler has another name.

func fromAlpha(c *nodev1alpha1.RuntimeClass) *nodev1.RuntimeClass {
	out := &nodev1.RuntimeClass{ObjectMeta: c.ObjectMeta, Handler: c.Spec.RuntimeHandler}
	if o := c.Spec.Overhead; o != nil {
		out.Overhead = &nodev1.Overhead{PodFixed: o.PodFixed}
	}
	if s := c.Spec.Scheduling; s != nil {
		out.Scheduling = &nodev1.Scheduling{NodeSelector: s.NodeSelector, Tolerations: s.Tolerations}
	}
	return out
}

func toAlpha(c *nodev1.RuntimeClass) *nodev1alpha1.RuntimeClass {
	out := &nodev1alpha1.RuntimeClass{ObjectMeta: c.ObjectMeta, Spec: nodev1alpha1.RuntimeClassSpec{RuntimeHandler: c.Handler}}
	if o := c.Overhead; o != nil {
		out.Spec.Overhead = &nodev1alpha1.Overhead{PodFixed: o.PodFixed}
	}
	if s := c.Scheduling; s != nil {
		out.Spec.Scheduling = &nodev1alpha1.Scheduling{NodeSelector: s.NodeSelector, Tolerations: s.Tolerations}
	}
	return out
}

// warnRuntimeClass says which labels that are asked of nodes have other names now.
func warnRuntimeClass(c, _ *nodev1.RuntimeClass) []string {
	var w check.Warnings
	if c.Scheduling != nil {
		for _, key := range slices.Sorted(maps.Keys(c.Scheduling.NodeSelector)) {
			if detail, is := podspec.OldNodeLabel(key); is {
				w.Add("scheduling.nodeSelector: %s", detail)
			}
		}
	}
	return w
}
