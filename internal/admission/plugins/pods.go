package plugins

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/node"
)

// defaultTolerationSeconds lets pods stay for a while on nodes that are not
// ready or not reachable.
func defaultTolerationSeconds(o *admission.Options) admission.Plugin {
	seconds := map[string]int64{
		corev1.TaintNodeNotReady:    ptr.Deref(o.Stay.NotReady, admission.DefaultStay),
		corev1.TaintNodeUnreachable: ptr.Deref(o.Stay.Unreachable, admission.DefaultStay),
	}
	return admission.Plugin{Name: "DefaultTolerationSeconds", Mutate: func(_ context.Context, a *admission.Attributes) error {
		pod, ok := a.Object.(*corev1.Pod)
		if !ok || !a.Is(core.Pods.Def, "", admission.Create, admission.Update) {
			return nil
		}
		for _, taint := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
			if !toleratesEviction(pod, taint) {
				pod.Spec.Tolerations = append(slices.Clip(pod.Spec.Tolerations), corev1.Toleration{
					Key: taint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(seconds[taint]),
				})
			}
		}
		return nil
	}}
}

func toleratesEviction(pod *corev1.Pod, taint string) bool {
	return slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
		return (t.Key == taint || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "")
	})
}

// limitPodHardAntiAffinityTopology refuses required anti-affinity over anything
// larger than a node: it can keep others' pods out of whole zones.
func limitPodHardAntiAffinityTopology() admission.Plugin {
	return admission.ForPods("LimitPodHardAntiAffinityTopology", func(_ context.Context, a *admission.Attributes, pod *corev1.Pod) error {
		if pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAntiAffinity == nil {
			return nil
		}
		for _, t := range pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
			if t.TopologyKey != corev1.LabelHostname {
				return a.Forbid("affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey %v but only key %v is allowed", t.TopologyKey, corev1.LabelHostname)
			}
		}
		return nil
	})
}

// alwaysPullImages makes nodes ask the registry for every container, so that
// only who may pull an image can use it.
func alwaysPullImages() admission.Plugin {
	return admission.ForPods("AlwaysPullImages", func(_ context.Context, _ *admission.Attributes, pod *corev1.Pod) error {
		for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range containers {
				containers[i].ImagePullPolicy = corev1.PullAlways
			}
		}
		return nil
	})
}

// nodeSelectorAnnotation is a namespace's restriction of where its pods run.
const nodeSelectorAnnotation = "scheduler.alpha.kubernetes.io/node-selector"

// nodeSelectors is how the plugin is configured: by namespace the labels that the selectors
// of its pods may have, and a selector for pods of namespaces without one.
type nodeSelectors struct {
	Config map[string]string `json:"podNodeSelectorPluginConfig"`
}

const clusterNodeSelector = "clusterDefaultNodeSelector"

// podNodeSelector adds the selector of a pod's namespace to the pod's own.
func podNodeSelector(o *admission.Options) (admission.Plugin, error) {
	namespaces := admission.Reader(o, core.Namespaces)
	var configured nodeSelectors
	err := o.Config.Read("PodNodeSelector", &configured)
	selectors := map[string]labels.Set{}
	for name, text := range configured.Config {
		var bad error
		if selectors[name], bad = labels.ConvertSelectorToLabelsMap(text); bad != nil {
			err = admission.Misconfigured("PodNodeSelector", fmt.Errorf("podNodeSelectorPluginConfig.%s: %w", name, bad))
		}
	}
	return admission.ForPods("PodNodeSelector", func(ctx context.Context, a *admission.Attributes, pod *corev1.Pod) error {
		ns, ok, err := admission.Find(ctx, o, namespaces, "", a.Namespace)
		if err != nil || !ok {
			return err
		}
		selector := selectors[clusterNodeSelector]
		if text, ok := ns.Annotations[nodeSelectorAnnotation]; ok {
			if selector, err = labels.ConvertSelectorToLabelsMap(text); err != nil {
				return a.Forbid("selector of namespace %s: %w", ns.Name, err)
			}
		}
		if labels.Conflicts(selector, pod.Spec.NodeSelector) {
			return a.Forbid("pod node label selector conflicts with its namespace node label selector")
		}
		pod.Spec.NodeSelector = labels.Merge(selector, pod.Spec.NodeSelector)
		allowed := selectors[ns.Name]
		for k, v := range pod.Spec.NodeSelector {
			if own, ok := allowed[k]; len(allowed) > 0 && (!ok || own != v) {
				return a.Forbid("pod node label selector labels conflict with its namespace whitelist")
			}
		}
		return nil
	}), err
}

// runtimeClass takes over what a pod's runtime class says of overhead and of
// the nodes that have it.
func runtimeClass(o *admission.Options) admission.Plugin {
	classes := admission.Reader(o, node.RuntimeClasses)
	return admission.ForPods("RuntimeClass", func(ctx context.Context, a *admission.Attributes, pod *corev1.Pod) error {
		if pod.Spec.RuntimeClassName == nil {
			if len(pod.Spec.Overhead) > 0 {
				return a.Forbid("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
			}
			return nil
		}
		class, ok, err := admission.Find(ctx, o, classes, "", *pod.Spec.RuntimeClassName)
		switch {
		case err != nil:
			return err
		case !ok:
			return a.Forbid("pod rejected: RuntimeClass %q not found", *pod.Spec.RuntimeClassName)
		}
		switch {
		case class.Overhead == nil:
			if len(pod.Spec.Overhead) > 0 {
				return a.Forbid("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
			}
		case len(pod.Spec.Overhead) > 0 && !equality.Semantic.DeepEqual(class.Overhead.PodFixed, pod.Spec.Overhead):
			return a.Forbid("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
		default:
			pod.Spec.Overhead = class.Overhead.PodFixed.DeepCopy()
		}
		if class.Scheduling == nil {
			return nil
		}
		if err := addSelector(pod, class.Scheduling.NodeSelector); err != nil {
			return a.Forbid("%w", err)
		}
		for _, t := range class.Scheduling.Tolerations {
			if !slices.ContainsFunc(pod.Spec.Tolerations, func(o corev1.Toleration) bool { return equality.Semantic.DeepEqual(o, t) }) {
				pod.Spec.Tolerations = append(slices.Clip(pod.Spec.Tolerations), t)
			}
		}
		return nil
	})
}

func addSelector(pod *corev1.Pod, selector map[string]string) error {
	merged := map[string]string{}
	for k, v := range pod.Spec.NodeSelector {
		merged[k] = v
	}
	for k, v := range selector {
		if own, ok := merged[k]; ok && own != v {
			return fmt.Errorf("conflict: runtimeClass.scheduling.nodeSelector[%s] = %s; pod.spec.nodeSelector[%s] = %s", k, v, k, own)
		}
		merged[k] = v
	}
	if len(merged) > 0 {
		pod.Spec.NodeSelector = merged
	}
	return nil
}
