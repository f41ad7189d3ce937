package e2e

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kemudi/kemudi/internal/up"
	"github.com/kemudi/kemudi/test/wait"
)

// TestUpStatusDownReset is a newcomer's first hour, in a minute.
func TestUpStatusDownReset(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	dirs := []string{"--data-dir", m.DataDir, "--run-dir", m.RunDir}
	kubeconfig := filepath.Join(m.Dir, "home/.kube/config")
	command := func(want int, args ...string) output {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
		defer cancel()
		// A proxy for the world outside must not be asked for what is here.
		cmd := append([]string{"env", "KUBECONFIG=" + kubeconfig, "http_proxy=http://127.0.0.1:1", m.bin, args[0]}, dirs...)
		o := m.run(ctx, nil, append(cmd, args[1:]...)...)
		if o.code != want {
			t.Errorf("kemudi %s: exit code %d, want %d:\n%s", strings.Join(args, " "), o.code, want, o.all())
		}
		return o
	}
	status := func(want int) (s up.State) {
		t.Helper()
		if err := json.Unmarshal([]byte(command(want, "status", "-o", "json").stdout), &s); err != nil {
			t.Errorf("status -o json: %v", err)
		}
		return s
	}
	if s := status(3); s.Running || s.Ready {
		t.Errorf("status before: got %+v", s)
	}
	if o := command(0, "down"); !strings.Contains(o.stdout, "no server is running") {
		t.Errorf("down before: got %+v", o)
	}
	web := ""
	for _, file := range m.images {
		if filepath.Base(file) == "web-1.tar" {
			web = file
		}
	}
	example := must(filepath.Abs("../../examples/web.yaml"))(t)
	upArgs := []string{"up", "--import", web, "--apply", example, "--", "--pod-logs-dir", m.LogsDir}
	o := command(0, upArgs...)
	for _, want := range []string{"started the server (process ", "API server\n", "node is ready\n", `wrote context "kemudi" to ` + kubeconfig, "imported kemudi.local/web:1\n", "applied " + example, "deployment web is available\n", "service web answers at http://" + machineIP + ":30080/\n", "Try next:", "kubectl get pods -A"} {
		if !strings.Contains(o.stdout, want) {
			t.Errorf("up: got\n%s\nwant it to contain %q", o.stdout, want)
		}
	}
	if got, err := get(m.neighbour, "http://"+machineIP+":30080/"); err != nil || !strings.HasSuffix(got, " 1\n") {
		t.Errorf("the example: got %q, %v", got, err)
	}
	s := status(0)
	if !s.Running || !s.Ready || s.Process == 0 || len(s.Nodes) != 1 || !s.Nodes[0].Ready || s.Pods != 3 || s.Log != up.LogFile(m.DataDir) {
		t.Errorf("status: got %+v", s)
	}
	if o := command(0, "status"); !strings.Contains(o.stdout, "ready\n") || !strings.Contains(o.stdout, "pods     3\n") || !strings.Contains(o.stdout, ", log "+up.LogFile(m.DataDir)+"\n") {
		t.Errorf("status: got %+v", o)
	}
	kubectl := func(args ...string) output {
		return m.run(t.Context(), nil, append([]string{"env", "KUBECONFIG=" + kubeconfig, m.bin, "kubectl"}, args...)...)
	}
	if o := kubectl("config", "current-context"); o.stdout != "kemudi\n" {
		t.Errorf("current context: got %+v", o)
	}
	before := kubectl("get", "pods", "-o", "jsonpath={.items[*].status.containerStatuses[*].containerID}").stdout
	if o := command(0, upArgs...); !strings.Contains(o.stdout, "the server runs already") || strings.Contains(o.stdout, "count from the next start on") {
		t.Errorf("up again: got %+v", o)
	}
	upBesideALostNode(t, command, kubectl)
	command(0, "down")
	if s := status(3); s.Running {
		t.Errorf("status after down: got %+v", s)
	}
	if got, err := get(m.neighbour, "http://"+machineIP+":30080/"); err != nil {
		t.Errorf("the example while the server is down: got %q, %v", got, err)
	}
	command(0, upArgs...)
	if after := kubectl("get", "pods", "-o", "jsonpath={.items[*].status.containerStatuses[*].containerID}").stdout; after != before || before == "" {
		t.Errorf("containers after down and up: got %s, want %s", after, before)
	}
	if s := status(0); s.Pods != 3 {
		t.Errorf("status after down and up: got %+v", s)
	}
	for args, want := range map[string]string{"status --no-such-flag": "unknown flag", "status -o yaml": `"yaml" is neither json nor empty`, "down please": "unknown command \"please\""} {
		if o := command(2, strings.Fields(args)...); !strings.Contains(o.stderr, want) {
			t.Errorf("%s: got %+v, want %q", args, o, want)
		}
	}
	if o := command(1, "up", "--apply", "/no/such/file"); !strings.Contains(o.stderr, "/no/such/file: no such file or directory") {
		t.Errorf("up with no manifest: got %+v", o)
	}
	o = command(0, "reset", "--kubeconfig", kubeconfig)
	for _, want := range []string{"stopped the server\n", "removed container ", "removed " + m.DataDir, `removed context "kemudi" from `, "nothing is left ("} {
		if !strings.Contains(o.stdout, want) {
			t.Errorf("reset: got\n%s\nwant it to contain %q", o.stdout, want)
		}
	}
	if data, err := os.ReadFile(kubeconfig); err != nil || strings.Contains(string(data), "kemudi") {
		t.Errorf("kubeconfig after reset: got %s, %v", data, err)
	}
	if o := command(0, "reset"); !strings.Contains(o.stdout, "nothing is left (0 removed)") {
		t.Errorf("reset again: got %+v", o)
	}
}

// upBesideALostNode has a cluster that runs started again: that does not wait for nodes of other machines, and says
// which flags have no effect.
func upBesideALostNode(t *testing.T, command func(code int, args ...string) output, kubectl func(args ...string) output) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "node.yaml")
	if err := os.WriteFile(file, []byte("{apiVersion: v1, kind: Node, metadata: {name: gone}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if o := kubectl("create", "-f", file); o.code != 0 {
		t.Fatalf("a node that is gone: got %+v", o)
	}
	if o := command(0, "up", "--", "--max-pods", "50"); !strings.Contains(o.stdout, "it was started without --max-pods 50, which count from the next start on") {
		t.Errorf("up with other flags, and a node that is not ready: got %+v", o)
	}
	if o := kubectl("delete", "node", "gone"); o.code != 0 {
		t.Errorf("delete the node: got %+v", o)
	}
}
