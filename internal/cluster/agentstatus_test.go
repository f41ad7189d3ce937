package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/up"
)

// TestStatusOfAnAgentsMachine asks as `kemudi status` does where an agent runs: of the servers that
// it knows of, and of its own node alone.
func TestStatusOfAnAgentsMachine(t *testing.T) {
	b := newJoinBed(t)
	o := up.Options{DataDir: t.TempDir(), RunDir: t.TempDir()}
	status := func() up.State {
		t.Helper()
		s, err := up.Status(t.Context(), o)
		b.must(err)
		return s
	}
	if s := status(); s.Role != up.RoleServer || s.Running {
		t.Errorf("where nothing is: got %+v", s)
	}
	m := b.machine("web-7")
	b.must(m.join(b.create(up.TokenOptions{})))
	m.register()
	b.must(os.Symlink(m.dir, filepath.Join(o.DataDir, "identity")))
	if s := status(); s.Role != up.RoleAgent || s.Running || s.Ready {
		t.Errorf("while the agent does not run: got %+v", s)
	}
	lock, err := up.Claim(o.RunDir)
	b.must(err)
	defer lock.Close()
	// Servers that are not there are told of, and keep nobody from being asked.
	gone := "https://127.0.0.1:1"
	b.must(m.id.SetServers([]string{gone, b.url}))
	s := status()
	if !s.Running || !s.Ready || s.Problem != "" || len(s.Nodes) != 1 || s.Nodes[0].Name != "web-7" || !s.Nodes[0].Ready || s.Version == "" {
		t.Errorf("got %+v", s)
	}
	if len(s.Servers) != 2 || s.Servers[0].Ready || !strings.Contains(s.Servers[0].Problem, "refused") || s.Servers[1] != (up.Server{URL: b.url, Ready: true}) {
		t.Errorf("got servers %+v", s.Servers)
	}
	b.report("web-7", corev1.ConditionFalse, "hardware of web-7")
	if s := status(); s.Ready || s.Nodes[0].Ready {
		t.Errorf("while the node is not ready: got %+v", s)
	}
	b.must(m.id.SetServers([]string{gone}))
	if s := status(); s.Ready || !strings.Contains(s.Problem, "no server is ready: pods go on") || len(s.Nodes) != 1 {
		t.Errorf("while no server answers: got %+v", s)
	}
}
