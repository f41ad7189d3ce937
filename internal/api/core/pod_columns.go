package core

import (
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kemudi/kemudi/internal/api/core/podspec"
	"github.com/kemudi/kemudi/internal/resource"
)

var podColumns = []resource.Column[*corev1.Pod]{
	{
		Name: "Ready", Description: "The aggregate readiness state of this pod for accepting traffic.",
		Value: func(p *corev1.Pod) any { return podSummary(p).readiness() },
	},
	{
		Name: "Status", Description: "The aggregate status of the containers in this pod.",
		Value: func(p *corev1.Pod) any { return podSummary(p).reason },
	},
	{
		Name:        "Restarts",
		Description: "The number of times the containers in this pod have been restarted and when the last container in this pod has restarted.",
		Value:       func(p *corev1.Pod) any { return podSummary(p).restartText() },
	},
	{
		Name: "IP", Priority: 1, Description: corev1.PodStatus{}.SwaggerDoc()["podIP"],
		Value: func(p *corev1.Pod) any { return orNone(podIP(p)) },
	},
	{
		Name: "Node", Priority: 1, Description: corev1.PodSpec{}.SwaggerDoc()["nodeName"],
		Value: func(p *corev1.Pod) any { return orNone(p.Spec.NodeName) },
	},
	{
		Name: "Nominated Node", Priority: 1, Description: corev1.PodStatus{}.SwaggerDoc()["nominatedNodeName"],
		Value: func(p *corev1.Pod) any { return orNone(p.Status.NominatedNodeName) },
	},
	{
		Name: "Readiness Gates", Priority: 1, Description: corev1.PodSpec{}.SwaggerDoc()["readinessGates"],
		Value: func(p *corev1.Pod) any { return readinessGates(p) },
	},
}

// podEnded says of a row that the pod has ended, and how.
func podEnded(p *corev1.Pod) []metav1.TableRowCondition {
	message := ""
	switch p.Status.Phase {
	case corev1.PodSucceeded:
		message = "The pod has completed successfully."
	case corev1.PodFailed:
		message = "The pod failed."
	default:
		return nil
	}
	return []metav1.TableRowCondition{{Type: metav1.RowCompleted, Status: metav1.ConditionTrue, Reason: string(p.Status.Phase), Message: message}}
}

func orNone(s string) string {
	if s == "" {
		return "<none>"
	}
	return s
}

func podIP(p *corev1.Pod) string {
	if len(p.Status.PodIPs) > 0 {
		return p.Status.PodIPs[0].IP
	}
	return p.Status.PodIP
}

func readinessGates(p *corev1.Pod) string {
	if len(p.Spec.ReadinessGates) == 0 {
		return "<none>"
	}
	open := 0
	for _, gate := range p.Spec.ReadinessGates {
		if PodConditionTrue(p, gate.ConditionType) {
			open++
		}
	}
	return fmt.Sprintf("%d/%d", open, len(p.Spec.ReadinessGates))
}

// summary is what kubectl get shows of a pod's containers.
type summary struct {
	ready, total int
	reason       string
	restarts     int
	lastRestart  metav1.Time
}

func (s *summary) readiness() string { return fmt.Sprintf("%d/%d", s.ready, s.total) }

func (s *summary) restartText() string {
	if s.restarts == 0 || s.lastRestart.IsZero() {
		return strconv.Itoa(s.restarts)
	}
	return fmt.Sprintf("%d (%s ago)", s.restarts, duration.HumanDuration(time.Since(s.lastRestart.Time)))
}

// count adds the restarts of one container.
func (s *summary) count(c *corev1.ContainerStatus) {
	s.restarts += int(c.RestartCount)
	if ended := c.LastTerminationState.Terminated; ended != nil && s.lastRestart.Before(&ended.FinishedAt) {
		s.lastRestart = ended.FinishedAt
	}
}

// podSummary looks at the init containers until one holds the others up, and
// then at the containers.
func podSummary(p *corev1.Pod) *summary {
	s := &summary{total: len(p.Spec.Containers), reason: string(p.Status.Phase)}
	if p.Status.Reason != "" {
		s.reason = p.Status.Reason
	}
	if c := PodCondition(&p.Status, corev1.PodScheduled); c != nil && c.Reason == corev1.PodReasonSchedulingGated {
		s.reason = corev1.PodReasonSchedulingGated
	}
	for i := range p.Spec.InitContainers {
		if podspec.IsSidecar(&p.Spec.InitContainers[i]) {
			s.total++
		}
	}
	sidecars := &summary{}
	initializing := s.addInitContainers(p, sidecars)
	if !initializing || PodConditionTrue(p, corev1.PodInitialized) {
		// The restarts of containers that are done with do not matter any more.
		s.restarts, s.lastRestart = sidecars.restarts, sidecars.lastRestart
		s.addContainers(p)
	}
	if p.DeletionTimestamp != nil {
		switch {
		case p.Status.Reason == "NodeLost":
			s.reason = "Unknown"
		case !PodTerminal(p):
			s.reason = "Terminating"
		}
	}
	return s
}

// addInitContainers reports whether the pod is still being initialized.
func (s *summary) addInitContainers(p *corev1.Pod, sidecars *summary) (initializing bool) {
	for i := range p.Status.InitContainerStatuses {
		c := &p.Status.InitContainerStatuses[i]
		spec := findContainer(p.Spec.InitContainers, c.Name)
		sidecar := spec != nil && podspec.IsSidecar(spec)
		s.count(c)
		if sidecar {
			sidecars.count(c)
		}
		ended := c.State.Terminated
		switch {
		case ended != nil && ended.ExitCode == 0:
			continue
		case sidecar && c.Started != nil && *c.Started:
			if c.Ready {
				s.ready++
			}
			continue
		case ended != nil:
			s.reason = "Init:" + endedReason(ended)
		case c.State.Waiting != nil && c.State.Waiting.Reason != "" && c.State.Waiting.Reason != "PodInitializing":
			s.reason = "Init:" + c.State.Waiting.Reason
		default:
			s.reason = fmt.Sprintf("Init:%d/%d", i, len(p.Spec.InitContainers))
		}
		return true
	}
	return false
}

func (s *summary) addContainers(p *corev1.Pod) {
	running := false
	for i := len(p.Status.ContainerStatuses) - 1; i >= 0; i-- {
		c := &p.Status.ContainerStatuses[i]
		s.count(c)
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			s.reason = c.State.Waiting.Reason
		case c.State.Terminated != nil:
			s.reason = endedReason(c.State.Terminated)
		case c.Ready && c.State.Running != nil:
			running = true
			s.ready++
		}
	}
	if s.reason == "Completed" && running {
		s.reason = "NotReady"
		if PodReady(p) {
			s.reason = "Running"
		}
	}
}

func endedReason(t *corev1.ContainerStateTerminated) string {
	switch {
	case t.Reason != "":
		return t.Reason
	case t.Signal != 0:
		return fmt.Sprintf("Signal:%d", t.Signal)
	}
	return fmt.Sprintf("ExitCode:%d", t.ExitCode)
}
