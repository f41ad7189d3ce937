package tunnel

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// Log streams a container's log from its node (pods/log).
func (t *Tunnels) Log(q *Request) {
	o := &corev1.PodLogOptions{}
	if err := q.options(o); err != nil {
		q.fail(err)
		return
	}
	if errs := validateLogOptions(o); len(errs) > 0 {
		q.fail(apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("PodLogOptions").GroupKind(), q.Name, errs))
		return
	}
	ctx := q.R.Context()
	pod, err := q.pod(ctx, q.Name)
	if err != nil {
		q.fail(err)
		return
	}
	container, err := containerOf(pod, o.Container)
	if err != nil {
		q.fail(err)
		return
	}
	if pod.Spec.NodeName == "" {
		q.W.WriteHeader(http.StatusNoContent) // it has not run anywhere: nothing was logged
		return
	}
	location := agentURL(pod.Spec.NodeName, "/containerLogs/"+pod.Namespace+"/"+pod.Name+"/"+container, logQuery(o))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, location.String(), nil)
	if err != nil {
		q.fail(apierrors.NewInternalError(err))
		return
	}
	agents, usage := t.agents, "enforce_tls"
	if o.InsecureSkipTLSVerifyBackend {
		agents, usage = t.unverified, "skip_tls_allowed"
		req = req.WithContext(Unverify(ctx))
	}
	t.metrics.backends.WithLabelValues(usage).Inc()
	resp, err := agents.RoundTrip(req)
	if err != nil {
		if bad := (*tls.CertificateVerificationError)(nil); errors.As(err, &bad) {
			t.metrics.tlsFailures.Inc()
		}
		q.fail(apierrors.NewInternalError(fmt.Errorf("get logs from node %s: %w", pod.Spec.NodeName, err)))
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		q.fail(agentError(resp, pod.Name))
		return
	}
	if wsstream.IsWebSocketRequest(q.R) {
		if !handshakes(q.R.Header) {
			q.fail(apierrors.NewBadRequest("a WebSocket with this version or subprotocol is not served"))
			return
		}
		if err := wsstream.NewReader(&lastAlone{from: resp.Body}, true, wsstream.NewDefaultReaderProtocols()).Copy(q.W, q.R); err != nil {
			t.o.Logger.DebugContext(ctx, "log stream ended", "pod", pod.Name, "err", err)
		}
		return
	}
	q.W.Header().Set("Content-Type", "text/plain")
	q.W.WriteHeader(http.StatusOK)
	copyFlushing(q.W, resp.Body)
}

// handshakes reports whether a request for a WebSocket can be granted. The library
// waits forever for the end of a stream that it has refused.
func handshakes(h http.Header) bool {
	if h.Get("Sec-Websocket-Key") == "" || h.Get("Sec-Websocket-Version") != "13" {
		return false
	}
	asked := strings.TrimSpace(h.Get("Sec-Websocket-Protocol"))
	if asked == "" {
		return true
	}
	served := wsstream.NewDefaultReaderProtocols()
	return slices.ContainsFunc(strings.Split(asked, ","), func(name string) bool {
		_, ok := served[strings.TrimSpace(name)]
		return ok && strings.TrimSpace(name) != ""
	})
}

// lastAlone reads what another reader has and tells the end by itself: who sends
// a log over WebSocket would drop the bytes that come together with it.
type lastAlone struct {
	from io.Reader
	end  error // came with the bytes that were read last
}

func (l *lastAlone) Read(p []byte) (int, error) {
	if l.end != nil {
		return 0, l.end
	}
	n, err := l.from.Read(p)
	if n == 0 {
		return 0, err
	}
	l.end = err
	return n, nil
}

// copyFlushing sends on what comes, at once: whoever follows a log wants to see
// each line when it is written. Either end may go at any time.
func copyFlushing(w http.ResponseWriter, from io.Reader) {
	flusher := http.NewResponseController(w)
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return
			}
			if err := flusher.Flush(); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// logQuery are log options as a node agent takes them.
func logQuery(o *corev1.PodLogOptions) url.Values {
	q := url.Values{}
	for name, on := range map[string]bool{"follow": o.Follow, "previous": o.Previous, "timestamps": o.Timestamps} {
		if on {
			q.Set(name, "true")
		}
	}
	for name, n := range map[string]*int64{"sinceSeconds": o.SinceSeconds, "tailLines": o.TailLines, "limitBytes": o.LimitBytes} {
		if n != nil {
			q.Set(name, strconv.FormatInt(*n, 10))
		}
	}
	if o.SinceTime != nil {
		q.Set("sinceTime", o.SinceTime.Format(time.RFC3339))
	}
	if o.Stream != nil {
		q.Set("stream", *o.Stream)
	}
	return q
}

func validateLogOptions(o *corev1.PodLogOptions) (errs field.ErrorList) {
	if o.TailLines != nil && *o.TailLines < 0 {
		errs = append(errs, field.Invalid(field.NewPath("tailLines"), *o.TailLines, "must be greater than or equal to 0"))
	}
	if o.LimitBytes != nil && *o.LimitBytes < 1 {
		errs = append(errs, field.Invalid(field.NewPath("limitBytes"), *o.LimitBytes, "must be greater than 0"))
	}
	switch {
	case o.SinceSeconds != nil && o.SinceTime != nil:
		errs = append(errs, field.Forbidden(field.NewPath(""), "at most one of `sinceTime` or `sinceSeconds` may be specified"))
	case o.SinceSeconds != nil && *o.SinceSeconds < 1:
		errs = append(errs, field.Invalid(field.NewPath("sinceSeconds"), *o.SinceSeconds, "must be greater than 0"))
	}
	if o.Stream != nil {
		switch *o.Stream {
		case corev1.LogStreamAll:
		case corev1.LogStreamStdout, corev1.LogStreamStderr:
			if o.TailLines != nil {
				errs = append(errs, field.Forbidden(field.NewPath(""), "`tailLines` and specific `stream` are mutually exclusive for now"))
			}
		default:
			errs = append(errs, field.NotSupported(field.NewPath("stream"), *o.Stream, []string{corev1.LogStreamAll, corev1.LogStreamStdout, corev1.LogStreamStderr}))
		}
	}
	return errs
}
