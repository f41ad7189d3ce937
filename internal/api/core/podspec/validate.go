package podspec

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/resource"
)

// Validate checks the spec of a pod, and what a template need not keep to.
func Validate(errs *resource.Errors, p *corev1.Pod) {
	validatePodSpec(errs.At("spec"), &p.Spec, &p.ObjectMeta)
	for i := range p.Spec.Volumes {
		projected := p.Spec.Volumes[i].Projected
		if projected == nil || p.Spec.ServiceAccountName != "" {
			continue
		}
		for j := range projected.Sources {
			if projected.Sources[j].ServiceAccountToken != nil {
				errs.At("spec.volumes[%d].projected.sources[%d]", i, j).
					Forbidden("serviceAccountToken", "must not be specified when serviceAccountName is not set")
			}
		}
	}
	for i := range p.Spec.Containers {
		checkImageTrimmed(errs.At("spec.containers[%d]", i), p.Spec.Containers[i].Image)
	}
	for i := range p.Spec.InitContainers {
		checkImageTrimmed(errs.At("spec.initContainers[%d]", i), p.Spec.InitContainers[i].Image)
	}
}

// ValidateTemplate checks a pod template, in every kind that has one. errs
// must be at the template.
func ValidateTemplate(t *corev1.PodTemplateSpec, errs *resource.Errors) {
	check.Labels(errs, "labels", t.Labels)
	check.Annotations(errs, "annotations", t.Annotations)
	ValidateAnnotations(errs, t.Annotations, &t.Spec)
	validatePodSpec(errs.At("spec"), &t.Spec, nil)
	ValidateProfiles(errs.At("spec"), &t.ObjectMeta, &t.Spec)
	if len(t.Spec.EphemeralContainers) > 0 {
		errs.Forbidden("spec.ephemeralContainers", "ephemeral containers not allowed in pod template")
	}
}

// ValidateParts checks volumes, and the environment and mounts of a container, that
// are to become parts of pods.
func ValidateParts(errs *resource.Errors, volumes []corev1.Volume, c *corev1.Container) {
	good := validateVolumes(errs.At("volumes"), volumes, nil)
	validateEnv(errs, c.Env, good)
	validateEnvFrom(errs, c.EnvFrom)
	validateMounts(errs, c, good)
}

// validatePodSpec checks the spec of a pod, or of a template if meta is nil.
func validatePodSpec(errs *resource.Errors, s *corev1.PodSpec, meta *metav1.ObjectMeta) {
	if s.TerminationGracePeriodSeconds == nil {
		errs.Required("terminationGracePeriodSeconds", "")
	}
	p := &podFacts{spec: s, volumes: validateVolumes(errs.At("volumes"), s.Volumes, meta)}
	validateResourceClaims(errs, s.ResourceClaims)
	p.validateContainers(errs)
	p.validateInitContainers(errs)
	p.validateEphemeralContainers(errs)
	validatePodResources(errs.At("resources"), s)
	if s.HostNetwork {
		validateHostPorts(errs, s, meta != nil)
	}
	validatePodNames(errs, s)
	validatePodPolicies(errs, s)
	validatePodDNS(errs, s)
	validatePodSecurityContext(errs.At("securityContext"), s)
	validateHostProcess(errs, s)
	validateHostUsers(errs, s)
	validateOS(errs, s)
	check.Labels(errs, "nodeSelector", s.NodeSelector)
	validateAffinity(errs.At("affinity"), s.Affinity)
	validateSpread(errs, s.TopologySpreadConstraints, meta != nil)
	ValidateTolerations(errs.At("tolerations"), s.Tolerations)
	if s.Overhead != nil {
		check.Requirements(errs.At("overhead"), &corev1.ResourceRequirements{Limits: s.Overhead}, nil, check.ContainerResourceName)
	}
}

// validatePodPolicies checks fields with a fixed set of values, and gates.
func validatePodPolicies(errs *resource.Errors, s *corev1.PodSpec) {
	if s.RestartPolicy == "" {
		errs.Required("restartPolicy", "")
	} else {
		check.OneOf(errs, "restartPolicy", s.RestartPolicy, corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)
	}
	if s.PreemptionPolicy != nil {
		if *s.PreemptionPolicy == "" {
			errs.Required("preemptionPolicy", "")
		} else {
			check.OneOf(errs, "preemptionPolicy", *s.PreemptionPolicy, corev1.PreemptLowerPriority, corev1.PreemptNever)
		}
	}
	if seconds := s.ActiveDeadlineSeconds; seconds != nil && (*seconds < 1 || *seconds > math.MaxInt32) {
		errs.Invalid("activeDeadlineSeconds", *seconds, utilvalidation.InclusiveRangeError(1, math.MaxInt32))
	}
	for i := range s.ReadinessGates {
		check.QualifiedName(errs.At("readinessGates[%d]", i), "conditionType", string(s.ReadinessGates[i].ConditionType))
	}
	for i, gate := range s.SchedulingGates {
		at := errs.At("schedulingGates[%d]", i)
		check.QualifiedName(at, "", gate.Name)
		for _, before := range s.SchedulingGates[:i] {
			if before.Name == gate.Name {
				at.Duplicate("", gate.Name)
				break
			}
		}
	}
}

