package server

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/logs"
	"github.com/kemudi/kemudi/internal/kubelet/relay"
)

const (
	// attachedAtOnce is how soon after its container's start an attachment comes
	// whose client has just made the pod, and wants to see all that it writes.
	attachedAtOnce = 10 * time.Second
	// exitWait is how long a container whose streams have ended may take to end.
	exitWait = 5 * time.Second
)

func (s *Server) serveAttach(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if _, err := streamsOf(q, flag(q, "tty")); err != nil {
		fail(w, err)
		return
	}
	f, err := s.find(r.Context(), r)
	if err != nil {
		fail(w, err)
		return
	}
	name := r.PathValue("container")
	id, ok := f.running(name)
	if !ok {
		fail(w, fmt.Errorf("container %s not found in pod %s_%s", name, f.Pod.Name, f.Pod.Namespace))
		return
	}
	c := cri.FindContainer(f.Pod, name)
	if c == nil {
		c = &v1.Container{}
	}
	// The terminal is as the container was started, whatever is asked for.
	o := &remotecommand.Options{Stdin: flag(q, "input"), Stdout: flag(q, "output"), Stderr: flag(q, "error") && !c.TTY, TTY: c.TTY}
	resp, err := s.runtime.Attach(r.Context(), &runtimeapi.AttachRequest{
		ContainerId: id, Tty: o.TTY, Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr,
	})
	where := located(w, resp.GetUrl(), err)
	if where == nil {
		return
	}
	s.countWebSocket(r, "attach")
	began := time.Now()
	(&relay.Attachment{
		Where: where, Idle: s.o.Settings.StreamIdle, StdinOnce: c.StdinOnce,
		Running: func(ctx context.Context) bool { return s.isRunning(ctx, id) },
		Ended: func(ctx context.Context) bool {
			s.awaitExit(ctx, f.Pod.UID, id)
			return !s.isRunning(ctx, id)
		},
		Replay: func(ctx context.Context, out, errOut io.Writer) (bool, error) {
			return s.replay(ctx, f.Pod.UID, unread{id, began, out, errOut})
		},
	}).Serve(w, r, o)
}

// isRunning reports whether a container runs, as far as the runtime knows.
func (s *Server) isRunning(ctx context.Context, id string) bool {
	resp, err := s.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	return err == nil && resp.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
}

// unread is what a client has not seen of a container's output.
type unread struct {
	container   string
	attached    time.Time // when the client came
	out, errOut io.Writer // nil: not wanted
}

// replay writes what is unread, unless the client came to a container that had
// run for a while: such a client wants what comes.
func (s *Server) replay(ctx context.Context, pod types.UID, u unread) (all bool, err error) {
	s.awaitExit(ctx, pod, u.container) // which completes the log, or it runs on, without output
	resp, err := s.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: u.container})
	if err != nil || resp.GetStatus().GetLogPath() == "" || u.attached.Sub(time.Unix(0, resp.GetStatus().GetStartedAt())) > attachedAtOnce {
		return false, nil // there is nothing to show
	}
	s.mu.Lock()
	seen := s.mu.read[u.container]
	s.mu.Unlock()
	err = logs.Read(ctx, resp.GetStatus().GetLogPath(), logs.Options{Tail: -1, Limit: -1, Stdout: remainder{&seen, u.out}, Stderr: remainder{&seen, u.errOut}})
	if err != nil {
		return false, fmt.Errorf("show what the container wrote: %w", err)
	}
	return true, nil
}

// awaitExit waits for a container's end, for a while.
func (s *Server) awaitExit(ctx context.Context, pod types.UID, id string) {
	select {
	case <-s.o.Pods.ExitOf(pod, id):
	case <-time.After(exitWait):
	case <-ctx.Done():
	}
}

// noteRead notes how much of a container's log a client has read that began at
// its beginning: kubectl run reads what there is before it attaches.
func (s *Server) noteRead(id string, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.read[id] = max(s.mu.read[id], bytes)
}

// Forget forgets what is noted of a container that is gone.
func (s *Server) Forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.read, id)
}

// remainder passes on to w, which may be nil, what comes after the first bytes that
// it shares with others.
type remainder struct {
	skip *int64
	w    io.Writer
}

func (r remainder) Write(p []byte) (int, error) {
	n := min(int64(len(p)), *r.skip)
	*r.skip -= n
	if r.w == nil || int64(len(p)) == n {
		return len(p), nil
	}
	m, err := r.w.Write(p[n:])
	return int(n) + m, err
}
