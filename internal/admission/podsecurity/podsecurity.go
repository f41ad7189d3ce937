package podsecurity

import (
	"context"
	"fmt"
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
)

// name is the plugin's.
const name = "PodSecurity"

type plugin struct {
	o          *admission.Options
	config     configuration
	defaults   api.Policy // of namespaces without labels
	namespaces client.Reader[*corev1.Namespace]
	pods       client.Reader[*corev1.Pod]
	evaluator  func() policy.Evaluator
	metrics    *metrics
}

// New refuses pods that are less secure than their namespace demands, and warns of
// pods and templates that are less secure than it wants.
func New(o *admission.Options) (admission.Plugin, error) {
	config, defaults, err := readConfig(o)
	if err != nil {
		return admission.Plugin{Name: "PodSecurity"}, err
	}
	p := &plugin{
		o: o, config: config, defaults: defaults,
		namespaces: admission.Reader(o, core.Namespaces), pods: admission.Reader(o, core.Pods),
		// Most clusters never need it.
		evaluator: sync.OnceValue(func() policy.Evaluator {
			e, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
			if err != nil {
				panic(fmt.Sprintf("the library's own checks contradict each other: %v", err))
			}
			return e
		}),
		metrics: newMetrics(o.Registry),
	}
	return admission.Plugin{Name: "PodSecurity", Validate: p.validate}, nil
}

func (p *plugin) validate(ctx context.Context, a *admission.Attributes) error {
	if a.Operation != admission.Create && a.Operation != admission.Update {
		return nil
	}
	if a.Def == core.Namespaces.Def {
		return p.namespace(a)
	}
	meta, spec := template(a.Object)
	switch {
	case spec == nil:
		return nil
	case a.Def == core.Pods.Def:
		return p.pod(ctx, a, meta, spec)
	case a.Sub == "":
		return p.check(ctx, a, &subject{meta: meta, spec: spec, kind: "controller"})
	}
	return nil
}

// template is the pod that an object is or makes; nil if it makes none.
func template(obj runtime.Object) (*metav1.ObjectMeta, *corev1.PodSpec) {
	of := func(t *corev1.PodTemplateSpec) (*metav1.ObjectMeta, *corev1.PodSpec) { return &t.ObjectMeta, &t.Spec }
	switch o := obj.(type) {
	case *corev1.Pod:
		return &o.ObjectMeta, &o.Spec
	case *corev1.PodTemplate:
		return of(&o.Template)
	case *corev1.ReplicationController:
		if o.Spec.Template != nil {
			return of(o.Spec.Template)
		}
	case *appsv1.ReplicaSet:
		return of(&o.Spec.Template)
	case *appsv1.Deployment:
		return of(&o.Spec.Template)
	case *appsv1.DaemonSet:
		return of(&o.Spec.Template)
	case *appsv1.StatefulSet:
		return of(&o.Spec.Template)
	case *batchv1.Job:
		return of(&o.Spec.Template)
	case *batchv1.CronJob:
		return of(&o.Spec.JobTemplate.Spec.Template)
	}
	return nil, nil
}

// harmless are the subresources by which the spec of a pod does not change.
var harmless = []string{"exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"}

func (p *plugin) pod(ctx context.Context, a *admission.Attributes, meta *metav1.ObjectMeta, spec *corev1.PodSpec) error {
	if slices.Contains(harmless, a.Sub) {
		return nil
	}
	s := &subject{meta: meta, spec: spec, kind: "pod", enforced: true}
	if old, ok := a.Old.(*corev1.Pod); ok && a.Operation == admission.Update && sameImages(spec, &old.Spec) {
		s.same = true
	}
	return p.check(ctx, a, s)
}

// sameImages reports whether an update of a pod leaves alone what the standards look
// at: of what may change, that is which containers there are and of which images.
func sameImages(spec, old *corev1.PodSpec) bool {
	same := func(a, b corev1.Container) bool { return a.Image == b.Image }
	if !slices.EqualFunc(spec.Containers, old.Containers, same) || !slices.EqualFunc(spec.InitContainers, old.InitContainers, same) {
		return false
	}
	for _, c := range spec.EphemeralContainers {
		if !slices.ContainsFunc(old.EphemeralContainers, func(o corev1.EphemeralContainer) bool { return o.Name == c.Name && o.Image == c.Image }) {
			return false
		}
	}
	return true
}

