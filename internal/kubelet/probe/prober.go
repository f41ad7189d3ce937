package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kemudi/kemudi/internal/kubelet/cri"
)

// maxOutput is how much of an answer is read.
const maxOutput = 10 << 10

// Exec runs a command in a container and returns its output and exit code.
type Exec func(ctx context.Context, containerID string, command []string, timeout time.Duration) (output string, code int32, err error)

// Prober carries out handlers. The zero value lacks Exec.
type Prober struct {
	Exec    Exec
	Version string // of the node agent, for User-Agent
	// Dial opens connections; nil: as net.Dialer does.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Target is what a probe is about.
type Target struct {
	Pod         *v1.Pod
	Container   *v1.Container
	ContainerID string
	PodIP       string
	Timeout     time.Duration
}

// spare is how much longer than its command an exec probe may take. The time of a command
// begins when it runs, and it is the runtime that ends it and says so: to give up at the same
// moment would be not to hear of that.
const spare = 2 * time.Minute

// Probe carries out one probe. output is for people.
func (p *Prober) Probe(ctx context.Context, h *v1.ProbeHandler, t Target) (r Result, output string) {
	limit := t.Timeout
	if h.Exec != nil {
		limit += spare
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	switch {
	case h.Exec != nil:
		return p.exec(ctx, h.Exec, t)
	case h.HTTPGet != nil:
		return p.httpGet(ctx, h.HTTPGet, t)
	case h.TCPSocket != nil:
		return p.tcp(ctx, h.TCPSocket, t)
	case h.GRPC != nil:
		return p.grpc(ctx, h.GRPC, t)
	}
	return Unknown, "missing probe handler"
}

func (p *Prober) exec(ctx context.Context, h *v1.ExecAction, t Target) (Result, string) {
	out, code, err := p.Exec(ctx, t.ContainerID, expand(h.Command, t), t.Timeout)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return Failure, fmt.Sprintf("command timed out: %q timed out after %s", strings.Join(h.Command, " "), t.Timeout)
	case err != nil:
		return Unknown, err.Error()
	case code != 0:
		return Failure, out
	}
	return Success, out
}

// expand resolves $(NAME) by the container's plain variables.
func expand(command []string, t Target) []string {
	out := make([]string, len(command))
	for i, word := range command {
		out[i] = cri.Expand(word, func(name string) (value string, ok bool) {
			for _, e := range t.Container.Env { // the last one counts
				if e.Name == name && e.ValueFrom == nil {
					value, ok = e.Value, true
				}
			}
			return value, ok
		})
	}
	return out
}

// Port finds a port by number or by its name in the container.
func Port(port intstr.IntOrString, c *v1.Container) (int, error) {
	n := port.IntValue()
	if port.Type == intstr.String {
		found := false
		for _, p := range c.Ports {
			if p.Name == port.StrVal {
				n, found = int(p.ContainerPort), true
			}
		}
		if !found {
			if number, err := strconv.Atoi(port.StrVal); err == nil {
				n = number
			} else {
				return 0, fmt.Errorf("couldn't find port %q in container %q", port.StrVal, c.Name)
			}
		}
	}
	if n <= 0 || n > 65535 {
		return 0, fmt.Errorf("invalid port number: %v", n)
	}
	return n, nil
}

// Request is the HTTP request of a handler.
func (p *Prober) Request(ctx context.Context, h *v1.HTTPGetAction, t Target, agent string) (*http.Request, error) {
	port, err := Port(h.Port, t.Container)
	if err != nil {
		return nil, err
	}
	host := h.Host
	if host == "" {
		host = t.PodIP
	}
	u := &url.URL{Path: h.Path}
	if parsed, err := url.Parse(h.Path); err == nil {
		u = parsed
	}
	u.Scheme, u.Host = "http", net.JoinHostPort(host, strconv.Itoa(port))
	if h.Scheme != "" {
		u.Scheme = strings.ToLower(string(h.Scheme))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	for _, header := range h.HTTPHeaders {
		if strings.EqualFold(header.Name, "Host") {
			req.Host = header.Value
			continue
		}
		req.Header.Add(header.Name, header.Value)
	}
	if _, ok := req.Header["User-Agent"]; !ok {
		req.Header.Set("User-Agent", agent)
	}
	if _, ok := req.Header["Accept"]; !ok {
		req.Header.Set("Accept", "*/*")
	}
	for _, name := range []string{"User-Agent", "Accept"} {
		if req.Header.Get(name) == "" {
			req.Header[name] = nil // the pod wants it left out
		}
	}
	return req, nil
}

// Client makes single requests to containers: any certificate is good, and
// redirects are followed only within the host.
func (p *Prober) Client() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DisableKeepAlives: true, DisableCompression: true, DialContext: p.dial, Proxy: nil,
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // a probe asks for life, not for identity
		},
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			if req.URL.Hostname() != via[0].URL.Hostname() {
				return http.ErrUseLastResponse
			}
			if len(via) >= 10 {
				return errors.New("stopped after 10 redirects")
			}
			return nil
		},
	}
}

func (p *Prober) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if p.Dial != nil {
		return p.Dial(ctx, network, address)
	}
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

func (p *Prober) httpGet(ctx context.Context, h *v1.HTTPGetAction, t Target) (Result, string) {
	req, err := p.Request(ctx, h, t, "kube-probe/"+p.Version)
	if err != nil {
		return Unknown, err.Error()
	}
	client := p.Client()
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return Failure, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxOutput))
	if err != nil {
		return Failure, err.Error()
	}
	switch {
	case resp.StatusCode >= http.StatusMultipleChoices && resp.StatusCode < http.StatusBadRequest:
		return Warning, "Probe terminated redirects, Response body: " + string(body)
	case resp.StatusCode >= http.StatusOK && resp.StatusCode < http.StatusBadRequest:
		return Success, string(body)
	}
	return Failure, fmt.Sprintf("HTTP probe failed with statuscode: %d", resp.StatusCode)
}

func (p *Prober) tcp(ctx context.Context, h *v1.TCPSocketAction, t Target) (Result, string) {
	port, err := Port(h.Port, t.Container)
	if err != nil {
		return Unknown, err.Error()
	}
	host := h.Host
	if host == "" {
		host = t.PodIP
	}
	conn, err := p.dial(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return Failure, err.Error()
	}
	_ = conn.Close() // it was open: that is the answer
	return Success, ""
}