// validatePodNames checks references to other objects.
func validatePodNames(errs *resource.Errors, s *corev1.PodSpec) {
	if s.ServiceAccountName != "" {
		check.DNSSubdomain(errs, "serviceAccountName", s.ServiceAccountName)
	}
	if s.NodeName != "" {
		check.DNSSubdomain(errs, "nodeName", s.NodeName)
	}
	if s.PriorityClassName != "" {
		check.DNSSubdomain(errs, "priorityClassName", s.PriorityClassName)
	}
	if g := s.SchedulingGroup; g != nil && g.PodGroupName == nil {
		errs.Invalid("schedulingGroup", "", "must specify one of: `podGroupName`")
	} else if g != nil {
		check.DNSSubdomain(errs, "schedulingGroup.podGroupName", *g.PodGroupName)
	}
	if s.RuntimeClassName != nil {
		check.DNSSubdomain(errs, "runtimeClassName", *s.RuntimeClassName)
	}
}

// The limits of the C library's resolver.
const (
	maxNameservers   = 3
	maxSearchDomains = 32
	maxSearchLength  = 2048
)

// validatePodDNS checks how the pod is called and how it finds others.
func validatePodDNS(errs *resource.Errors, s *corev1.PodSpec) {
	if s.Hostname != "" {
		check.DNSLabel(errs, "hostname", s.Hostname)
	}
	if s.Subdomain != "" {
		check.DNSLabel(errs, "subdomain", s.Subdomain)
	}
	if s.HostnameOverride != nil && *s.HostnameOverride != "" {
		validateHostnameOverride(errs, s)
	}
	for i := range s.HostAliases {
		at := errs.At("hostAliases[%d]", i)
		check.IP(at, "ip", s.HostAliases[i].IP)
		for j, name := range s.HostAliases[i].Hostnames {
			check.DNSSubdomain(at.At("hostnames[%d]", j), "", name)
		}
	}
	if s.DNSPolicy == "" {
		errs.Required("dnsPolicy", "")
	} else {
		check.OneOf(errs, "dnsPolicy", s.DNSPolicy, corev1.DNSClusterFirstWithHostNet, corev1.DNSClusterFirst, corev1.DNSDefault, corev1.DNSNone)
	}
	if s.DNSPolicy == corev1.DNSNone {
		if s.DNSConfig == nil {
			errs.Required("dnsConfig", fmt.Sprintf("must provide `dnsConfig` when `dnsPolicy` is %s", corev1.DNSNone))
			return
		}
		if len(s.DNSConfig.Nameservers) == 0 {
			errs.Required("dnsConfig.nameservers", fmt.Sprintf("must provide at least one DNS nameserver when `dnsPolicy` is %s", corev1.DNSNone))
			return
		}
	}
	if s.DNSConfig != nil {
		validateDNSConfig(errs.At("dnsConfig"), s.DNSConfig)
	}
}

func validateHostnameOverride(errs *resource.Errors, s *corev1.PodSpec) {
	name := *s.HostnameOverride
	check.DNSSubdomain(errs, "hostnameOverride", name)
	if len(name) > 64 {
		errs.TooLong("hostnameOverride", 64)
	}
	if s.SetHostnameAsFQDN != nil && *s.SetHostnameAsFQDN {
		errs.Forbidden("hostnameOverride", "may not be specified when setHostnameAsFQDN is true")
	}
	if s.HostNetwork {
		errs.Forbidden("hostnameOverride", "may not be specified when hostNetwork is true")
	}
}

func validateDNSConfig(errs *resource.Errors, c *corev1.PodDNSConfig) {
	if len(c.Nameservers) > maxNameservers {
		errs.Invalid("nameservers", c.Nameservers, fmt.Sprintf("must not have more than %v nameservers", maxNameservers))
	}
	for i, ip := range c.Nameservers {
		check.IP(errs.At("nameservers[%d]", i), "", ip)
	}
	if len(c.Searches) > maxSearchDomains {
		errs.Invalid("searches", c.Searches, fmt.Sprintf("must not have more than %v search paths", maxSearchDomains))
	}
	if len(strings.Join(c.Searches, " ")) > maxSearchLength {
		errs.Invalid("searches", c.Searches,
			fmt.Sprintf("must not have more than %v characters (including spaces) in the search list", maxSearchLength))
	}
	for i, domain := range c.Searches {
		if domain == "." {
			continue
		}
		domain = strings.TrimSuffix(domain, ".")
		for _, msg := range utilvalidation.IsDNS1123SubdomainWithUnderscore(domain) {
			errs.At("searches[%d]", i).Invalid("", domain, msg)
		}
	}
	for i := range c.Options {
		if c.Options[i].Name == "" {
			errs.At("options[%d]", i).Required("", "must not be empty")
		}
	}
}

