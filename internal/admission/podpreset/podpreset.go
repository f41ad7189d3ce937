package podpreset

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/settings"
	"github.com/kemudi/kemudi/internal/client"
)

// Annotations of pods.
const (
	exclude = "podpreset.admission.kubernetes.io/exclude"    // "true": no preset is for this pod
	applied = "podpreset.admission.kubernetes.io/podpreset-" // and a preset's name: its revision
)

// New adds to pods what the PodPresets that select them have. Where one of them and
// the pod, or two of them, say different things, the pod stays as it is and an event
// tells why.
func New(o *admission.Options) admission.Plugin {
	p := &plugin{o, admission.Reader(o, settings.PodPresets)}
	return admission.Plugin{
		Name: "PodPreset",
		Mutate: func(_ context.Context, a *admission.Attributes) error {
			if pod, ok := p.concerns(a); ok {
				return p.apply(a, pod)
			}
			return nil
		},
		// A pod has its UID when it is validated, so that the event can be about it.
		Validate: func(_ context.Context, a *admission.Attributes) error {
			if pod, ok := p.concerns(a); ok && !a.DryRun && o.Events != nil {
				return p.report(a, pod)
			}
			return nil
		},
	}
}

type plugin struct {
	o       *admission.Options
	presets client.Reader[*settings.PodPreset]
}

// concerns returns the pod that is made, unless it wants no presets.
func (p *plugin) concerns(a *admission.Attributes) (*corev1.Pod, bool) {
	pod, ok := a.Object.(*corev1.Pod)
	if !ok || !a.Is(core.Pods.Def, "", admission.Create) || !p.o.Serves(settings.PodPresets.Def) {
		return nil, false
	}
	return pod, !core.IsMirror(pod) && pod.Annotations[exclude] != "true"
}

// matching are copies of the presets that select the pod, by name.
func (p *plugin) matching(a *admission.Attributes, pod *corev1.Pod) (list []*settings.PodPreset, err error) {
	for _, preset := range p.presets.List(a.Namespace, nil) {
		selector, err := metav1.LabelSelectorAsSelector(&preset.Spec.Selector)
		if err != nil {
			return nil, a.Forbid("filtering pod presets failed: label selector conversion failed: %v for selector: %w", preset.Spec.Selector, err)
		}
		if selector.Matches(labels.Set(pod.Labels)) {
			list = append(list, preset.DeepCopyObject().(*settings.PodPreset))
		}
	}
	return list, nil
}

func (p *plugin) apply(a *admission.Attributes, pod *corev1.Pod) error {
	presets, err := p.matching(a, pod)
	if err != nil || len(presets) == 0 {
		return err
	}
	spec, err := merge(&pod.Spec, presets)
	if err != nil {
		return nil // Validate tells of it
	}
	pod.Spec = *spec
	pod.Annotations = maps.Clone(pod.Annotations)
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	for _, preset := range presets {
		pod.Annotations[applied+preset.Name] = preset.ResourceVersion
	}
	return nil
}

// report tells of what kept presets from the pod.
func (p *plugin) report(a *admission.Attributes, pod *corev1.Pod) error {
	presets, err := p.matching(a, pod)
	if err != nil {
		return err
	}
	if _, err := merge(&pod.Spec, presets); err != nil {
		p.o.Events.Event(pod, corev1.EventTypeWarning, "PodPresetConflict", err.Error())
	}
	return nil
}
