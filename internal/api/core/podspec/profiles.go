package podspec

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/resource"
)

// Annotations that held seccomp profiles before they were fields. They are
// checked, and must agree with the fields; nobody acts on them any more.
const (
	seccompPodAnnotation       = "seccomp.security.alpha.kubernetes.io/pod"
	seccompContainerAnnotation = "container.seccomp.security.alpha.kubernetes.io/"
)

func validateSeccompAnnotation(errs *resource.Errors, profile string) {
	switch {
	case profile == "runtime/default", profile == "docker/default", profile == "unconfined":
	case strings.HasPrefix(profile, "localhost/"):
		check.DescendingPath(errs, "", strings.TrimPrefix(profile, "localhost/"))
	default:
		errs.Invalid("", profile, "must be a valid seccomp profile")
	}
}

func validateAppArmorAnnotation(errs *resource.Errors, key, profile string, s *corev1.PodSpec) {
	name := strings.TrimPrefix(key, corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix)
	found := false
	eachContainer(errs, s, func(_ *resource.Errors, c *corev1.Container) { found = found || c.Name == name })
	if !found {
		errs.Invalid("", name, "container not found")
	}
	switch {
	case profile == "", profile == corev1.DeprecatedAppArmorBetaProfileRuntimeDefault, profile == corev1.DeprecatedAppArmorBetaProfileNameUnconfined:
	case strings.HasPrefix(profile, corev1.DeprecatedAppArmorBetaProfileNamePrefix):
	default:
		errs.Invalid("", profile, fmt.Sprintf("invalid AppArmor profile name: %q", profile))
	}
}

// ValidateProfiles checks that profiles which are given both as
// annotation and as field are the same.
func ValidateProfiles(errs *resource.Errors, meta *metav1.ObjectMeta, s *corev1.PodSpec) {
	if len(meta.Annotations) == 0 {
		return
	}
	var podSeccomp *corev1.SeccompProfile
	var podAppArmor *corev1.AppArmorProfile
	if s.SecurityContext != nil {
		podSeccomp, podAppArmor = s.SecurityContext.SeccompProfile, s.SecurityContext.AppArmorProfile
	}
	if annotation, ok := meta.Annotations[seccompPodAnnotation]; ok && podSeccomp != nil {
		matchSeccomp(errs.At("securityContext.seccompProfile"), annotation, podSeccomp)
	}
	windows := s.OS != nil && s.OS.Name == corev1.Windows
	eachContainer(errs, s, func(at *resource.Errors, c *corev1.Container) {
		appArmor := podAppArmor
		if c.SecurityContext != nil {
			annotation, ok := meta.Annotations[seccompContainerAnnotation+c.Name]
			if ok && c.SecurityContext.SeccompProfile != nil {
				matchSeccomp(at.At("securityContext.seccompProfile"), annotation, c.SecurityContext.SeccompProfile)
			}
			if c.SecurityContext.AppArmorProfile != nil {
				appArmor = c.SecurityContext.AppArmorProfile
			}
		}
		annotation, ok := meta.Annotations[corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+c.Name]
		if ok && appArmor != nil && !windows {
			matchAppArmor(at.At("securityContext.appArmorProfile"), annotation, appArmor)
		}
	})
}

func matchSeccomp(errs *resource.Errors, annotation string, p *corev1.SeccompProfile) {
	file, local := strings.CutPrefix(annotation, "localhost/")
	same := true
	switch p.Type {
	case corev1.SeccompProfileTypeUnconfined:
		same = annotation == "unconfined"
	case corev1.SeccompProfileTypeRuntimeDefault:
		same = annotation == "runtime/default" || annotation == "docker/default"
	case corev1.SeccompProfileTypeLocalhost:
		same = local
	}
	switch {
	case !same:
		errs.Forbidden("type", "seccomp type in annotation and field must match")
	case local && (p.LocalhostProfile == nil || *p.LocalhostProfile != file):
		errs.Forbidden("localhostProfile", "seccomp profile in annotation and field must match")
	}
}

func matchAppArmor(errs *resource.Errors, annotation string, p *corev1.AppArmorProfile) {
	file, local := strings.CutPrefix(annotation, corev1.DeprecatedAppArmorBetaProfileNamePrefix)
	same := true
	switch p.Type {
	case corev1.AppArmorProfileTypeUnconfined:
		same = annotation == corev1.DeprecatedAppArmorBetaProfileNameUnconfined
	case corev1.AppArmorProfileTypeRuntimeDefault:
		same = annotation == corev1.DeprecatedAppArmorBetaProfileRuntimeDefault
	case corev1.AppArmorProfileTypeLocalhost:
		same = local
	}
	switch {
	case !same:
		errs.Forbidden("type", "apparmor type in annotation and field must match")
	case local && (p.LocalhostProfile == nil || *p.LocalhostProfile != file):
		errs.Forbidden("localhostProfile", "apparmor profile in annotation and field must match")
	}
}
