package plugins

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	declared "k8s.io/component-helpers/nodedeclaredfeatures"
	declaredtypes "k8s.io/component-helpers/nodedeclaredfeatures/types"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/version"
)

// podTopologyLabels has pods bear the labels of their node that say where it is, whatever they said themselves:
// by the downward API they learn it (KEP-4742).
func podTopologyLabels(o *admission.Options) admission.Plugin {
	nodes := admission.Reader(o, core.Nodes)
	label := func(obj *metav1.ObjectMeta, node string) {
		n, ok := nodes.Get("", node)
		if !ok {
			return // who binds knows of nodes before the caches do
		}
		for _, key := range []string{corev1.LabelTopologyZone, corev1.LabelTopologyRegion} {
			if value, ok := n.Labels[key]; ok {
				metav1.SetMetaDataLabel(obj, key, value)
			}
		}
	}
	return admission.Plugin{Name: "PodTopologyLabels", Mutate: func(_ context.Context, a *admission.Attributes) error {
		switch obj := a.Object.(type) {
		case *corev1.Binding:
			if a.Is(core.Pods.Def, "binding", admission.Create) && obj.Target.Kind == "Node" {
				label(&obj.ObjectMeta, obj.Target.Name)
			}
		case *corev1.Pod:
			if a.Is(core.Pods.Def, "", admission.Create) && obj.Spec.NodeName != "" {
				label(&obj.ObjectMeta, obj.Spec.NodeName)
			}
		}
		return nil
	}}
}

// respecified returns the pod of a write that changes what a pod on a node is to be, by one of the subresources, and that pod as it was;
// nil: it is another write.
func respecified(a *admission.Attributes, subs ...string) (pod, old *corev1.Pod) {
	pod, ok := a.Object.(*corev1.Pod)
	was, _ := a.Old.(*corev1.Pod)
	if !ok || was == nil || pod.Spec.NodeName == "" || pod.Generation == was.Generation {
		return nil, nil
	}
	for _, sub := range subs {
		if a.Is(core.Pods.Def, sub, admission.Update) {
			return pod, was
		}
	}
	return nil, nil
}

// hostOf returns the node that a pod is on.
func hostOf(ctx context.Context, o *admission.Options, a *admission.Attributes, pod *corev1.Pod) (*corev1.Node, error) {
	n, ok, err := admission.Find(ctx, o, admission.Reader(o, core.Nodes), "", pod.Spec.NodeName)
	if err == nil && !ok {
		err = a.Forbid("node %q not found", pod.Spec.NodeName)
	}
	return n, err
}

// nodeDeclaredFeatures refuses changes of pods that need what their node does not say that it can (KEP-5328).
func nodeDeclaredFeatures(o *admission.Options) admission.Plugin {
	ours := utilversion.MustParseSemantic(version.Kubernetes)
	return admission.Plugin{Name: "NodeDeclaredFeatureValidator", Validate: func(ctx context.Context, a *admission.Attributes) error {
		pod, old := respecified(a, "", "resize")
		if pod == nil {
			return nil
		}
		was, is := declaredtypes.PodInfo{Spec: &old.Spec, Status: &old.Status}, declaredtypes.PodInfo{Spec: &pod.Spec, Status: &pod.Status}
		needs, err := declared.DefaultFramework.InferForPodUpdate(&was, &is, ours)
		if err != nil {
			return a.Forbid("failed to infer pod capability requirements: %w", err)
		}
		if needs.IsEmpty() {
			return nil
		}
		n, err := hostOf(ctx, o, a, pod)
		if err != nil {
			return err
		}
		match, err := declared.DefaultFramework.MatchNode(needs, n)
		if err != nil {
			return a.Forbid("failed to match pod requirements against node %q: %w", n.Name, err)
		}
		if !match.IsMatch {
			return a.Forbid("pod update requires features %s which are not available on node %q", strings.Join(match.UnsatisfiedRequirements, ", "), n.Name)
		}
		return nil
	}}
}

// podResize refuses to give a pod more than its node has at all, and what only nodes with Linux can do.
func podResize(o *admission.Options) admission.Plugin {
	return admission.Plugin{Name: "PodResizeValidator", Validate: func(ctx context.Context, a *admission.Attributes) error {
		pod, _ := respecified(a, "resize")
		if pod == nil {
			return nil
		}
		n, err := hostOf(ctx, o, a, pod)
		if err != nil {
			return err
		}
		if system, ok := n.Labels[corev1.LabelOSStable]; ok && system != string(corev1.Linux) {
			return because(a.Forbid("pod resize is only supported on linux nodes, node %q is %q", n.Name, system), "UnsupportedPlatform")
		}
		requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
		var lacks []string
		if want, have := requests.Cpu().MilliValue(), n.Status.Allocatable.Cpu().MilliValue(); want > have {
			lacks = append(lacks, fmt.Sprintf("cpu, requested: %d, allocatable: %d", want, have))
		}
		if want, have := requests.Memory().Value(), n.Status.Allocatable.Memory().Value(); want > have {
			lacks = append(lacks, fmt.Sprintf("memory, requested: %d, allocatable: %d", want, have))
		}
		if len(lacks) > 0 {
			return because(a.Forbid("node didn't have enough allocatable resources: %s", strings.Join(lacks, "; ")), "NodeCapacity")
		}
		return nil
	}}
}

// because adds a cause that programs look for to an answer.
func because(err error, cause metav1.CauseType) error {
	if status := (&apierrors.StatusError{}); errors.As(err, &status) {
		status.ErrStatus.Details.Causes = append(status.ErrStatus.Details.Causes, metav1.StatusCause{Type: cause})
	}
	return err
}
