package podspec

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core/check"
)

// Default fills a pod: what every pod template gets, and what only a pod
// gets, so that templates stay as their authors wrote them.
func Default(p *corev1.Pod) {
	dropInitContainerAnnotations(p.Annotations)
	defaultPodIPs(&p.Status)
	defaultPodSpec(&p.Spec)
	if *p.Spec.TerminationGracePeriodSeconds < 0 {
		p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](1)
	}
	requestsFromLimits(p.Spec.Containers)
	requestsFromLimits(p.Spec.InitContainers)
	defaultPodLevelResources(p)
	if p.Spec.EnableServiceLinks == nil {
		p.Spec.EnableServiceLinks = ptr.To(corev1.DefaultEnableServiceLinks)
	}
	if p.Spec.HostNetwork {
		hostPortsFromContainerPorts(p.Spec.Containers)
		hostPortsFromContainerPorts(p.Spec.InitContainers)
	}
}

// DefaultTemplate fills the unset fields of a pod template, in every
// kind that has one.
func DefaultTemplate(t *corev1.PodTemplateSpec) {
	dropInitContainerAnnotations(t.Annotations)
	defaultPodSpec(&t.Spec)
}

func defaultPodSpec(s *corev1.PodSpec) {
	if s.DNSPolicy == "" {
		s.DNSPolicy = corev1.DNSClusterFirst
	}
	if s.RestartPolicy == "" {
		s.RestartPolicy = corev1.RestartPolicyAlways
	}
	if s.SecurityContext == nil {
		s.SecurityContext = &corev1.PodSecurityContext{}
	}
	if s.TerminationGracePeriodSeconds == nil {
		s.TerminationGracePeriodSeconds = ptr.To[int64](corev1.DefaultTerminationGracePeriodSeconds)
	}
	if s.SchedulerName == "" {
		s.SchedulerName = corev1.DefaultSchedulerName
	}
	MirrorServiceAccount(s)
	check.RoundUp(s.Overhead)
	if s.Resources != nil {
		check.RoundUp(s.Resources.Limits)
		check.RoundUp(s.Resources.Requests)
	}
	for i := range s.Volumes {
		defaultVolume(&s.Volumes[i])
	}
	for i := range s.InitContainers {
		defaultContainer(&s.InitContainers[i])
	}
	for i := range s.Containers {
		defaultContainer(&s.Containers[i])
	}
	for i := range s.EphemeralContainers {
		defaultContainer((*corev1.Container)(&s.EphemeralContainers[i].EphemeralContainerCommon))
	}
}

func defaultContainer(c *corev1.Container) {
	if c.ImagePullPolicy == "" {
		c.ImagePullPolicy = defaultPullPolicy(c.Image)
	}
	if c.TerminationMessagePath == "" {
		c.TerminationMessagePath = corev1.TerminationMessagePathDefault
	}
	if c.TerminationMessagePolicy == "" {
		c.TerminationMessagePolicy = corev1.TerminationMessageReadFile
	}
	for i := range c.Ports {
		if c.Ports[i].Protocol == "" {
			c.Ports[i].Protocol = corev1.ProtocolTCP
		}
	}
	defaultEnv(c.Env)
	check.RoundUp(c.Resources.Limits)
	check.RoundUp(c.Resources.Requests)
	defaultProbe(c.LivenessProbe)
	defaultProbe(c.ReadinessProbe)
	defaultProbe(c.StartupProbe)
	if c.Lifecycle != nil {
		if c.Lifecycle.PostStart != nil {
			defaultHTTPGet(c.Lifecycle.PostStart.HTTPGet)
		}
		if c.Lifecycle.PreStop != nil {
			defaultHTTPGet(c.Lifecycle.PreStop.HTTPGet)
		}
	}
}

func defaultEnv(env []corev1.EnvVar) {
	for i := range env {
		from := env[i].ValueFrom
		if from != nil && from.FieldRef != nil && from.FieldRef.APIVersion == "" {
			from.FieldRef.APIVersion = "v1"
		}
		if from != nil && from.FileKeyRef != nil && from.FileKeyRef.Optional == nil {
			from.FileKeyRef.Optional = ptr.To(false)
		}
	}
}

// DefaultParts fills volumes and environment variables that are to become parts of
// pods.
func DefaultParts(volumes []corev1.Volume, env []corev1.EnvVar) {
	for i := range volumes {
		defaultVolume(&volumes[i])
	}
	defaultEnv(env)
}

func defaultProbe(p *corev1.Probe) {
	if p == nil {
		return
	}
	check.SetIfZero(&p.TimeoutSeconds, 1)
	check.SetIfZero(&p.PeriodSeconds, 10)
	check.SetIfZero(&p.SuccessThreshold, 1)
	check.SetIfZero(&p.FailureThreshold, 3)
	defaultHTTPGet(p.HTTPGet)
	if p.GRPC != nil && p.GRPC.Service == nil {
		p.GRPC.Service = ptr.To("")
	}
}

func defaultHTTPGet(h *corev1.HTTPGetAction) {
	if h == nil {
		return
	}
	check.SetIfZero(&h.Path, "/")
	check.SetIfZero(&h.Scheme, corev1.URISchemeHTTP)
}

