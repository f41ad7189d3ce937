package container

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/kubelet/probe"
	"github.com/kemudi/kemudi/internal/task"
)

// hookCall is one call of a lifecycle hook.
type hookCall struct {
	handler *v1.LifecycleHandler
	target  probe.Target
}

func (c *Container) hook(id string, h *v1.LifecycleHandler) hookCall {
	t := probe.Target{Pod: c.Pod, Container: c.Spec, ContainerID: id}
	if len(c.PodIPs) > 0 {
		t.PodIP = c.PodIPs[0]
	}
	return hookCall{h, t}
}

// runHook runs a hook to its end, or until ctx ends, which is an error.
func (r *Runner) runHook(ctx context.Context, c hookCall) error {
	switch h := c.handler; {
	case h.Sleep != nil:
		err := task.Sleep(ctx, time.Duration(h.Sleep.Seconds)*time.Second)
		if err != nil {
			r.metrics.sleepsCut.Inc()
		}
		return err
	case h.Exec != nil:
		out, code, err := r.Exec(ctx, c.target.ContainerID, h.Exec.Command, 0)
		if err != nil {
			return fmt.Errorf("exec lifecycle hook (%q): %w", strings.Join(h.Exec.Command, " "), err)
		}
		if code != 0 {
			return fmt.Errorf("command '%s' exited with %d: %s", strings.Join(h.Exec.Command, " "), code, out)
		}
		return nil
	case h.HTTPGet != nil && r.Disk == nil: // a simulated pod has nothing that would answer
		return nil
	case h.HTTPGet != nil:
		return r.httpHook(ctx, h.HTTPGet, c.target)
	default: // tcpSocket, which is accepted in manifests and fails everywhere
		return fmt.Errorf("invalid handler: %v", h)
	}
}

// httpHook makes the request; any answer will do. A container that does not speak TLS after all is asked without, and
// not shown what says who asks.
func (r *Runner) httpHook(ctx context.Context, h *v1.HTTPGetAction, t probe.Target) error {
	client := r.prober.Client()
	defer client.CloseIdleConnections()
	req, err := r.prober.Request(ctx, h, t, "kube-lifecycle/"+r.prober.Version)
	if err != nil {
		return err
	}
	err = ask(client, req)
	var notTLS tls.RecordHeaderError
	if err == nil || req.URL.Scheme != "https" || !errors.As(err, &notTLS) && !strings.Contains(err.Error(), "server gave HTTP response to HTTPS client") {
		return err
	}
	req = req.Clone(ctx)
	req.URL.Scheme = "http"
	req.Header.Del("Authorization")
	if err := ask(client, req); err != nil {
		return err
	}
	r.metrics.fallbacks.Inc()
	r.About(t.Pod, "").Event(v1.EventTypeWarning, "LifecycleHTTPFallback", fmt.Sprintf("request to HTTPS lifecycle hook %s got HTTP response, retry with HTTP succeeded", req.URL.Host))
	return nil
}

// ask makes a request and reads some of the answer.
func ask(client *http.Client, req *http.Request) error {
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, 10<<10))
	return errors.Join(err, resp.Body.Close())
}

// Exec runs a command in a container; no timeout if that is 0. The error is
// context.DeadlineExceeded if it took too long.
func (r *Runner) Exec(ctx context.Context, id string, command []string, timeout time.Duration) (string, int32, error) {
	seconds := int64((timeout + time.Second - 1) / time.Second)
	resp, err := r.Runtime.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: command, Timeout: seconds})
	if status.Code(err) == codes.DeadlineExceeded || err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return "", 0, context.DeadlineExceeded // also where the runtime has other words for being given up
	}
	if err != nil {
		return "", 0, err
	}
	return string(resp.Stdout) + string(resp.Stderr), resp.ExitCode, nil
}
