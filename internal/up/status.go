package up

import (
	"context"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// statusDeadline bounds how long a server may take to say how it is.
const statusDeadline = 10 * time.Second

// State is how a cluster on this machine is.
type State struct {
	Running bool   `json:"running"`
	Process int    `json:"process,omitempty"`
	Version string `json:"version,omitempty"`
	Ready   bool   `json:"ready"`
	Nodes   []Node `json:"nodes,omitempty"`
	Pods    int    `json:"pods"`
	Problem string `json:"problem,omitempty"` // why it is not ready
}

// Node is how one node is.
type Node struct {
	Name  string `json:"name"`
	Ready bool   `json:"ready"`
}

// Status asks the running server, if there is one.
func Status(ctx context.Context, o Options) (State, error) {
	pid, err := Running(o.RunDir)
	if err != nil || pid == 0 {
		return State{}, err
	}
	s := State{Running: true, Process: pid}
	ctx, cancel := context.WithTimeout(ctx, statusDeadline)
	defer cancel()
	if err := ask(ctx, o.DataDir, &s); err != nil {
		s.Problem = err.Error()
	}
	return s, nil
}

func ask(ctx context.Context, dataDir string, s *State) error {
	config, err := adminConfig(dataDir)
	if err != nil {
		return err
	}
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	v, err := c.Discovery().ServerVersion()
	if err != nil {
		return err
	}
	s.Version = v.GitVersion
	code := 0
	body, err := c.Discovery().RESTClient().Get().AbsPath("/readyz").Param("verbose", "").Do(ctx).StatusCode(&code).Raw()
	if code != http.StatusOK {
		return fmt.Errorf("the API server is not ready (%w):\n%s", err, body)
	}
	nodes, err := c.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	s.Ready = true
	for i := range nodes.Items {
		n := Node{Name: nodes.Items[i].Name}
		for _, cond := range nodes.Items[i].Status.Conditions {
			if cond.Type == corev1.NodeReady {
				n.Ready = cond.Status == corev1.ConditionTrue
			}
		}
		s.Ready = s.Ready && n.Ready
		s.Nodes = append(s.Nodes, n)
	}
	pods, err := c.CoreV1().Pods("").List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return err
	}
	s.Pods = len(pods.Items)
	return nil
}
