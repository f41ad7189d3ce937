package up

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kemudi/kemudi/internal/join"
	"github.com/kemudi/kemudi/internal/task"
)

// Server is how one server looks from an agent's machine.
type Server struct {
	URL     string `json:"url"`
	Ready   bool   `json:"ready"`
	Problem string `json:"problem,omitempty"` // why it is not
}

// What runs on a machine.
const (
	RoleServer = "server"
	RoleAgent  = "agent"
)

// serverDeadline bounds how long one server may take to say how it is: others may answer.
const serverDeadline = 3 * time.Second

// member is who an agent's machine is; nil: it has not joined yet.
func member(dataDir string) (*join.Member, error) {
	m, err := join.ReadMember(filepath.Join(dataDir, "identity"))
	if errors.Is(err, join.ErrNoMember) {
		return nil, nil
	}
	return m, err
}

// askAsNode asks all servers how they are, and the first one that is ready about the machine's own
// node and its pods.
func askAsNode(ctx context.Context, dataDir string, s *State) error {
	m, err := member(dataDir)
	switch {
	case err != nil:
		return err
	case m == nil:
		return errors.New("the machine has not joined yet")
	}
	s.Servers = make([]Server, len(m.Servers))
	g := task.NewGroup(ctx)
	for i, url := range m.Servers {
		g.Go("ask "+url, func(ctx context.Context) error {
			s.Servers[i] = Server{URL: url}
			if err := readyz(ctx, m, url); err != nil {
				s.Servers[i].Problem = err.Error()
			} else {
				s.Servers[i].Ready = true
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, server := range s.Servers {
		if server.Ready {
			return askNode(ctx, m, server.URL, s)
		}
	}
	s.Nodes = []Node{{Name: m.Node, here: true}}
	return errors.New("no server is ready: pods go on, and are started again when they end; nothing new comes until one answers")
}

func readyz(ctx context.Context, m *join.Member, url string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, serverDeadline, fmt.Errorf("no answer within %s", serverDeadline))
	defer cancel()
	c, err := kubernetes.NewForConfig(m.Access(url))
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	body, err := c.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Raw()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && len(body) > 0:
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(body)))
	}
	return err
}

// askNode asks a server for the node of a machine, and for what runs there.
func askNode(ctx context.Context, m *join.Member, url string, s *State) error {
	c, err := kubernetes.NewForConfig(m.Access(url))
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	v, err := c.Discovery().ServerVersion()
	if err != nil {
		return err
	}
	s.Version = v.GitVersion
	node, err := c.CoreV1().Nodes().Get(ctx, m.Node, metav1.GetOptions{})
	if err != nil {
		return err
	}
	n := stateOfNode(node)
	n.here = true
	s.Nodes, s.Ready = []Node{n}, n.Ready
	pods, err := c.CoreV1().Pods("").List(ctx, metav1.ListOptions{ResourceVersion: "0", FieldSelector: "spec.nodeName=" + m.Node})
	if err != nil {
		return err
	}
	s.Pods = len(pods.Items)
	return nil
}

func stateOfNode(node *corev1.Node) Node {
	n := Node{Name: node.Name}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			n.Ready = c.Status == corev1.ConditionTrue
		}
	}
	return n
}
