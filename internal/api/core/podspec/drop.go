package podspec

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/scheduling"
	"github.com/kemudi/kemudi/internal/resource"
)

// DropUnsupported takes away fields of features that are alpha in this
// version, as a server with its default feature gates does: a client then sees
// that they had no effect. It writes only where there is something to drop: parts
// of s may be shared with a stored object.
func DropUnsupported(s *corev1.PodSpec) {
	s.EvictionResponders = nil
	for i := range s.Volumes {
		dropUnsupportedVolumeFields(&s.Volumes[i])
	}
	eachContainer(resource.NewErrors(), s, func(_ *resource.Errors, c *corev1.Container) {
		for i := range c.VolumeMounts {
			if c.VolumeMounts[i].BindMountOptions != nil {
				c.VolumeMounts[i].BindMountOptions = nil
			}
		}
		for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
			if p != nil && p.HTTPGet != nil {
				unset(&p.HTTPGet.Protocol)
			}
			if p != nil && p.GRPC != nil {
				unset(&p.GRPC.Mode)
			}
		}
	})
}

// NeedsGroups says of a kind with the spec of pods that their group is dropped where
// groups are not served.
func NeedsGroups[T resource.Object](spec func(obj T) *corev1.PodSpec) []resource.Need[T] {
	return []resource.Need[T]{{Served: scheduling.PodGroups.Def, Drop: func(obj, old T) {
		if any(old) != any(*new(T)) && inGroup(spec(old)) {
			return
		}
		if s := spec(obj); inGroup(s) {
			s.SchedulingGroup = nil
		}
	}}}
}

func inGroup(s *corev1.PodSpec) bool { return s != nil && s.SchedulingGroup != nil }

func dropUnsupportedVolumeFields(v *corev1.Volume) {
	if v.EmptyDir != nil {
		unset(&v.EmptyDir.Mode)
	}
	if v.Secret != nil {
		unset(&v.Secret.DefaultUser)
		dropUsers(v.Secret.Items)
	}
	if v.ConfigMap != nil {
		unset(&v.ConfigMap.DefaultUser)
		dropUsers(v.ConfigMap.Items)
	}
}

func dropUsers(items []corev1.KeyToPath) {
	for i := range items {
		unset(&items[i].User)
	}
}

func unset[T any](field **T) {
	if *field != nil {
		*field = nil
	}
}

// AppArmorFromAnnotations turns the profiles of the annotation that came before
// the field into fields.
func AppArmorFromAnnotations(p *corev1.Pod) {
	if len(p.Annotations) == 0 || p.Spec.OS != nil && p.Spec.OS.Name == corev1.Windows {
		return
	}
	eachContainer(resource.NewErrors(), &p.Spec, func(_ *resource.Errors, c *corev1.Container) {
		annotation, ok := p.Annotations[corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+c.Name]
		if !ok || c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
			return
		}
		profile := appArmorProfile(annotation)
		if profile == nil {
			return
		}
		if c.SecurityContext == nil {
			c.SecurityContext = &corev1.SecurityContext{}
		}
		c.SecurityContext.AppArmorProfile = profile
	})
}

func appArmorProfile(annotation string) *corev1.AppArmorProfile {
	if file, ok := strings.CutPrefix(annotation, corev1.DeprecatedAppArmorBetaProfileNamePrefix); ok && file != "" {
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: ptr.To(file)}
	}
	switch annotation {
	case corev1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}
	case corev1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
	}
	return nil
}
