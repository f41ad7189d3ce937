package podspec

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/resource"
)

const moreThanOneHandler = "may not specify more than 1 handler type"

// validateLifecycleAndProbes checks the hooks and probes of a container that
// stays as long as its pod.
func (p *podFacts) validateLifecycleAndProbes(errs *resource.Errors, c *corev1.Container) {
	if c.Lifecycle != nil {
		if c.Lifecycle.PostStart != nil {
			p.validateHook(errs.At("lifecycle.postStart"), c.Lifecycle.PostStart)
		}
		if c.Lifecycle.PreStop != nil {
			p.validateHook(errs.At("lifecycle.preStop"), c.Lifecycle.PreStop)
		}
	}
	if c.LivenessProbe != nil {
		at := errs.At("livenessProbe")
		validateProbe(at, c.LivenessProbe)
		checkSuccessThresholdOne(at, c.LivenessProbe)
	}
	if c.ReadinessProbe != nil {
		at := errs.At("readinessProbe")
		validateProbe(at, c.ReadinessProbe)
		if c.ReadinessProbe.TerminationGracePeriodSeconds != nil {
			at.Invalid("terminationGracePeriodSeconds", *c.ReadinessProbe.TerminationGracePeriodSeconds, "must not be set for readinessProbes")
		}
	}
	if c.StartupProbe != nil {
		at := errs.At("startupProbe")
		validateProbe(at, c.StartupProbe)
		checkSuccessThresholdOne(at, c.StartupProbe)
	}
}

func checkSuccessThresholdOne(errs *resource.Errors, p *corev1.Probe) {
	if p.SuccessThreshold != 1 {
		errs.Invalid("successThreshold", p.SuccessThreshold, "must be 1")
	}
}

func validateProbe(errs *resource.Errors, p *corev1.Probe) {
	one := &check.Choice{Errs: errs, Many: moreThanOneHandler}
	validateHandler(errs, one, corev1.LifecycleHandler{Exec: p.Exec, HTTPGet: p.HTTPGet, TCPSocket: p.TCPSocket})
	if p.GRPC != nil && one.Take("grpc") {
		check.Port(errs, "grpc.port", p.GRPC.Port)
	}
	if !one.Any {
		errs.Required("", "must specify a handler type")
	}
	errs.NonNegative("initialDelaySeconds", int64(p.InitialDelaySeconds))
	errs.NonNegative("timeoutSeconds", int64(p.TimeoutSeconds))
	errs.NonNegative("periodSeconds", int64(p.PeriodSeconds))
	errs.NonNegative("successThreshold", int64(p.SuccessThreshold))
	errs.NonNegative("failureThreshold", int64(p.FailureThreshold))
	if s := p.TerminationGracePeriodSeconds; s != nil && *s <= 0 {
		errs.Invalid("terminationGracePeriodSeconds", *s, "must be greater than 0")
	}
}

func (p *podFacts) validateHook(errs *resource.Errors, h *corev1.LifecycleHandler) {
	one := &check.Choice{Errs: errs, Many: moreThanOneHandler}
	validateHandler(errs, one, *h)
	if h.Sleep != nil && one.Take("sleep") {
		grace := p.spec.TerminationGracePeriodSeconds
		if grace != nil && (h.Sleep.Seconds < 0 || h.Sleep.Seconds > *grace) {
			errs.Invalid("sleep", h.Sleep.Seconds,
				fmt.Sprintf("must be non-negative and less than terminationGracePeriodSeconds (%d)", *grace))
		}
	}
	if !one.Any {
		errs.Required("", "must specify a handler type")
	}
}

// validateHandler checks what probes and hooks can both do.
func validateHandler(errs *resource.Errors, one *check.Choice, h corev1.LifecycleHandler) {
	if h.Exec != nil && one.Take("exec") && len(h.Exec.Command) == 0 {
		errs.Required("exec.command", "")
	}
	if h.HTTPGet != nil && one.Take("httpGet") {
		validateHTTPGet(errs.At("httpGet"), h.HTTPGet)
	}
	if h.TCPSocket != nil && one.Take("tcpSocket") {
		check.PortOrName(errs, "tcpSocket.port", h.TCPSocket.Port)
	}
}

