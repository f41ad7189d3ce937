package e2e

import (
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kemudi/kemudi/internal/podnet/nettest"
	"github.com/kemudi/kemudi/test/wait"
)

// testSlowReaders reads the output of commands more slowly than it is written, as over a thin line: all of it
// arrives, and so does the exit code, by both protocols of kubectl.
func testSlowReaders(t *testing.T, k kubectl) {
	k.apply(t, `
apiVersion: v1
kind: Pod
metadata: {name: writer}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: c, image: kemudi.local/busybox:1, command: [sleep, "10000"]}]
`)
	k.do(t, "wait", "--for=condition=Ready", "pod/writer", patient)
	const size, piece, pace = 12 << 20, 64 << 10, 40 * time.Millisecond // more than five seconds, after which kubectl pings
	var both sync.WaitGroup
	defer both.Wait()
	for _, webSockets := range []string{"true", "false"} {
		both.Go(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), wait.Patience+time.Minute)
			defer cancel()
			cmd := k.machine.command(ctx, k.line("exec", "writer", "--", "sh", "-c", fmt.Sprintf("head -c %d /dev/zero; exit 3", size))...)
			cmd.Env = append(cmd.Environ(), "KUBECTL_REMOTE_COMMAND_WEBSOCKETS="+webSockets)
			out, in, err := os.Pipe()
			if err != nil {
				t.Error(err)
				return
			}
			defer out.Close()
			cmd.Stdout = in
			err = k.machine.start(cmd)
			in.Close()
			if err != nil {
				t.Error(err)
				return
			}
			n := int64(0)
			for slow := time.NewTicker(pace); ; <-slow.C {
				m, err := io.CopyN(io.Discard, out, piece)
				n += m
				if err != nil {
					break
				}
			}
			_ = cmd.Wait() // its exit code says it
			if code := cmd.ProcessState.ExitCode(); n != size || code != 3 {
				t.Errorf("%s with WebSockets %s: got %d bytes and exit code %d, want %d and 3", k.name, webSockets, n, code, size)
			}
		})
	}
}

