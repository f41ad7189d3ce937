package tunnel

import (
	"fmt"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	translate "k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// streams are the standard streams that an exec or attach asks for.
type streams struct {
	stdin, stdout, stderr, tty bool
}

// streamsOf are the streams that are asked for with in, out and errOut. A terminal
// has no standard error of its own: who asks for both gets the terminal.
func streamsOf(in, out, errOut, tty bool) streams { return streams{in, out, errOut && !tty, tty} }

// query are the streams as a node agent takes them.
func (t streams) query() url.Values {
	q := url.Values{}
	for name, on := range map[string]bool{"input": t.stdin, "output": t.stdout, "error": t.stderr, "tty": t.tty} {
		if on {
			q.Set(name, "1")
		}
	}
	return q
}

// validate says what is wrong with the streams.
func (t streams) validate() error {
	if !t.stdin && !t.stdout && !t.stderr {
		return apierrors.NewBadRequest("you must specify at least 1 of stdin, stdout, stderr")
	}
	return nil
}

// Exec runs a command in a container (pods/exec).
func (t *Tunnels) Exec(q *Request) {
	o := &corev1.PodExecOptions{}
	if err := q.streams(o); err != nil {
		q.fail(err)
		return
	}
	if len(o.Command) == 0 {
		q.fail(apierrors.NewBadRequest("you must specify at least 1 command"))
		return
	}
	streams := streamsOf(o.Stdin, o.Stdout, o.Stderr, o.TTY)
	query := streams.query()
	query["command"] = o.Command
	t.command(q, command{"exec", o, o.Container, streams, query})
}

// Attach attaches to a container's main process (pods/attach).
func (t *Tunnels) Attach(q *Request) {
	o := &corev1.PodAttachOptions{}
	if err := q.streams(o); err != nil {
		q.fail(err)
		return
	}
	streams := streamsOf(o.Stdin, o.Stdout, o.Stderr, o.TTY)
	t.command(q, command{"attach", o, o.Container, streams, streams.query()})
}

// command is an exec or attach.
type command struct {
	verb      string
	options   runtime.Object
	container string
	streams   streams
	query     url.Values
}

func (t *Tunnels) command(q *Request, cmd command) {
	if err := cmd.streams.validate(); err != nil {
		q.fail(err)
		return
	}
	pod, err := q.runningPod(cmd.options, cmd.verb+" into a container in")
	if err != nil {
		q.fail(err)
		return
	}
	container, err := containerOf(pod, cmd.container)
	if err != nil {
		q.fail(err)
		return
	}
	location := agentURL(pod.Spec.NodeName, "/"+cmd.verb+"/"+pod.Namespace+"/"+pod.Name+"/"+container, cmd.query)
	if wsstream.IsWebSocketRequestWithStreamCloseProtocol(q.R) {
		// Container runtimes speak SPDY; today's clients speak WebSocket, version 5.
		t.metrics.webSockets.WithLabelValues(cmd.verb, translatedHere).Inc()
		on, w := cmd.streams, &noted{ResponseWriter: q.W}
		translate.NewStreamTranslatorHandler(location, t.agents, 0, translate.Options{
			Stdin: on.stdin, Stdout: on.stdout, Stderr: on.stderr, Tty: on.tty,
		}).ServeHTTP(w, q.R)
		t.metrics.translated.WithLabelValues(w.translation()).Inc()
		return
	}
	q.upgrade(location, t.agents, true).ServeHTTP(q.W, q.R)
}

// PortForward opens connections to ports of a pod (pods/portforward).
func (t *Tunnels) PortForward(q *Request) {
	o := &corev1.PodPortForwardOptions{}
	if err := q.streams(o); err != nil {
		q.fail(err)
		return
	}
	pod, err := q.runningPod(o, "forward a port in")
	if err != nil {
		q.fail(err)
		return
	}
	ports := url.Values{}
	for _, port := range o.Ports {
		ports.Add("port", fmt.Sprint(port))
	}
	location := agentURL(pod.Spec.NodeName, "/portForward/"+pod.Namespace+"/"+pod.Name, ports)
	handler := q.upgrade(location, t.agents, true)
	if wsstream.IsWebSocketRequestWithTunnelingProtocol(q.R) {
		t.metrics.webSockets.WithLabelValues("portforward", tunneledHere).Inc()
		w := &noted{ResponseWriter: q.W}
		translate.NewTunnelingHandler(handler).ServeHTTP(w, q.R)
		t.metrics.tunneled.WithLabelValues(w.tunneling()).Inc()
		return
	}
	handler.ServeHTTP(q.W, q.R)
}

// runningPod reads a pod whose containers a stream is to reach, and asks
// admission. what completes the message "cannot ... a completed pod".
func (q *Request) runningPod(options runtime.Object, what string) (*corev1.Pod, error) {
	ctx := q.R.Context()
	pod, err := q.pod(ctx, q.Name)
	if err != nil {
		return nil, err
	}
	if err := q.API.Admit(ctx, options); err != nil {
		return nil, err
	}
	if phase := pod.Status.Phase; phase == corev1.PodSucceeded || phase == corev1.PodFailed {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("cannot %s a completed pod; current phase is %s", what, phase))
	}
	if pod.Spec.NodeName == "" {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("pod %s does not have a host assigned", pod.Name))
	}
	return pod, nil
}
