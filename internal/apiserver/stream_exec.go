package apiserver

import (
	"fmt"
	"net/http"
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
	switch {
	case !t.stdin && !t.stdout && !t.stderr:
		return apierrors.NewBadRequest("you must specify at least 1 of stdin, stdout, stderr")
	case t.tty && t.stderr:
		return apierrors.NewBadRequest("tty and stderr cannot both be true")
	}
	return nil
}

// serveExec runs a command in a container (pods/exec).
func serveExec(s *Server, w http.ResponseWriter, r *http.Request, c *call) {
	o := &corev1.PodExecOptions{}
	if err := streamOptions(r, o); err != nil {
		s.writeError(w, r, err)
		return
	}
	if len(o.Command) == 0 {
		s.writeError(w, r, apierrors.NewBadRequest("you must specify at least 1 command"))
		return
	}
	t := streams{o.Stdin, o.Stdout, o.Stderr, o.TTY}
	q := t.query()
	q["command"] = o.Command
	s.serveCommand(w, r, c, command{"exec", o, o.Container, t, q})
}

// serveAttach attaches to a container's main process (pods/attach).
func serveAttach(s *Server, w http.ResponseWriter, r *http.Request, c *call) {
	o := &corev1.PodAttachOptions{}
	if err := streamOptions(r, o); err != nil {
		s.writeError(w, r, err)
		return
	}
	t := streams{o.Stdin, o.Stdout, o.Stderr, o.TTY}
	s.serveCommand(w, r, c, command{"attach", o, o.Container, t, t.query()})
}

// command is an exec or attach.
type command struct {
	verb      string
	options   runtime.Object
	container string
	streams   streams
	query     url.Values
}

func (s *Server) serveCommand(w http.ResponseWriter, r *http.Request, c *call, cmd command) {
	if err := cmd.streams.validate(); err != nil {
		s.writeError(w, r, err)
		return
	}
	pod, err := s.runningPod(r, c, cmd.options, cmd.verb+" into a container in")
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	container, err := containerOf(pod, cmd.container)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	location := agentURL(pod.Spec.NodeName, "/"+cmd.verb+"/"+pod.Namespace+"/"+pod.Name+"/"+container, cmd.query)
	transport := s.agentTransport(pod.Spec.NodeName)
	if wsstream.IsWebSocketRequestWithStreamCloseProtocol(r) {
		// Container runtimes speak SPDY; today's clients speak WebSocket, version 5.
		t := cmd.streams
		translate.NewStreamTranslatorHandler(location, transport, 0, translate.Options{
			Stdin: t.stdin, Stdout: t.stdout, Stderr: t.stderr, Tty: t.tty,
		}).ServeHTTP(w, r)
		return
	}
	s.upgrade(location, transport, true).ServeHTTP(w, r)
}

// servePortForward opens connections to ports of a pod (pods/portforward).
func servePortForward(s *Server, w http.ResponseWriter, r *http.Request, c *call) {
	o := &corev1.PodPortForwardOptions{}
	if err := streamOptions(r, o); err != nil {
		s.writeError(w, r, err)
		return
	}
	pod, err := s.runningPod(r, c, o, "forward a port in")
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	q := url.Values{}
	for _, port := range o.Ports {
		q.Add("port", fmt.Sprint(port))
	}
	location := agentURL(pod.Spec.NodeName, "/portForward/"+pod.Namespace+"/"+pod.Name, q)
	handler := s.upgrade(location, s.agentTransport(pod.Spec.NodeName), true)
	if wsstream.IsWebSocketRequestWithTunnelingProtocol(r) {
		translate.NewTunnelingHandler(handler).ServeHTTP(w, r)
		return
	}
	handler.ServeHTTP(w, r)
}

// runningPod reads a pod whose containers a stream is to reach, and asks
// admission. what completes the message "cannot ... a completed pod".
func (s *Server) runningPod(r *http.Request, c *call, options runtime.Object, what string) (*corev1.Pod, error) {
	pod, err := s.podOf(r.Context(), c)
	if err != nil {
		return nil, err
	}
	if err := s.admitConnect(r.Context(), c, options); err != nil {
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
