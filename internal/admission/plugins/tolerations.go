package plugins

import (
	"context"
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/client"
)

// extendedResourceToleration lets pods onto nodes that are tainted by the name of an
// extended resource which the pod asks for.
func extendedResourceToleration() admission.Plugin {
	return admission.Plugin{Name: "ExtendedResourceToleration", Mutate: func(_ context.Context, a *admission.Attributes) error {
		pod, ok := a.Object.(*corev1.Pod)
		if !ok || !a.Is(core.Pods.Def, "", admission.Create, admission.Update) {
			return nil
		}
		var names []string
		for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
			for i := range containers {
				for name := range containers[i].Resources.Requests {
					if check.IsExtendedResource(name) && !slices.Contains(names, string(name)) {
						names = append(names, string(name))
					}
				}
			}
		}
		slices.Sort(names)
		for _, name := range names {
			t := corev1.Toleration{Key: name, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
			if !slices.ContainsFunc(pod.Spec.Tolerations, func(o corev1.Toleration) bool { return equality.Semantic.DeepEqual(o, t) }) {
				pod.Spec.Tolerations = append(slices.Clip(pod.Spec.Tolerations), t)
			}
		}
		return nil
	}}
}

// Annotations of namespaces, lists of tolerations in JSON.
const (
	defaultTolerations   = "scheduler.alpha.kubernetes.io/defaultTolerations"
	tolerationsWhitelist = "scheduler.alpha.kubernetes.io/tolerationsWhitelist"
)

// tolerationConfig is what holds for namespaces without the annotations.
type tolerationConfig struct {
	APIVersion string              `json:"apiVersion"`
	Kind       string              `json:"kind"`
	Default    []corev1.Toleration `json:"default"`
	Whitelist  []corev1.Toleration `json:"whitelist"`
}

// podTolerationRestriction gives pods the tolerations that their namespace has for all,
// and refuses those that it does not allow.
func podTolerationRestriction(o *admission.Options) (admission.Plugin, error) {
	r := &tolerationRestriction{o: o, namespaces: admission.Reader(o, core.Namespaces)}
	err := o.Config.Read("PodTolerationRestriction", &r.config, "podtolerationrestriction.admission.k8s.io/v1alpha1 Configuration")
	return admission.Plugin{
		Name: "PodTolerationRestriction",
		Mutate: func(ctx context.Context, a *admission.Attributes) error {
			pod, ok := a.Object.(*corev1.Pod)
			if !ok || !a.Is(core.Pods.Def, "", admission.Create, admission.Update) {
				return nil
			}
			if err := r.add(ctx, a, pod); err != nil {
				return err
			}
			return r.check(ctx, a, pod)
		},
		Validate: func(ctx context.Context, a *admission.Attributes) error {
			if pod, ok := a.Object.(*corev1.Pod); ok && a.Is(core.Pods.Def, "", admission.Create, admission.Update) {
				return r.check(ctx, a, pod)
			}
			return nil
		},
	}, err
}

type tolerationRestriction struct {
	o          *admission.Options
	config     tolerationConfig
	namespaces client.Reader[*corev1.Namespace]
}

// annotated is the list that the pod's namespace has in an annotation; nil if it has none.
func (r *tolerationRestriction) annotated(ctx context.Context, a *admission.Attributes, annotation string) (list []corev1.Toleration, err error) {
	ns, ok, err := admission.Find(ctx, r.o, r.namespaces, "", a.Namespace)
	if err != nil || !ok || ns.Annotations[annotation] == "" {
		return nil, err
	}
	list = []corev1.Toleration{}
	if err := json.Unmarshal([]byte(ns.Annotations[annotation]), &list); err != nil {
		return nil, a.Forbid("annotation %s of namespace %s: %w", annotation, ns.Name, err)
	}
	return list, nil
}

func (r *tolerationRestriction) add(ctx context.Context, a *admission.Attributes, pod *corev1.Pod) error {
	all := pod.Spec.Tolerations
	if a.Operation == admission.Create {
		given, err := r.annotated(ctx, a, defaultTolerations)
		if err != nil {
			return err
		}
		if given == nil {
			given = r.config.Default
		}
		all = mergeTolerations(given, all)
	}
	if core.QOSClass(pod) != corev1.PodQOSBestEffort {
		all = mergeTolerations(all, []corev1.Toleration{{Key: corev1.TaintNodeMemoryPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}})
	}
	pod.Spec.Tolerations = all
	return nil
}

func (r *tolerationRestriction) check(ctx context.Context, a *admission.Attributes, pod *corev1.Pod) error {
	if len(pod.Spec.Tolerations) == 0 {
		return nil
	}
	allowed, err := r.annotated(ctx, a, tolerationsWhitelist)
	if err != nil {
		return err
	}
	scope := "namespace"
	if allowed == nil {
		allowed, scope = r.config.Whitelist, "cluster"
	}
	for i := range pod.Spec.Tolerations {
		t := &pod.Spec.Tolerations[i]
		if len(allowed) > 0 && !slices.ContainsFunc(allowed, func(w corev1.Toleration) bool { return covers(&w, t) }) {
			return a.Forbid("pod tolerations (possibly merged with namespace default tolerations) conflict with its %s whitelist", scope)
		}
	}
	return nil
}

// mergeTolerations are those of both lists that no other of them covers.
func mergeTolerations(first, second []corev1.Toleration) (out []corev1.Toleration) {
	all := slices.Concat(first, second)
	for i := range all {
		covered := false
		for j := range all {
			// Of two that cover each other, the first stays.
			if i != j && covers(&all[j], &all[i]) && (j < i || !covers(&all[i], &all[j])) {
				covered = true
			}
		}
		if !covered {
			out = append(out, all[i])
		}
	}
	return out
}

// covers reports whether a tolerates all that t does, for as long.
func covers(a, t *corev1.Toleration) bool {
	switch {
	case equality.Semantic.DeepEqual(a, t):
		return true
	case a.Key != t.Key && a.Key != "", a.Effect != t.Effect && a.Effect != "":
		return false
	case t.Effect == corev1.TaintEffectNoExecute && a.TolerationSeconds != nil &&
		(t.TolerationSeconds == nil || *t.TolerationSeconds > *a.TolerationSeconds):
		return false
	}
	switch a.Operator {
	case corev1.TolerationOpExists:
		return true
	case corev1.TolerationOpEqual, "":
		return (t.Operator == corev1.TolerationOpEqual || t.Operator == "") && a.Value == t.Value
	}
	return false
}