// testForwarding carries a lot by one forwarded port, in many streams at a time: of a pod of its own network, and of
// one that has the node's.
func testForwarding(t *testing.T, c *cluster) {
	k := c.kubectl().in(c.namespace(t))
	for name, network := range map[string]string{"own": "false", "node": "true"} {
		k.apply(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: serves-%s}
spec:
  hostNetwork: %s
  terminationGracePeriodSeconds: 0
  containers: [{name: c, image: kemudi.local/agnhost:1, args: [netexec, --http-port=8319, --udp-port=-1], readinessProbe: {httpGet: {path: /, port: 8319}, periodSeconds: 1, timeoutSeconds: 60}}]
`, name, network))
		k.do(t, "wait", "--for=condition=Ready", "pod/serves-"+name, patient)
		forward := k.begin(t, false, k.line("port-forward", "serves-"+name, ":8319", ":8320")...)
		ports := forward.finds(t, regexp.MustCompile(`(?s)Forwarding from 127\.0\.0\.1:(\d+) -> 8319.*Forwarding from 127\.0\.0\.1:(\d+) -> 8320`))
		local, closed := ports[1], ports[2]
		message := strings.Repeat("x", 256<<10)
		var all sync.WaitGroup
		for range 24 {
			all.Go(func() {
				got, err := post(k.host, "http://127.0.0.1:"+local+"/echo", message)
				if err != nil || got != message {
					t.Errorf("%s: got %d bytes, %v; want %d", name, len(got), err, len(message))
				}
			})
		}
		all.Wait()
		if got, err := get(k.host, "http://127.0.0.1:"+closed+"/"); err == nil {
			t.Errorf("%s: a port on which nothing listens answers %q", name, got)
		}
		forward.sees(t, "connection refused")
		forward.exits(t) // as kubectl does then
		k.do(t, "delete", "pod", "serves-"+name)
	}
}

// post sends a message in a form, which agnhost echoes.
func post(h *nettest.Host, url, message string) (string, error) {
	res, err := httpClient(h).Post(url, "application/x-www-form-urlencoded", strings.NewReader("msg="+message))
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return string(body), err
}

// testDebugging looks at the node by a pod that has all of it, at a copy of a pod, and at a process of another
// container, and runs pods that end with their command.
func testDebugging(t *testing.T, k kubectl) {
	k.apply(t, `
apiVersion: v1
kind: Pod
metadata: {name: app}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: c, image: kemudi.local/agnhost:1, args: [pause]}]
`)
	k.do(t, "wait", "--for=condition=Ready", "pod/app", patient)
	node := k.do(t, "get", "pod", "app", "-o", "jsonpath={.spec.nodeName}")
	if o := k.try(t, "", "run", "once", "-i", "--rm", "--restart=Never", "--image=kemudi.local/busybox:1", "--quiet", "--", "sh", "-c", "echo once; exit 7"); o.code != 7 || o.stdout != "once\n" {
		t.Errorf("run: got exit code %d, %q; want 7, once", o.code, o.all())
	}
	if o := k.try(t, "some words\n", "run", "hears", "-i", "--rm", "--restart=Never", "--image=kemudi.local/busybox:1", "--quiet", "--", "cat"); o.code != 0 || o.stdout != "some words\n" {
		t.Errorf("run with input: got exit code %d, %q; want its input", o.code, o.all())
	}
	wait.Until(t, func() error {
		if left := k.do(t, "get", "pods", "-o", "name", "--field-selector=metadata.name!=app"); left != "" {
			return fmt.Errorf("pods that were to go: %s", left)
		}
		return nil
	})
	k.do(t, "debug", "node/"+node, "--profile=sysadmin", "--image=kemudi.local/busybox:1", "--attach=false", "--", "sh", "-c", "ls -d /host/proc/1; cat /proc/1/comm; echo seen; sleep 1000")
	pod := strings.TrimSpace(k.do(t, "get", "pods", "-o", "name", "--field-selector=metadata.name!=app"))
	wait.Until(t, func() error { return contains(k.try(t, "", "logs", pod).stdout, []string{"/host/proc/1\n", "seen\n"}) })
	k.do(t, "delete", pod)
	k.do(t, "debug", "app", "--profile=general", "--copy-to=copy", "--container=c", "--image=kemudi.local/busybox:1", "--attach=false", "--", "sh", "-c", "echo a copy; sleep 1000")
	wait.Until(t, func() error { return contains(k.try(t, "", "logs", "copy", "-c", "c").stdout, []string{"a copy\n"}) })
	for _, profile := range []string{"general", "baseline", "restricted", "netadmin", "sysadmin"} {
		args := []string{"debug", "app", "--profile=" + profile, "--target=c", "--image=kemudi.local/busybox:1", "--container=d-" + profile, "--attach=false", "--", "sh", "-c", "cat /proc/1/comm; id -u; sleep 1000"}
		if profile == "restricted" {
			args = append(args[:len(args)-1], "sleep 1000") // which must not be root: it may not even start
			k.do(t, args...)
			continue
		}
		k.do(t, args...)
		wait.Until(t, func() error {
			return contains(k.try(t, "", "logs", "app", "-c", "d-"+profile).stdout, []string{"agnhost\n", "0\n"})
		})
	}
}

// testNodeLogs asks for the logs of the node.
func testNodeLogs(t *testing.T, c *cluster) {
	k := c.kubectl()
	node := strings.TrimSpace(k.do(t, "get", "nodes", "-o", "name"))
	logs := "/api/v1/nodes/" + strings.TrimPrefix(node, "node/") + "/proxy/logs/"
	if got := k.do(t, "get", "--raw", logs); !strings.Contains(got, "<a href=") {
		t.Errorf("the directory: got %.300q", got)
	}
	if got := k.do(t, "get", "--raw", logs+"?query=no-such-service"); got != "\nlog not found for no-such-service\n" {
		t.Errorf("a service that logs nowhere: got %q", got)
	}
	if got := k.do(t, "get", "--raw", logs+"?query=kubelet"); !strings.Contains(got, "msg=started step=") {
		t.Errorf("what the node's agent logs: got %.300q", got)
	}
	for query, want := range map[string]string{
		"?query=x&tailLines=100001": "tailLines: Invalid value: 100001", "?query=x&boot=2": "boot: Invalid value: 2: must be less than 1", "?query=/no/such/file": "no such file or directory",
	} {
		if o := k.try(t, "", "get", "--raw", logs+query); o.code == 0 || !strings.Contains(o.stderr, want) {
			t.Errorf("%s: got %s, want %s", query, o.all(), want)
		}
	}
	agent := strings.TrimSuffix(logs, "logs/")
	for path, want := range map[string]string{
		"configz": `"enableSystemLogQuery":true`, "statusz": "\nkubelet statusz\n", "flagz": "\nenable-system-log-query=true\n", "debug/pprof/cmdline": "--data-dir",
	} {
		if got := k.do(t, "get", "--raw", agent+path); !strings.Contains(got, want) {
			t.Errorf("%s of the agent: got %.300q, want %q", path, got, want)
		}
	}
	if got := k.do(t, "get", "--raw", "/flagz"); !strings.Contains(got, "\napiserver flagz\n") || !strings.Contains(got, "\nenable-system-log-query=true\n") {
		t.Errorf("/flagz: got %.300q", got)
	}
}