func validateHTTPGet(errs *resource.Errors, h *corev1.HTTPGetAction) {
	check.Required(errs, "path", h.Path)
	check.PortOrName(errs, "port", h.Port)
	check.OneOf(errs, "scheme", h.Scheme, corev1.URISchemeHTTP, corev1.URISchemeHTTPS)
	for _, header := range h.HTTPHeaders {
		for _, msg := range utilvalidation.IsHTTPHeaderName(header.Name) {
			errs.Invalid("httpHeaders", header.Name, msg)
		}
	}
}

// stopSignals are the signals that can end a container on Linux; Windows knows
// but two of them.
var stopSignals = []corev1.Signal{
	corev1.SIGABRT, corev1.SIGALRM, corev1.SIGBUS, corev1.SIGCHLD, corev1.SIGCLD, corev1.SIGCONT, corev1.SIGFPE, corev1.SIGHUP,
	corev1.SIGILL, corev1.SIGINT, corev1.SIGIO, corev1.SIGIOT, corev1.SIGKILL, corev1.SIGPIPE, corev1.SIGPOLL, corev1.SIGPROF,
	corev1.SIGPWR, corev1.SIGQUIT, corev1.SIGRTMAX, corev1.SIGRTMAXMINUS1, corev1.SIGRTMAXMINUS10, corev1.SIGRTMAXMINUS11,
	corev1.SIGRTMAXMINUS12, corev1.SIGRTMAXMINUS13, corev1.SIGRTMAXMINUS14, corev1.SIGRTMAXMINUS2, corev1.SIGRTMAXMINUS3,
	corev1.SIGRTMAXMINUS4, corev1.SIGRTMAXMINUS5, corev1.SIGRTMAXMINUS6, corev1.SIGRTMAXMINUS7, corev1.SIGRTMAXMINUS8,
	corev1.SIGRTMAXMINUS9, corev1.SIGRTMIN, corev1.SIGRTMINPLUS1, corev1.SIGRTMINPLUS10, corev1.SIGRTMINPLUS11,
	corev1.SIGRTMINPLUS12, corev1.SIGRTMINPLUS13, corev1.SIGRTMINPLUS14, corev1.SIGRTMINPLUS15, corev1.SIGRTMINPLUS2,
	corev1.SIGRTMINPLUS3, corev1.SIGRTMINPLUS4, corev1.SIGRTMINPLUS5, corev1.SIGRTMINPLUS6, corev1.SIGRTMINPLUS7,
	corev1.SIGRTMINPLUS8, corev1.SIGRTMINPLUS9, corev1.SIGSEGV, corev1.SIGSTKFLT, corev1.SIGSTOP, corev1.SIGSYS, corev1.SIGTERM,
	corev1.SIGTRAP, corev1.SIGTSTP, corev1.SIGTTIN, corev1.SIGTTOU, corev1.SIGURG, corev1.SIGUSR1, corev1.SIGUSR2,
	corev1.SIGVTALRM, corev1.SIGWINCH, corev1.SIGXCPU, corev1.SIGXFSZ,
}

// validateStopSignal checks the signal that ends a container (KEP-4960). What it
// may be depends on the system, so the pod must say which that is.
func (p *podFacts) validateStopSignal(errs *resource.Errors, signal corev1.Signal) {
	if p.spec.OS == nil {
		errs.Forbidden("lifecycle.stopSignal", "may not be set for containers with empty `spec.os.name`")
		return
	}
	allowed := stopSignals
	if p.spec.OS.Name == corev1.Windows {
		allowed = []corev1.Signal{corev1.SIGKILL, corev1.SIGTERM}
	}
	if !slices.Contains(allowed, signal) {
		resource.NotSupported(errs, "lifecycle.stopSignal", signal, allowed...)
	}
}