// defaultPullPolicy pulls always what may change under its name: an image with
// the tag "latest", which is also what no tag and no digest mean.
func defaultPullPolicy(image string) corev1.PullPolicy {
	if imageTag(image) == "latest" {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

// imageTag is the tag of an image reference; "latest" if it has neither tag nor
// digest, empty if it has a digest only or is no reference.
func imageTag(image string) string {
	name, _, hasDigest := strings.Cut(image, "@")
	repository, tag, hasTag := name, "", false
	if colon := strings.LastIndexByte(name, ':'); colon > strings.LastIndexByte(name, '/') {
		repository, tag, hasTag = name[:colon], name[colon+1:], true
	}
	last := repository[strings.LastIndexByte(repository, '/')+1:]
	switch {
	case last == "" || strings.TrimSpace(last) != last || strings.ToLower(last) != last:
		return ""
	case !hasTag && !hasDigest:
		return "latest"
	}
	return tag
}

// requestsFromLimits asks for as much as a container may use at most, where it
// does not say what it needs.
func requestsFromLimits(containers []corev1.Container) {
	for i := range containers {
		r := &containers[i].Resources
		for name, limit := range r.Limits {
			if _, ok := r.Requests[name]; ok {
				continue
			}
			if r.Requests == nil {
				r.Requests = make(corev1.ResourceList, len(r.Limits))
			}
			r.Requests[name] = limit.DeepCopy()
		}
	}
}

// defaultPodLevelResources completes resources of the pod as a whole from those
// of its containers, for pods that set some (KEP-2837).
func defaultPodLevelResources(p *corev1.Pod) {
	r := p.Spec.Resources
	if r == nil || len(r.Limits)+len(r.Requests) == 0 {
		return
	}
	limits := resourcehelper.AggregateContainerLimits(p, resourcehelper.PodResourcesOptions{})
	for name, limit := range limits {
		if _, asked := r.Requests[name]; check.IsHugePages(name) && !asked {
			check.SetIfAbsent(&r.Limits, name, limit)
		}
	}
	if len(r.Limits) > 0 {
		for name, request := range resourcehelper.AggregateContainerRequests(p, resourcehelper.PodResourcesOptions{}) {
			if resourcehelper.IsSupportedPodLevelResource(name) && check.OvercommitAllowed(name) {
				check.SetIfAbsent(&r.Requests, name, request)
			}
		}
		for name, limit := range r.Limits {
			if resourcehelper.IsSupportedPodLevelResource(name) {
				check.SetIfAbsent(&r.Requests, name, limit)
			}
		}
	}
	if resourcehelper.IsPodLevelLimitsSet(p) || !resourcehelper.IsPodLevelRequestsSet(p) {
		return
	}
	for name, limit := range limits {
		if resourcehelper.IsSupportedPodLevelResource(name) && check.OvercommitAllowed(name) && allContainersLimit(p, name) {
			check.SetIfAbsent(&r.Limits, name, limit)
		}
	}
}

// allContainersLimit reports whether every container of the pod that lives as
// long as the pod has a limit for a resource.
func allContainersLimit(p *corev1.Pod, name corev1.ResourceName) bool {
	for i := range p.Spec.Containers {
		if _, ok := p.Spec.Containers[i].Resources.Limits[name]; !ok {
			return false
		}
	}
	for i := range p.Spec.InitContainers {
		if _, ok := p.Spec.InitContainers[i].Resources.Limits[name]; !ok && IsSidecar(&p.Spec.InitContainers[i]) {
			return false
		}
	}
	return true
}

// hostPortsFromContainerPorts makes visible that ports of a pod in the host's
// network are ports of the host.
func hostPortsFromContainerPorts(containers []corev1.Container) {
	for i := range containers {
		for j := range containers[i].Ports {
			check.SetIfZero(&containers[i].Ports[j].HostPort, containers[i].Ports[j].ContainerPort)
		}
	}
}

// MirrorServiceAccount keeps the field of the first release equal to the one
// that took its place.
func MirrorServiceAccount(s *corev1.PodSpec) {
	if s.ServiceAccountName == "" {
		s.ServiceAccountName = s.DeprecatedServiceAccount
	}
	s.DeprecatedServiceAccount = s.ServiceAccountName
}

// defaultPodIPs keeps status.podIP the first of status.podIPs. A writer that
// knows only the single field wins over the list.
func defaultPodIPs(s *corev1.PodStatus) {
	switch {
	case s.PodIP != "" && (len(s.PodIPs) == 0 || s.PodIPs[0].IP != s.PodIP):
		s.PodIPs = []corev1.PodIP{{IP: s.PodIP}}
	case s.PodIP == "" && len(s.PodIPs) > 0:
		s.PodIP = s.PodIPs[0].IP
	}
}

// dropInitContainerAnnotations drops the annotations that described init
// containers before they were a field (v1.8 took them away).
func dropInitContainerAnnotations(annotations map[string]string) {
	for _, key := range []string{
		"pod.beta.kubernetes.io/init-containers",
		"pod.alpha.kubernetes.io/init-containers",
		"pod.beta.kubernetes.io/init-container-statuses",
		"pod.alpha.kubernetes.io/init-container-statuses",
	} {
		delete(annotations, key)
	}
}

// IsSidecar reports whether an init container goes on beside the others.
func IsSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}
