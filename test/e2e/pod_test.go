package e2e

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/test/wait"
)

// create creates a pod from a manifest without apiVersion and kind.
func (c *cluster) create(t *testing.T, namespace, manifest string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(manifest), pod); err != nil {
		t.Fatalf("%v in\n%s", err, manifest)
	}
	made, err := c.client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create pod: %v\n%s", err, manifest)
	}
	return made
}

// script is a pod of one container that runs a shell script in busybox, and never again.
func script(name, text string) string {
	return fmt.Sprintf("metadata: {name: %s}\nspec:\n  restartPolicy: Never\n  containers:\n  - name: c\n    image: kemudi.local/busybox:1\n    command: [sh, -c, %q]\n", name, text)
}

// await waits until a pod passes the check, which says what is wrong with it.
func (c *cluster) await(t *testing.T, namespace, name string, check func(*corev1.Pod) error) (pod *corev1.Pod) {
	t.Helper()
	wait.Until(t, func() error {
		var err error
		if pod, err = c.client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			return err
		}
		if err := check(pod); err != nil {
			return fmt.Errorf("pod %s: %w; it is %s, %s", name, err, pod.Status.Phase, states(pod))
		}
		return nil
	})
	return pod
}

// states is how a pod's containers are, on one line.
func states(pod *corev1.Pod) string {
	var list []string
	for _, s := range append(append([]corev1.ContainerStatus{}, pod.Status.InitContainerStatuses...), pod.Status.ContainerStatuses...) {
		text := s.Name + ": "
		switch {
		case s.State.Waiting != nil:
			text += "waiting, " + s.State.Waiting.Reason + " " + s.State.Waiting.Message
		case s.State.Running != nil:
			text += fmt.Sprintf("running, ready %v", s.Ready)
		case s.State.Terminated != nil:
			text += fmt.Sprintf("terminated, %s %d %s", s.State.Terminated.Reason, s.State.Terminated.ExitCode, s.State.Terminated.Message)
		}
		list = append(list, fmt.Sprintf("%s, %d restarts", text, s.RestartCount))
	}
	return strings.Join(list, "; ")
}

func isReady(pod *corev1.Pod) error { return hasCondition(pod, corev1.PodReady, corev1.ConditionTrue) }

func isNotReady(pod *corev1.Pod) error {
	return hasCondition(pod, corev1.PodReady, corev1.ConditionFalse)
}

func hasCondition(pod *corev1.Pod, kind corev1.PodConditionType, status corev1.ConditionStatus) error {
	for _, cond := range pod.Status.Conditions {
		if cond.Type == kind && cond.Status == status {
			return nil
		}
	}
	return fmt.Errorf("condition %s is not %s", kind, status)
}

func hasEnded(pod *corev1.Pod) error {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return nil
	}
	return fmt.Errorf("it has not ended")
}

// isWaiting checks that some container waits for the reason.
func isWaiting(reason string) func(*corev1.Pod) error {
	return func(pod *corev1.Pod) error {
		for _, s := range append(append([]corev1.ContainerStatus{}, pod.Status.InitContainerStatuses...), pod.Status.ContainerStatuses...) {
			if s.State.Waiting != nil && s.State.Waiting.Reason == reason {
				return nil
			}
		}
		return fmt.Errorf("no container waits for reason %s", reason)
	}
}

// hasRestarted checks that the first container was started again n times or more.
func hasRestarted(n int32) func(*corev1.Pod) error {
	return func(pod *corev1.Pod) error {
		if len(pod.Status.ContainerStatuses) > 0 && pod.Status.ContainerStatuses[0].RestartCount >= n {
			return nil
		}
		return fmt.Errorf("it has not restarted %d times", n)
	}
}

// isGone waits until a pod does not exist any more.
func (c *cluster) isGone(t *testing.T, namespace, name string) {
	t.Helper()
	wait.Until(t, func() error {
		pod, err := c.client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return nil
		}
		return fmt.Errorf("pod %s still exists: %s, %s", name, pod.Status.Phase, states(pod))
	})
}

// logs returns what a container wrote.
func (c *cluster) logs(t *testing.T, namespace, name string, o corev1.PodLogOptions) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	r, err := c.client.CoreV1().Pods(namespace).GetLogs(name, &o).Stream(ctx)
	if err != nil {
		t.Fatalf("logs of %s: %v", name, err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatalf("logs of %s: %v", name, err)
	}
	return string(data)
}

// finish runs a pod to its end and returns it with the log of its first container.
func (c *cluster) finish(t *testing.T, namespace, manifest string) (*corev1.Pod, string) {
	t.Helper()
	pod := c.create(t, namespace, manifest)
	pod = c.await(t, namespace, pod.Name, hasEnded)
	return pod, c.logs(t, namespace, pod.Name, corev1.PodLogOptions{Container: pod.Spec.Containers[0].Name})
}

// awaitEvent waits for an event about an object whose message, behind the name
// of the part that it is about, contains the text.
func (c *cluster) awaitEvent(t *testing.T, namespace, name, reason, text string) (event corev1.Event) {
	t.Helper()
	wait.Until(t, func() error {
		list, err := c.client.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("involvedObject.name", name).String()})
		if err != nil {
			return err
		}
		var seen []string
		for _, e := range list.Items {
			message := e.Message
			if part := e.InvolvedObject.FieldPath; part != "" {
				message = part + ": " + message
			}
			if e.Reason == reason && strings.Contains(message, text) {
				event = e
				return nil
			}
			seen = append(seen, e.Reason+": "+message)
		}
		return fmt.Errorf("no event %s with %q about %s; there are\n%s", reason, text, name, strings.Join(seen, "\n"))
	})
	return event
}

// wantLines fails the test for each line that the text does not have.
func wantLines(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains("\n"+text, "\n"+line+"\n") && !strings.HasSuffix("\n"+text, "\n"+line) {
			t.Errorf("got\n%s\nwant the line %q", text, line)
		}
	}
}
