package up

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// statusDeadline bounds how long a server may take to say how it is.
const statusDeadline = 10 * time.Second

// State is how a cluster on this machine is. Where an agent runs, it is what that one's node is
// told: the nodes are its own alone, the pods those that it runs.
type State struct {
	Role    string `json:"role"` // server or agent
	Running bool   `json:"running"`
	Process int    `json:"process,omitempty"`
	Log     string `json:"log,omitempty"` // file that its log goes to; empty: none, or not for this user to see
	Version string `json:"version,omitempty"`
	Ready   bool   `json:"ready"`
	// Ephemeral says that the cluster is gone when the server ends.
	Ephemeral bool `json:"ephemeral,omitempty"`

	// Servers are those that an agent knows of.
	Servers []Server `json:"servers,omitempty"`

	Nodes   []Node `json:"nodes,omitempty"`
	Pods    int    `json:"pods"`
	Problem string `json:"problem,omitempty"` // why it is not ready
}

// Node is how one node is.
type Node struct {
	Name  string `json:"name"`
	Ready bool   `json:"ready"`
	here  bool   // it has an address of this machine
}

// Status asks the running server, or those of the agent that runs, if there is one.
func Status(ctx context.Context, o Options) (State, error) {
	s := State{Role: RoleServer}
	role, err := RoleOf(o.DataDir)
	if err != nil {
		return s, err
	}
	s.Role = cmp.Or(role, RoleServer)
	pid, err := Running(o.RunDir)
	if err != nil || pid == 0 {
		return s, err
	}
	s.Running, s.Process, s.Log, s.Ephemeral = true, pid, logOf(pid), Ephemeral(o.DataDir)
	ctx, cancel := context.WithTimeout(ctx, statusDeadline)
	defer cancel()
	if s.Role == RoleAgent {
		err = askAsNode(ctx, o.DataDir, &s)
	} else {
		err = ask(ctx, o.DataDir, &s)
	}
	if err != nil {
		s.Problem, s.Ready = cmp.Or(waits(o.RunDir), err.Error()), false
	}
	return s, nil
}

// logOf is the file that a process logs to, wherever whoever has started it has led its log.
func logOf(pid int) string {
	file, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/2", pid))
	if err != nil || !filepath.IsAbs(file) || strings.HasPrefix(file, "/dev/") {
		return ""
	}
	return file
}

// addresses are those of this machine.
func addresses() (map[string]bool, error) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("find addresses of this machine: %w", err)
	}
	ours := map[string]bool{}
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			ours[p.Addr().String()] = true
		}
	}
	return ours, nil
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
	ours, err := addresses()
	if err != nil {
		return err
	}
	s.Ready = true
	for i := range nodes.Items {
		n := stateOfNode(&nodes.Items[i])
		n.here = slices.ContainsFunc(nodes.Items[i].Status.Addresses, func(a corev1.NodeAddress) bool { return ours[a.Address] })
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
