package priority

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/scheduling"
	"github.com/kemudi/kemudi/internal/client"
)

// New computes the priority of a pod or a group of pods from its class, and keeps the
// default class the only one.
func New(o *admission.Options) admission.Plugin {
	classes := admission.Reader(o, scheduling.PriorityClasses)
	return admission.Plugin{
		Name: "Priority",
		Mutate: func(ctx context.Context, a *admission.Attributes) error {
			if g, ok := a.Object.(*schedulingv1beta1.PodGroup); ok && a.Is(scheduling.PodGroups.Def, "", admission.Create, admission.Update) {
				return admitGroup(ctx, o, classes, a, g)
			}
			if !a.Is(core.Pods.Def, "", admission.Create, admission.Update) {
				return nil
			}
			pod, ok := a.Object.(*corev1.Pod)
			if !ok {
				return nil
			}
			if a.Operation == admission.Update {
				keepPriority(pod, a.Old)
				return nil
			}
			class, err := classOf(ctx, o, classes, a, &pod.Spec.PriorityClassName)
			if err != nil {
				return err
			}
			return setPriority(a, pod, class)
		},
		Validate: func(_ context.Context, a *admission.Attributes) error {
			if a.Is(scheduling.PriorityClasses.Def, "", admission.Delete) && isSystemClass(a.Name) {
				return a.Forbid("this is a system priority class and cannot be deleted")
			}
			if !a.Is(scheduling.PriorityClasses.Def, "", admission.Create, admission.Update) {
				return nil
			}
			class, ok := a.Object.(*schedulingv1.PriorityClass)
			if !ok || !class.GlobalDefault {
				return nil
			}
			if d := defaultClass(classes); d != nil && (a.Operation == admission.Create || d.Name != class.Name) {
				return a.Forbid("PriorityClass %v is already marked as default. Only one default can exist", d.Name)
			}
			return nil
		},
	}
}

func isSystemClass(name string) bool {
	return slices.ContainsFunc(scheduling.SystemClasses(), func(c *schedulingv1.PriorityClass) bool { return c.Name == name })
}

// keepPriority lets clients that do not know the fields leave them out.
func keepPriority(pod *corev1.Pod, old any) {
	before, ok := old.(*corev1.Pod)
	if !ok {
		return
	}
	if pod.Spec.Priority == nil {
		pod.Spec.Priority = before.Spec.Priority
	}
	if pod.Spec.PreemptionPolicy == nil {
		pod.Spec.PreemptionPolicy = before.Spec.PreemptionPolicy
	}
}

// classOf finds the class of that name; without one it is the default class, if there is
// one, and named.
func classOf(ctx context.Context, o *admission.Options, classes client.Reader[*schedulingv1.PriorityClass], a *admission.Attributes, name *string) (*schedulingv1.PriorityClass, error) {
	if *name == "" {
		class := defaultClass(classes)
		if class != nil {
			*name = class.Name
		}
		return class, nil
	}
	class, ok, err := admission.Find(ctx, o, classes, "", *name)
	if err == nil && !ok {
		err = a.Forbid("no PriorityClass with name %v was found", *name)
	}
	return class, err
}

// admitGroup sets the priority of a new group. One that is there keeps its own, also
// if who changes it leaves it out.
func admitGroup(ctx context.Context, o *admission.Options, classes client.Reader[*schedulingv1.PriorityClass], a *admission.Attributes, g *schedulingv1beta1.PodGroup) error {
	if before, ok := a.Old.(*schedulingv1beta1.PodGroup); ok && a.Operation == admission.Update {
		if g.Spec.Priority == nil {
			g.Spec.Priority = before.Spec.Priority
		}
		return nil
	}
	class, err := classOf(ctx, o, classes, a, &g.Spec.PriorityClassName)
	if err != nil {
		return err
	}
	value := int32(0)
	if class != nil {
		value = class.Value
	}
	if p := g.Spec.Priority; p != nil && *p != value {
		return a.Forbid("the integer value of priority (%d) must not be provided in pod group spec; priority admission controller computed %d from the given PriorityClass name", *p, value)
	}
	g.Spec.Priority = &value
	return nil
}

// defaultClass is the default class of the lowest value, should there be several.
func defaultClass(classes client.Reader[*schedulingv1.PriorityClass]) *schedulingv1.PriorityClass {
	var found *schedulingv1.PriorityClass
	for _, c := range classes.List("", nil) {
		if c.GlobalDefault && (found == nil || c.Value < found.Value) {
			found = c
		}
	}
	return found
}

func setPriority(a *admission.Attributes, pod *corev1.Pod, class *schedulingv1.PriorityClass) error {
	value, policy := int32(0), corev1.PreemptLowerPriority
	if class != nil {
		value = class.Value
		if class.PreemptionPolicy != nil {
			policy = *class.PreemptionPolicy
		}
	}
	if p := pod.Spec.Priority; p != nil && *p != value {
		return a.Forbid("the integer value of priority (%d) must not be provided in pod spec; priority admission controller computed %d from the given PriorityClass name", *p, value)
	}
	if p := pod.Spec.PreemptionPolicy; p != nil && *p != policy {
		return a.Forbid("the string value of PreemptionPolicy (%s) must not be provided in pod spec; priority admission controller computed %s from the given PriorityClass name", *p, policy)
	}
	pod.Spec.Priority, pod.Spec.PreemptionPolicy = &value, &policy
	return nil
}
