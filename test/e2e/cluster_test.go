package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kemudi/kemudi/internal/up"
	"github.com/kemudi/kemudi/test/wait"
)

// cluster is a server on a machine.
type cluster struct {
	*machine
	args   []string // flags beyond the directories
	router string   // rules of nft for the router in front of an agent's machine; empty: none
	config *rest.Config
	client kubernetes.Interface
	proc   *exec.Cmd // the running server, or nil
	ended  chan struct{}
	killed bool // once, so that the next start had to clean up
}

// newCluster starts a server on a machine of its own, with all images.
func newCluster(t *testing.T, args ...string) *cluster {
	t.Helper()
	return (&cluster{machine: newMachine(t), args: args}).setOut(t)
}

// setOut starts the cluster's server, with all images, until the end of the test.
func (c *cluster) setOut(t *testing.T) *cluster {
	t.Helper()
	c.setOutBare(t)
	c.importImages(t, c.images...)
	return c
}

// setOutBare does the same without images: the server may have no node.
func (c *cluster) setOutBare(t *testing.T) *cluster {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			c.explain(t)
		}
		if !c.killed { // before the end, which gives up what is being done
			c.wantNoComplaints(t)
		}
		c.kill(syscall.SIGTERM)
	})
	c.serve(t)
	c.connect(t)
	return c
}

// serverCommand is the command line of the server.
func (c *cluster) serverCommand() []string {
	return append([]string{c.bin, "server", "--data-dir", c.DataDir, "--run-dir", c.RunDir, "--pod-logs-dir", c.LogsDir}, c.args...)
}

func (c *cluster) logFile() string { return filepath.Join(c.Dir, "server.log") }

// serve starts the server and waits until it says that it is ready.
func (c *cluster) serve(t *testing.T) (took time.Duration) {
	t.Helper()
	log, err := os.OpenFile(c.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := c.command(context.Background(), c.serverCommand()...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{w}
	cmd.Env = append(cmd.Env, up.NotifyEnv+"=3")
	begin := time.Now()
	err = c.machine.start(cmd)
	w.Close()
	if err != nil {
		t.Fatalf("start server: %v", err)
	}
	c.proc, c.ended = cmd, make(chan struct{})
	go func() { _ = cmd.Wait(); close(c.ended) }()
	stop := time.AfterFunc(wait.Patience, func() { r.Close() })
	defer stop.Stop()
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var s up.Step
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			t.Fatalf("server's step %q: %v", lines.Text(), err)
		}
		if s.Ready {
			return time.Since(begin)
		}
	}
	t.Fatalf("the server does not get ready (%v); its log:\n%s", lines.Err(), tail(c.logFile(), 30))
	return 0
}

// kill sends the server a signal and waits until it has ended.
func (c *cluster) kill(s syscall.Signal) {
	if c.proc == nil {
		return
	}
	c.killed = c.killed || s == syscall.SIGKILL
	_ = c.proc.Process.Signal(s)
	select {
	case <-c.ended:
	case <-time.After(wait.Patience):
		_ = c.proc.Process.Kill()
		<-c.ended
	}
	c.proc = nil
}

// connect makes a client for checks; what people do goes through kubectl.
func (c *cluster) connect(t *testing.T) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", c.adminKubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.Dial = dialer(c.host)
	config.QPS, config.Burst, config.Timeout = -1, 0, wait.Patience
	c.config = config
	if c.client, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) importImages(t *testing.T, files ...string) {
	t.Helper()
	o := c.run(t.Context(), nil, append([]string{c.bin, "image", "import", "--data-dir", c.DataDir, "--run-dir", c.RunDir}, files...)...)
	if o.code != 0 {
		t.Fatalf("import images: %s", o.all())
	}
}

var (
	healthy = regexp.MustCompile(`level=(INFO|DEBUG|info|debug) `)
	// The store tells that the disk or the processors are too slow for it, as they
	// are where much else runs: that is for whoever keeps the machine.
	slow = regexp.MustCompile(`level=WARN msg="[^"]*(slow fdatasync|slow disk|slow network|took too long)[^"]*" part=etcd `)
)

// Containerd warns of races at the ordinary ends of containers, by its own log or
// that of its shim; those that are known are quiet, and nobody knows them all.
var foreign = regexp.MustCompile(`part=containerd\b|runtime=io\.containerd|msg="forward event"`)

// complaints are the lines of the server's log that ask somebody to act.
func (c *cluster) complaints() (list []string) {
	data, err := os.ReadFile(c.logFile())
	if err != nil {
		return []string{err.Error()}
	}
	for line := range strings.Lines(string(data)) {
		if !healthy.MatchString(line) && !slow.MatchString(line) && !foreign.MatchString(line) {
			list = append(list, line)
		}
	}
	return list
}

// wantNoComplaints expects that the server has warned of nothing so far: what
// people are not meant to act upon is not for a warning.
func (c *cluster) wantNoComplaints(t *testing.T) {
	t.Helper()
	for _, line := range c.complaints() {
		t.Errorf("the server's log has: %s", line)
	}
}

// explain prints what helps to find out why a test failed.
func (c *cluster) explain(t *testing.T) {
	lines := c.complaints()
	t.Logf("warnings of the server:\n%s", strings.Join(lines[max(0, len(lines)-40):], ""))
	if c.proc == nil || c.client == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	o := c.run(ctx, nil, c.bin, "kubectl", "get", "pods", "-A", "-o", "wide")
	t.Logf("pods:\n%s", o.all())
}

func tail(file string, n int) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	lines := strings.SplitAfter(string(data), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "")
}

var notInName = regexp.MustCompile(`[^a-z0-9]+`)

// namespace makes a namespace that pods can be created in.
func (c *cluster) namespace(t *testing.T) string {
	t.Helper()
	name := strings.Trim(notInName.ReplaceAllString(strings.ToLower(t.Name()), "-"), "-")
	name = strings.Trim(name[max(0, len(name)-50):], "-")
	if _, err := c.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatalf("create namespace: %v", err)
	}
	wait.Until(t, func() error {
		_, err := c.client.CoreV1().ServiceAccounts(name).Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	t.Cleanup(func() {
		if t.Failed() { // what is in it tells why
			o := c.run(context.Background(), nil, c.bin, "kubectl", "-n", name, "get", "pods,services", "-o", "wide")
			w := c.run(context.Background(), nil, c.bin, "kubectl", "-n", name, "events", "--types=Warning")
			t.Logf("in namespace %s:\n%s\n%s", name, o.all(), w.all())
		}
		now := int64(0)
		_ = c.client.CoreV1().Namespaces().Delete(context.Background(), name, metav1.DeleteOptions{GracePeriodSeconds: &now})
	})
	return name
}

// pods lists pods as the API has them.
func (c *cluster) pods(t *testing.T, namespace, selector string) []corev1.Pod {
	t.Helper()
	list, err := c.client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		t.Fatalf("list pods: %v", err)
	}
	return list.Items
}

func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
