package podspec

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/resource"
)

// podFacts is what the checks of a container need to know of its pod.
type podFacts struct {
	spec    *corev1.PodSpec
	volumes map[string]*corev1.Volume // the good ones
}

// hostUsers reports whether the pod's users are those of the node.
func (p *podFacts) hostUsers() bool { return p.spec.HostUsers == nil || *p.spec.HostUsers }

// validateContainers checks the application containers of a pod.
func (p *podFacts) validateContainers(errs *resource.Errors) {
	containers := p.spec.Containers
	if len(containers) == 0 {
		errs.Required("containers", "")
		return
	}
	for i := range containers {
		c, at := &containers[i], errs.At("containers[%d]", i)
		p.validateContainer(at, c)
		if hasContainer(containers[:i], c.Name) {
			at.Duplicate("name", c.Name)
		}
		p.validateLifecycleAndProbes(at, c)
		validateRestartPolicy(at, c)
	}
	checkHostPortConflicts(errs.At("containers"), containers)
}

// validateInitContainers checks the containers that run before the others, of
// which those that restart always (sidecars) go on beside them.
func (p *podFacts) validateInitContainers(errs *resource.Errors) {
	containers := p.spec.InitContainers
	for i := range containers {
		c, at := &containers[i], errs.At("initContainers[%d]", i)
		p.validateContainer(at, c)
		if hasContainer(p.spec.Containers, c.Name) || c.Name != "" && hasContainer(containers[:i], c.Name) {
			at.Duplicate("name", c.Name)
		}
		// One runs after the other, so only ports of the same container conflict.
		checkHostPortConflicts(errs.At("initContainers"), containers[i:i+1])
		validateRestartPolicy(at, c)
		if IsSidecar(c) {
			p.validateLifecycleAndProbes(at, c)
			continue
		}
		const detail = "may not be set for init containers without restartPolicy=Always"
		if c.Lifecycle != nil {
			at.Forbidden("lifecycle", detail)
		}
		if c.LivenessProbe != nil {
			at.Forbidden("livenessProbe", detail)
		}
		if c.ReadinessProbe != nil {
			at.Forbidden("readinessProbe", detail)
		}
		if c.StartupProbe != nil {
			at.Forbidden("startupProbe", detail)
		}
	}
}

// ephemeralFields are the fields of a container (Go names) that one which is
// added for debugging may have.
var ephemeralFields = []string{
	"Name", "Image", "Command", "Args", "WorkingDir", "EnvFrom", "Env", "VolumeMounts", "VolumeDevices",
	"TerminationMessagePath", "TerminationMessagePolicy", "ImagePullPolicy", "SecurityContext", "Stdin", "StdinOnce", "TTY",
}

func (p *podFacts) validateEphemeralContainers(errs *resource.Errors) {
	const detail = "cannot be set for an Ephemeral Container"
	for i := range p.spec.EphemeralContainers {
		e, at := &p.spec.EphemeralContainers[i], errs.At("ephemeralContainers[%d]", i)
		c := (*corev1.Container)(&e.EphemeralContainerCommon)
		p.validateContainer(at, c)
		checkImageTrimmed(at, c.Image)
		inPod := func(name string) bool {
			return hasContainer(p.spec.Containers, name) || hasContainer(p.spec.InitContainers, name)
		}
		earlier := func(o corev1.EphemeralContainer) bool { return o.Name == e.Name }
		if inPod(e.Name) || slices.ContainsFunc(p.spec.EphemeralContainers[:i], earlier) {
			at.Duplicate("name", e.Name)
		}
		if e.TargetContainerName != "" && !inPod(e.TargetContainerName) {
			at.NotFound("targetContainerName", e.TargetContainerName)
		}
		check.Unset(at, e.EphemeralContainerCommon, detail, ephemeralFields...)
		for j := range e.VolumeMounts {
			if e.VolumeMounts[j].SubPath != "" {
				at.At("volumeMounts[%d]", j).Forbidden("subPath", detail)
			}
			if e.VolumeMounts[j].SubPathExpr != "" {
				at.At("volumeMounts[%d]", j).Forbidden("subPathExpr", detail)
			}
		}
	}
}

func hasContainer(containers []corev1.Container, name string) bool {
	for i := range containers {
		if containers[i].Name == name {
			return true
		}
	}
	return false
}

// validateContainer checks what holds for containers of every kind.
func (p *podFacts) validateContainer(errs *resource.Errors, c *corev1.Container) {
	if c.Name == "" {
		errs.Required("name", "")
	} else {
		check.DNSLabel(errs, "name", c.Name)
	}
	check.Required(errs, "image", c.Image)
	check.RequiredOneOf(errs, "terminationMessagePolicy", c.TerminationMessagePolicy,
		corev1.TerminationMessageFallbackToLogsOnError, corev1.TerminationMessageReadFile)
	validateContainerPorts(errs, c.Ports)
	validateEnv(errs, c.Env, p.volumes)
	validateEnvFrom(errs, c.EnvFrom)
	validateMounts(errs, c, p.volumes)
	validateDevices(errs, c, p.volumes)
	checkPullPolicy(errs, "imagePullPolicy", c.ImagePullPolicy)
	check.Requirements(errs.At("resources"), &c.Resources, p.spec.ResourceClaims, check.ContainerResourceName)
	validateResizePolicy(errs, c.ResizePolicy, p.spec.RestartPolicy)
	if c.SecurityContext != nil {
		validateSecurityContext(errs.At("securityContext"), c.SecurityContext, p)
	}
	if c.Lifecycle != nil && c.Lifecycle.StopSignal != nil {
		p.validateStopSignal(errs, *c.Lifecycle.StopSignal)
	}
}

