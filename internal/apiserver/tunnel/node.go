package tunnel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/proxy"
)

// Nodes reaches node agents, and what is on nodes beside them.
type Nodes interface {
	// DialNode opens a connection to the agent of a node on which it speaks HTTP
	// and takes every request as the API server's: secured, or within the process.
	DialNode(ctx context.Context, node string) (net.Conn, error)
	// DialAddress opens a connection to an address, "10.0.0.7:80", of a pod on a
	// node or of the node itself.
	DialAddress(ctx context.Context, node, address string) (net.Conn, error)
}

// unverifiedKey is the key of [Unverified].
type unverifiedKey struct{}

// Unverify returns a context in which the agents of nodes are not asked to prove who they are.
func Unverify(ctx context.Context) context.Context {
	return context.WithValue(ctx, unverifiedKey{}, true)
}

// Unverified reports whether the agent of a node is to be reached whatever its certificate is: somebody wants to see
// the log of a pod for whom it does not matter who shows it.
func Unverified(ctx context.Context) bool { return ctx.Value(unverifiedKey{}) != nil }

// newAgents speaks HTTP with node agents: the host of a URL is the node's name.
func newAgents(nodes Nodes) *http.Transport {
	return &http.Transport{
		MaxIdleConns: keptInAll, MaxIdleConnsPerHost: keptPerTarget, IdleConnTimeout: kept,
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			node, _, err := net.SplitHostPort(address)
			if err != nil {
				return nil, fmt.Errorf("reach the agent of a node: %w", err)
			}
			if nodes == nil {
				return nil, fmt.Errorf("node %s cannot be reached: this server has no connection to node agents", node)
			}
			return nodes.DialNode(ctx, node)
		},
	}
}

// agentURL is a path of a node agent's API.
func agentURL(node, path string, query url.Values) *url.URL {
	return &url.URL{Scheme: "http", Host: node, Path: path, RawQuery: query.Encode()}
}

// containerOf is the container that a request means: the one it names, or the
// only one.
func containerOf(pod *corev1.Pod, name string) (string, error) {
	if name == "" {
		if len(pod.Spec.Containers) == 1 {
			return pod.Spec.Containers[0].Name, nil
		}
		return "", apierrors.NewBadRequest(fmt.Sprintf("a container name must be specified for pod %s, choose one of: %s%s", pod.Name, names(pod.Spec.Containers), others(pod)))
	}
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == name {
			return name, nil
		}
	}
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == name {
			return name, nil
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if pod.Spec.EphemeralContainers[i].Name == name {
			return name, nil
		}
	}
	return "", apierrors.NewBadRequest(fmt.Sprintf("container %s is not valid for pod %s", name, pod.Name))
}

func names(containers []corev1.Container) []string {
	out := make([]string, len(containers))
	for i := range containers {
		out[i] = containers[i].Name
	}
	return out
}

// others lists what can be named besides the containers.
func others(pod *corev1.Pod) string {
	text := ""
	if len(pod.Spec.InitContainers) > 0 {
		text += fmt.Sprintf(" or one of the init containers: %s", names(pod.Spec.InitContainers))
	}
	if n := len(pod.Spec.EphemeralContainers); n > 0 {
		list := make([]string, n)
		for i := range pod.Spec.EphemeralContainers {
			list[i] = pod.Spec.EphemeralContainers[i].Name
		}
		text += fmt.Sprintf(" or one of the ephemeral containers: %s", list)
	}
	return text
}

// agentError turns what an agent answered other than success to a question for the log of a pod into an error of the
// API: its code, and its text if it is one for people.
func agentError(resp *http.Response, pod string) error {
	text, err := io.ReadAll(io.LimitReader(resp.Body, 4096))
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("read answer of node agent: %w", err))
	}
	switch resp.StatusCode {
	case http.StatusBadRequest:
		return apierrors.NewBadRequest(string(text))
	case http.StatusInternalServerError:
		return apierrors.NewInternalError(errors.New(string(text)))
	}
	return apierrors.NewGenericServerResponse(resp.StatusCode, "", corev1.Resource("pods/log"), pod, string(text), 0, false)
}

// upgrade hands the request's connection through to a location. It writes its
// own errors.
func (q *Request) upgrade(location *url.URL, transport http.RoundTripper, required bool) *proxy.UpgradeAwareHandler {
	return proxy.NewUpgradeAwareHandler(location, transport, false, required, q)
}