// A subject is what the standards are held against.
type subject struct {
	meta     *metav1.ObjectMeta
	spec     *corev1.PodSpec
	kind     string // in metrics
	enforced bool   // it may be refused
	same     bool   // it has passed before
}

// check holds what the namespace asks for against the subject.
func (p *plugin) check(ctx context.Context, a *admission.Attributes, s *subject) error {
	switch {
	case slices.Contains(p.config.Exemptions.Namespaces, a.Namespace):
		p.exempt(a, s, "namespace")
		return nil
	case slices.Contains(p.config.Exemptions.Usernames, a.User.GetName()):
		p.exempt(a, s, "user")
		return nil
	}
	ns, ok, err := admission.Find(ctx, p.o, p.namespaces, "", a.Namespace)
	if err == nil && !ok {
		err = apierrors.NewNotFound(corev1.Resource("namespaces"), a.Namespace)
	}
	if err != nil {
		p.metrics.failed(a, s.kind, true)
		a.Audit.Annotate("pod-security.kubernetes.io/error", fmt.Sprintf("failed to lookup namespace %q: %v", a.Namespace, err))
		if !s.enforced {
			return nil
		}
		return apierrors.NewInternalError(fmt.Errorf("failed to lookup namespace %q", a.Namespace))
	}
	asked, faults := api.PolicyToEvaluate(ns.Labels, p.defaults)
	if len(faults) == 0 && asked.FullyPrivileged() {
		if s.enforced {
			p.metrics.evaluated(a, s.kind, verdict{"allow", "enforce", asked.Enforce})
			a.Audit.Annotate("pod-security.kubernetes.io/enforce-policy", "privileged:latest")
		}
		return nil
	}
	if class := s.spec.RuntimeClassName; class != nil && slices.Contains(p.config.Exemptions.RuntimeClasses, *class) {
		p.exempt(a, s, "runtimeClass")
		return nil
	}
	if s.same {
		return nil
	}
	if len(faults) > 0 {
		p.metrics.failed(a, s.kind, false)
		a.Audit.Annotate("pod-security.kubernetes.io/error", fmt.Sprintf("Failed to parse policy: %v", faults.ToAggregate()))
	}
	return p.evaluate(a, s, &asked)
}

// exempt notes that a subject is exempt, and by what.
func (p *plugin) exempt(a *admission.Attributes, s *subject, by string) {
	p.metrics.exempt(a, s.kind)
	a.Audit.Annotate("pod-security.kubernetes.io/exempt", by)
}

// evaluate refuses what the namespace enforces, counts what it audits, and warns.
func (p *plugin) evaluate(a *admission.Attributes, s *subject, asked *api.Policy) error {
	known := map[api.LevelVersion]policy.AggregateCheckResult{}
	against := func(lv api.LevelVersion) policy.AggregateCheckResult {
		r, ok := known[lv]
		if !ok {
			r = policy.AggregateCheckResults(p.evaluator().EvaluatePod(lv, s.meta, s.spec))
			known[lv] = r
		}
		return r
	}
	var refused error
	if s.enforced {
		r, decision := against(asked.Enforce), "allow"
		if !r.Allowed {
			decision, refused = "deny", a.Forbid("violates PodSecurity %q: %s", asked.Enforce.String(), r.ForbiddenDetail())
		}
		p.metrics.evaluated(a, s.kind, verdict{decision, "enforce", asked.Enforce})
		if a.Audit != nil {
			a.Audit.Annotate("pod-security.kubernetes.io/enforce-policy", asked.Enforce.String())
		}
	}
	if r := against(asked.Audit); !r.Allowed {
		a.Audit.Annotate("pod-security.kubernetes.io/audit-violations", fmt.Sprintf("would violate PodSecurity %q: %s", asked.Audit.String(), r.ForbiddenDetail()))
		p.metrics.evaluated(a, s.kind, verdict{"deny", "audit", asked.Audit})
	}
	if refused != nil {
		return refused
	}
	if r := against(asked.Warn); !r.Allowed {
		a.Warn(fmt.Sprintf("would violate PodSecurity %q: %s", asked.Warn.String(), r.ForbiddenDetail()))
		p.metrics.evaluated(a, s.kind, verdict{"deny", "warn", asked.Warn})
	}
	return nil
}