func checkPullPolicy(errs *resource.Errors, at string, policy corev1.PullPolicy) {
	check.RequiredOneOf(errs, at, policy, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)
}

func checkImageTrimmed(errs *resource.Errors, image string) {
	if strings.TrimSpace(image) != image {
		errs.Invalid("image", image, "must not have leading or trailing whitespace")
	}
}

func validateContainerPorts(errs *resource.Errors, ports []corev1.ContainerPort) {
	for i := range ports {
		port, at := &ports[i], errs.At("ports[%d]", i)
		if port.Name != "" {
			same := func(o corev1.ContainerPort) bool { return o.Name == port.Name }
			if msgs := utilvalidation.IsValidPortName(port.Name); len(msgs) > 0 {
				for _, msg := range msgs {
					at.Invalid("name", port.Name, msg)
				}
			} else if slices.ContainsFunc(ports[:i], same) {
				at.Duplicate("name", port.Name)
			}
		}
		if port.ContainerPort == 0 {
			at.Required("containerPort", "")
		} else {
			check.Port(at, "containerPort", port.ContainerPort)
		}
		if port.HostPort != 0 {
			check.Port(at, "hostPort", port.HostPort)
		}
		check.Protocol(at, port.Protocol)
	}
}

// checkHostPortConflicts refuses that two ports need the same port of the node.
func checkHostPortConflicts(errs *resource.Errors, containers []corev1.Container) {
	taken := map[string]bool{}
	for i := range containers {
		for j, port := range containers[i].Ports {
			if port.HostPort == 0 {
				continue
			}
			key := fmt.Sprintf("%s/%s/%d", port.Protocol, port.HostIP, port.HostPort)
			if taken[key] {
				errs.At("[%d].ports[%d]", i, j).Duplicate("hostPort", key)
			}
			taken[key] = true
		}
	}
}

// validateRestartPolicy checks a container's own restart policy (KEP-5307).
func validateRestartPolicy(errs *resource.Errors, c *corev1.Container) {
	if c.RestartPolicy != nil {
		check.OneOf(errs, "restartPolicy", *c.RestartPolicy, corev1.ContainerRestartPolicyAlways,
			corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyOnFailure)
	}
	if len(c.RestartPolicyRules) == 0 {
		return
	}
	if c.RestartPolicy == nil {
		errs.Required("restartPolicy", "must specify restartPolicy when restart rules are used")
	}
	if len(c.RestartPolicyRules) > 20 {
		errs.TooMany("restartPolicyRules", len(c.RestartPolicyRules), 20)
	}
	for i := range c.RestartPolicyRules {
		rule, at := &c.RestartPolicyRules[i], errs.At("restartPolicyRules[%d]", i)
		check.OneOf(at, "action", rule.Action, corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleActionRestartAllContainers)
		if rule.ExitCodes == nil {
			at.Required("exitCodes", "must be specified")
			continue
		}
		check.OneOf(at, "exitCodes.operator", rule.ExitCodes.Operator,
			corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpNotIn)
		values := rule.ExitCodes.Values
		if len(values) > 255 {
			at.TooMany("exitCodes.values", len(values), 255)
		}
		for j, code := range values {
			if code < 0 {
				at.At("exitCodes.values[%d]", j).Invalid("", code, "must be greater than or equal to 0")
			}
			if slices.Contains(values[:j], code) {
				at.At("exitCodes.values[%d]", j).Duplicate("", code)
			}
		}
	}
}

// CanRestartAll reports whether the exit of one container may call for all of the
// pod to be started anew (KEP-5532), those too that have ended for good.
func CanRestartAll(spec *corev1.PodSpec) bool {
	asks := func(r corev1.ContainerRestartRule) bool {
		return r.Action == corev1.ContainerRestartRuleActionRestartAllContainers
	}
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		if slices.ContainsFunc(c.RestartPolicyRules, asks) {
			return true
		}
	}
	return false
}

func validateResizePolicy(errs *resource.Errors, policies []corev1.ContainerResizePolicy, restart corev1.RestartPolicy) {
	for i, policy := range policies {
		same := func(o corev1.ContainerResizePolicy) bool { return o.ResourceName == policy.ResourceName }
		if slices.ContainsFunc(policies[:i], same) {
			errs.At("resizePolicy[%d]", i).Duplicate("", policy.ResourceName)
		}
		check.RequiredOneOf(errs, "resizePolicy", policy.ResourceName, corev1.ResourceCPU, corev1.ResourceMemory)
		check.RequiredOneOf(errs, "resizePolicy", policy.RestartPolicy, corev1.NotRequired, corev1.RestartContainer)
		if restart == corev1.RestartPolicyNever && policy.RestartPolicy != corev1.NotRequired {
			errs.Invalid("resizePolicy", policy.RestartPolicy, "must be 'NotRequired' when `restartPolicy` is 'Never'")
		}
	}
}