// validateHostPorts checks the ports of a pod in the host's network. In a
// template they may be unset: they are filled in when the pod is made.
func validateHostPorts(errs *resource.Errors, s *corev1.PodSpec, isPod bool) {
	for i := range s.Containers {
		for j, port := range s.Containers[i].Ports {
			if (isPod || port.HostPort != 0) && port.HostPort != port.ContainerPort {
				errs.At("containers[%d].ports[%d]", i, j).
					Invalid("hostPort", port.HostPort, "must match `containerPort` when `hostNetwork` is true")
			}
		}
	}
}

func validateResourceClaims(errs *resource.Errors, claims []corev1.PodResourceClaim) {
	for i := range claims {
		c, at := &claims[i], errs.At("resourceClaims[%d]", i)
		duplicate := false
		for j := range claims[:i] {
			duplicate = duplicate || claims[j].Name == c.Name
		}
		switch {
		case c.Name == "":
			at.Required("name", "")
		case duplicate:
			at.Duplicate("name", c.Name)
		default:
			check.DNSLabel(at, "name", c.Name)
		}
		if c.ResourceClaimName != nil && c.ResourceClaimTemplateName != nil {
			at.Invalid("", c, "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified")
		}
		if c.ResourceClaimName == nil && c.ResourceClaimTemplateName == nil {
			at.Invalid("", c, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`")
		}
		if c.ResourceClaimName != nil {
			check.DNSSubdomain(at, "resourceClaimName", *c.ResourceClaimName)
		}
		if c.ResourceClaimTemplateName != nil {
			check.DNSSubdomain(at, "resourceClaimTemplateName", *c.ResourceClaimTemplateName)
		}
	}
}

// validatePodResources checks the resources of the pod as a whole: its requests
// hold those of the containers, and no container may use more than the pod.
func validatePodResources(errs *resource.Errors, s *corev1.PodSpec) {
	r := s.Resources
	if r == nil {
		return
	}
	if r.Claims != nil {
		errs.Forbidden("claims", "claims cannot be set for Resources at pod-level")
	}
	check.Requirements(errs, r, s.ResourceClaims, func(errs *resource.Errors, at string, name corev1.ResourceName) {
		if check.ResourceName(errs, at, name) && !resourcehelper.IsSupportedPodLevelResource(name) {
			resource.NotSupported(errs, at, name, corev1.ResourceCPU, corev1.ResourceHugePagesPrefix, corev1.ResourceMemory)
		}
	})
	sum := resourcehelper.AggregateContainerRequests(&corev1.Pod{Spec: *s}, resourcehelper.PodResourcesOptions{})
	for name, needed := range sum {
		if !resourcehelper.IsSupportedPodLevelResource(name) {
			continue
		}
		if given := r.Requests[name]; needed.Cmp(given) > 0 {
			errs.At("requests[%s]", name).Invalid("", given.String(),
				fmt.Sprintf("must be greater than or equal to aggregate container requests of %s", needed.String()))
		}
	}
	for i := range s.Containers {
		for name, limit := range s.Containers[i].Resources.Limits {
			if most, ok := r.Limits[name]; ok && limit.Cmp(most) > 0 {
				errs.At("containers[%d][%s]", i, name).Invalid("limits", limit.String(),
					fmt.Sprintf("must be less than or equal to pod limits of %s", most.String()))
			}
		}
	}
}

// ValidateAnnotations checks annotations that mean something to the system.
func ValidateAnnotations(errs *resource.Errors, annotations map[string]string, s *corev1.PodSpec) {
	for key, value := range annotations {
		switch {
		case key == corev1.MirrorPodAnnotationKey:
			if s.NodeName == "" {
				errs.At("annotations[%s]", key).Invalid("", value, "must set spec.nodeName if mirror pod annotation is set")
			}
		case key == corev1.PodDeletionCost:
			if !isDeletionCost(value) {
				errs.At("annotations[%s]", key).Invalid("", value, "must be a 32bit integer")
			}
		case key == seccompPodAnnotation || strings.HasPrefix(key, seccompContainerAnnotation):
			validateSeccompAnnotation(errs.At("annotations.%s", key), value)
		case strings.HasPrefix(key, corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix):
			validateAppArmorAnnotation(errs.At("annotations[%s]", key), key, value, s)
		}
	}
}

// isDeletionCost accepts a 32 bit number, written as few as possible.
func isDeletionCost(value string) bool {
	n, err := strconv.ParseInt(value, 10, 32)
	return err == nil && strconv.FormatInt(n, 10) == value
}
