package podstep

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/kubelet/backoff"
)

// kind is the role of a container in its pod.
type kind int

const (
	kindApp kind = iota
	kindInit
	kindSidecar // an init container that is restarted always
	kindEphemeral
)

func kindOfInit(c *v1.Container) kind {
	if core.IsSidecar(c) {
		return kindSidecar
	}
	return kindInit
}

// initialized reports whether the init containers have done their part in this
// sandbox: once an app container was created in it, they are not looked at again
// unless all containers are to be started anew.
func (s *step) initialized(sb *Sandbox) bool {
	if len(s.pod.Spec.InitContainers) == 0 {
		return true
	}
	if sb == nil {
		return false
	}
	for i := range s.pod.Spec.Containers {
		if s.startedIn(sb, s.pod.Spec.Containers[i].Name) {
			return true
		}
	}
	i := s.reached(sb)
	return i == len(s.pod.Spec.InitContainers)-1 && s.initDone(&s.pod.Spec.InitContainers[i])
}

// startedIn reports whether the container has been started in the sandbox, in
// the current round.
func (s *step) startedIn(sb *Sandbox, name string) bool {
	last := s.newest(name)
	return last != nil && last.SandboxID == sb.ID && !s.stale(last)
}

// reached is the number of the latest init container that was started in the
// sandbox, -1 if none was: those before it have done their part, whatever has
// become of them since.
func (s *step) reached(sb *Sandbox) int {
	for i := len(s.pod.Spec.InitContainers) - 1; sb != nil && i >= 0; i-- {
		if s.startedIn(sb, s.pod.Spec.InitContainers[i].Name) {
			return i
		}
	}
	return -1
}

// initDone reports whether the next init container may start after c, which has
// been started.
func (s *step) initDone(c *v1.Container) bool {
	last := s.newest(c.Name)
	if kindOfInit(c) == kindSidecar {
		return s.isStarted(c, last)
	}
	return last.State == Exited && last.ExitCode == 0
}

// isStarted reports whether the container runs, its postStart hook has returned
// and its startup probe has succeeded.
func (s *step) isStarted(c *v1.Container, last *Container) bool {
	return last != nil && last.State == Running && !s.doing(Action{Op: StartContainer, Container: c.Name}) &&
		(c.StartupProbe == nil || s.o.Probes[last.ID].Started)
}

// isReady reports whether the container takes traffic.
func (s *step) isReady(c *v1.Container, last *Container) bool {
	return s.isStarted(c, last) && (c.ReadinessProbe == nil || s.o.Probes[last.ID].Ready)
}

// runInit brings up the init containers one after another, and keeps the
// sidecars among those that were started running: one that ends meanwhile does
// not hold up the others.
func (s *step) runInit(sb *Sandbox) {
	list := s.pod.Spec.InitContainers
	next := s.reached(sb)
	if next < 0 || s.initDone(&list[next]) {
		next++
	}
	s.runSidecars(list[:next], sb)
	s.start(&list[next], kindOfInit(&list[next]), sb)
}

func (s *step) runSidecars(list []v1.Container, sb *Sandbox) {
	for i := range list {
		if kindOfInit(&list[i]) == kindSidecar {
			s.start(&list[i], kindSidecar, sb)
		}
	}
}

// runApp starts the app containers in their order: one whose image or postStart
// hook takes its time holds back those after it, one that fails does not.
func (s *step) runApp(sb *Sandbox) {
	held := false
	for i := range s.pod.Spec.Containers {
		c := &s.pod.Spec.Containers[i]
		if held {
			s.ensureImage(c, kindApp, sb)
		} else if s.start(c, kindApp, sb) == pending {
			held = true
		}
	}
}

