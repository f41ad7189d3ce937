package apps

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	appsv1beta1 "k8s.io/api/apps/v1beta1"
	appsv1beta2 "k8s.io/api/apps/v1beta2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core/podspec"
	"github.com/kemudi/kemudi/internal/api/core/workload"
	"github.com/kemudi/kemudi/internal/resource"
)

var statefulSets = workload.Kind[*appsv1.StatefulSet]{
	Template: func(s *appsv1.StatefulSet) *corev1.PodTemplateSpec { return &s.Spec.Template },
	Selector: func(s *appsv1.StatefulSet) *metav1.LabelSelector { return s.Spec.Selector },
	Replicas: func(s *appsv1.StatefulSet) **int32 { return &s.Spec.Replicas },
	Current:  func(s *appsv1.StatefulSet) int32 { return s.Status.Replicas },
}

// StatefulSets keep pods with a stable name and storage. What is checked is in
// statefulset_validate.go.
var StatefulSets = resource.Define(resource.Spec[*appsv1.StatefulSet]{
	Names: resource.Names{
		Group: "apps", Version: "v1", Kind: "StatefulSet", Plural: "statefulsets",
		Short: []string{"sts"}, Categories: []string{"all"}, Namespaced: true, NameRule: resource.DNS1123Label,
	},
	HasGeneration: true,
	Needs:         podspec.NeedsGroups(func(s *appsv1.StatefulSet) *corev1.PodSpec { return &s.Spec.Template.Spec }),
	Default:       defaultStatefulSet,
	Prepare: func(obj, old *appsv1.StatefulSet) {
		podspec.DropUnsupported(&obj.Spec.Template.Spec)
		if old == nil {
			obj.Status = appsv1.StatefulSetStatus{}
			return
		}
		obj.Status = old.Status
	},
	Validate: validateStatefulSet,
	Warn: func(obj, old *appsv1.StatefulSet) []string {
		warnings := statefulSets.Warn(obj, old)
		if ptr.Deref(obj.Spec.RevisionHistoryLimit, 0) < 0 {
			warnings = append(warnings, "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended")
		}
		return warnings
	},
	Columns: statefulSets.Columns([]resource.Column[*appsv1.StatefulSet]{
		{Name: "Ready", Description: "Number of the pod with ready state", Value: func(s *appsv1.StatefulSet) any {
			return fmt.Sprintf("%d/%d", s.Status.ReadyReplicas, ptr.Deref(s.Spec.Replicas, 0))
		}},
	}...),
	Sub: []resource.Sub[*appsv1.StatefulSet]{
		{
			Name:     "status",
			Merge:    func(obj, old *appsv1.StatefulSet) { obj.Spec = old.Spec },
			Validate: validateStatefulSetStatus,
		},
		statefulSets.Scale(),
	},
	Versions: []resource.Version[*appsv1.StatefulSet]{
		typedClaims(resource.SameWire[*appsv1beta2.StatefulSet](resource.Version[*appsv1.StatefulSet]{
			Group: "apps", Version: "v1beta2",
			Deprecated:         "apps/v1beta2 StatefulSet is deprecated in v1.9+, unavailable in v1.16+; use apps/v1 StatefulSet",
			DefaultPropagation: metav1.DeletePropagationOrphan,
			Sub:                []resource.Sub[*appsv1.StatefulSet]{scaleV1beta2(statefulSets)},
		})),
		typedClaims(resource.SameWire[*appsv1beta1.StatefulSet](resource.Version[*appsv1.StatefulSet]{
			Group: "apps", Version: "v1beta1",
			Deprecated: "apps/v1beta1 StatefulSet is deprecated in v1.8+, unavailable in v1.16+; use apps/v1 StatefulSet",
			Default: func(obj resource.Object) {
				s := obj.(*appsv1beta1.StatefulSet)
				defaultSelector(&s.ObjectMeta, &s.Spec.Selector, &s.Spec.Template)
				if s.Spec.UpdateStrategy.Type == "" {
					s.Spec.UpdateStrategy.Type = appsv1beta1.OnDeleteStatefulSetStrategyType
				}
			},
			DefaultPropagation: metav1.DeletePropagationOrphan,
			Sub:                []resource.Sub[*appsv1.StatefulSet]{scaleV1beta1(statefulSets)},
		})),
	},
})

// setClaimTypes says of claim templates what they are. Their protobuf form has no
// place for it, but clients always see it.
func setClaimTypes(claims []corev1.PersistentVolumeClaim) {
	for i := range claims {
		claims[i].APIVersion, claims[i].Kind = "v1", "PersistentVolumeClaim"
	}
}

// typedClaims does so in what a version shows, which is converted by way of protobuf.
func typedClaims(v resource.Version[*appsv1.StatefulSet]) resource.Version[*appsv1.StatefulSet] {
	from := v.From
	v.From = func(obj *appsv1.StatefulSet) (resource.Object, error) {
		out, err := from(obj)
		switch s := out.(type) {
		case *appsv1beta1.StatefulSet:
			setClaimTypes(s.Spec.VolumeClaimTemplates)
		case *appsv1beta2.StatefulSet:
			setClaimTypes(s.Spec.VolumeClaimTemplates)
		}
		return out, err
	}
	return v
}

func defaultStatefulSet(obj *appsv1.StatefulSet) {
	s := &obj.Spec
	podspec.DefaultTemplate(&s.Template)
	setClaimTypes(s.VolumeClaimTemplates)
	for i := range s.VolumeClaimTemplates {
		c := &s.VolumeClaimTemplates[i]
		if c.Status.Phase == "" {
			c.Status.Phase = corev1.ClaimPending
		}
		if c.Spec.VolumeMode == nil {
			c.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeFilesystem)
		}
	}
	if s.PodManagementPolicy == "" {
		s.PodManagementPolicy = appsv1.OrderedReadyPodManagement
	}
	if s.UpdateStrategy.Type == "" {
		s.UpdateStrategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
	}
	if s.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType {
		if s.UpdateStrategy.RollingUpdate == nil {
			s.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{}
		}
		if s.UpdateStrategy.RollingUpdate.Partition == nil {
			s.UpdateStrategy.RollingUpdate.Partition = ptr.To[int32](0)
		}
		if s.UpdateStrategy.RollingUpdate.MaxUnavailable == nil {
			s.UpdateStrategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromInt32(1))
		}
	}
	if s.PersistentVolumeClaimRetentionPolicy == nil {
		s.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{}
	}
	if p := s.PersistentVolumeClaimRetentionPolicy; p.WhenDeleted == "" {
		p.WhenDeleted = appsv1.RetainPersistentVolumeClaimRetentionPolicyType
	}
	if p := s.PersistentVolumeClaimRetentionPolicy; p.WhenScaled == "" {
		p.WhenScaled = appsv1.RetainPersistentVolumeClaimRetentionPolicyType
	}
	if s.Replicas == nil {
		s.Replicas = ptr.To[int32](1)
	}
	if s.RevisionHistoryLimit == nil {
		s.RevisionHistoryLimit = ptr.To[int32](10)
	}
}