func (s *step) runEphemeral(sb *Sandbox) {
	for i := range s.pod.Spec.EphemeralContainers {
		c := v1.Container(s.pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		s.start(&c, kindEphemeral, sb)
	}
}

// progress is how far the start of a container is.
type progress int

const (
	settled progress = iota // it runs, or is not to run
	pending                 // it will start as soon as what is under way is done
	failing                 // it waits for its next try
)

// start brings the container up if it must run and does not.
func (s *step) start(c *v1.Container, k kind, sb *Sandbox) progress {
	if s.doing(Action{Op: StartContainer, Container: c.Name}) {
		return pending
	}
	last := s.newest(c.Name)
	if last != nil {
		switch {
		case last.State == Running:
			return settled
		case last.State == Created:
			// The program ended between create and start: make it anew.
			s.do(Action{Op: RemoveContainer, Container: c.Name, ID: last.ID})
			return pending
		case !s.mustRun(c, k, last, sb):
			return settled
		}
		if s.inBackoff(last) {
			return failing
		}
	}
	if s.held(Action{Op: StartContainer, Container: c.Name}) {
		return failing
	}
	switch s.ensureImage(c, k, sb) {
	case failing:
		return failing
	case pending:
		return pending
	}
	if sb == nil || !s.o.Volumes.Ready {
		return pending
	}
	s.do(Action{
		Op: StartContainer, Container: c.Name, ID: sb.ID,
		Attempt: s.attempt(c.Name), Backoff: s.nextBackoff(last),
	})
	return pending
}

// ensureImage asks for the image of the container's next start.
func (s *step) ensureImage(c *v1.Container, k kind, sb *Sandbox) progress {
	last := s.newest(c.Name)
	if last != nil && (last.State == Running || !s.mustRun(c, k, last, sb)) {
		return settled
	}
	attempt := s.attempt(c.Name)
	a := Action{Op: EnsureImage, Container: c.Name, Attempt: attempt}
	if s.doing(a) {
		return pending
	}
	if im, ok := s.image(c, attempt); ok {
		if im.Ref != "" {
			return settled
		}
		if s.now.Before(im.Retry) {
			s.wakeAt(im.Retry)
			return failing
		}
	}
	s.do(a)
	return pending
}

// image is what came of the image of start number attempt of the container; ok is false if
// it has not been seen to, or only to another than the spec has by now.
func (s *step) image(c *v1.Container, attempt int) (im Image, ok bool) {
	im, ok = s.o.Images[c.Name]
	return im, ok && im.Attempt == attempt && im.Name == c.Image
}

// attempt is the number of the container's next start. Where no container is
// left to count from, the status in the API still knows.
func (s *step) attempt(name string) int {
	if last := s.newest(name); last != nil {
		return last.Attempt + 1
	}
	if old := oldStatus(&s.pod.Status, name); old != nil && (old.State.Running != nil || old.State.Terminated != nil || old.LastTerminationState.Terminated != nil) {
		return int(old.RestartCount) + 1
	}
	return 0
}

// mustRun reports whether a container that does not run is to be started again
// in the sandbox (nil: the one that will be made).
func (s *step) mustRun(c *v1.Container, k kind, last *Container, sb *Sandbox) bool {
	if last.State != Exited {
		return true
	}
	if k == kindEphemeral {
		return false
	}
	if s.stale(last) || s.o.Killed[last.ID] == KilledForChange || actionOnExit(c, last.ExitCode) != "" {
		return true
	}
	if k == kindInit && last.ExitCode == 0 {
		return sb == nil || last.SandboxID != sb.ID // a new sandbox is initialized anew
	}
	switch policy := restartPolicy(s.pod, c, k); policy {
	case v1.RestartPolicyAlways:
		return true
	case v1.RestartPolicyOnFailure:
		return last.ExitCode != 0
	default:
		return false
	}
}

func restartPolicy(pod *v1.Pod, c *v1.Container, k kind) v1.RestartPolicy {
	policy := pod.Spec.RestartPolicy
	if c.RestartPolicy != nil {
		policy = v1.RestartPolicy(*c.RestartPolicy)
	}
	if k == kindInit && policy == v1.RestartPolicyAlways {
		return v1.RestartPolicyOnFailure
	}
	if policy == "" {
		return v1.RestartPolicyAlways
	}
	return policy
}

// actionOnExit is what the container's rules say about an exit: of those that
// match, the first one counts; empty: none does.
func actionOnExit(c *v1.Container, code int32) v1.ContainerRestartRuleAction {
	for i := range c.RestartPolicyRules {
		if r := &c.RestartPolicyRules[i]; ruleMatches(r, code) {
			return r.Action
		}
	}
	return ""
}

func ruleMatches(r *v1.ContainerRestartRule, code int32) bool {
	if r.ExitCodes == nil {
		return false
	}
	in := slices.Contains(r.ExitCodes.Values, code)
	return in == (r.ExitCodes.Operator == v1.ContainerRestartRuleOnExitCodesOpIn)
}

// restartReset is how long a container must have lived for its restarts to be
// held back as if it had never exited before.
const restartReset = 10 * time.Minute

// backoffOf is how long the successor of a container that exited must wait.
func (s *step) backoffOf(last *Container) time.Duration {
	if last.FinishedAt.Sub(last.CreatedAt) > restartReset || s.blameless(last) {
		return 0
	}
	return last.Backoff
}

// blameless reports whether a container did not end by its own fault: its
// successor waits for nothing.
func (s *step) blameless(last *Container) bool {
	return s.o.Killed[last.ID] == KilledForChange || s.stale(last) && !s.restartsAll(last)
}

// nextBackoff is the Backoff of the container started after last (nil: the first).
func (s *step) nextBackoff(last *Container) time.Duration {
	if last == nil || s.blameless(last) {
		return 0
	}
	wait := backoff.Restart
	if most := s.o.RestartWait; most > 0 {
		wait = backoff.Backoff{First: min(wait.First, most), Most: most}
	}
	return wait.Next(s.backoffOf(last))
}

// inBackoff reports whether the successor of last must wait, and if so says so.
func (s *step) inBackoff(last *Container) bool {
	wait := s.backoffOf(last)
	until := last.FinishedAt.Add(wait)
	if wait == 0 || last.FinishedAt.IsZero() || !s.now.Before(until) {
		return false
	}
	if s.now.Before(last.FinishedAt) {
		return false // the clock was set back, who knows by how much: do not wait for it to catch up
	}
	s.wakeAt(until)
	s.do(Action{Op: BackOffEvent, Container: last.Name, ID: last.ID, Message: s.backoffEvent(last)})
	return true
}

func (s *step) podName() string {
	return fmt.Sprintf("%s_%s(%s)", s.pod.Name, s.pod.Namespace, s.pod.UID)
}

func (s *step) backoffMessage(last *Container) string {
	return fmt.Sprintf("back-off %s restarting failed container=%s pod=%s", s.backoffOf(last), last.Name, s.podName())
}

func (s *step) backoffEvent(last *Container) string {
	return fmt.Sprintf("Back-off restarting failed container %s in pod %s", last.Name, s.podName())
}
