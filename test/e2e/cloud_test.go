package e2e

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kemudi/kemudi/internal/ociimage"
	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/image"
	"github.com/kemudi/kemudi/test/wait"
)

// TestLoopsOfACloudRunInAPodOfTheCluster has the manifest that people are given make the first node usable, with the
// rights in it and no others.
func TestLoopsOfACloudRunInAPodOfTheCluster(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "--cloud-provider=external")
	program, err := image.Write(t.TempDir(), []ociimage.Image{{
		Names: []string{"kemudi.local/kemudi:1"},
		Files: []ociimage.File{{Path: "/bin/kemudi", Source: c.bin, Mode: 0o755}, {Path: "/bin/cloud-controller-manager", Link: "/bin/kemudi"}, {Path: "/tmp", Mode: os.ModeDir | os.ModeSticky | 0o777}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	c.importImages(t, program...)
	k := c.kubectl()
	node := k.do(t, "get", "nodes", "-o", "jsonpath={.items[0].metadata.name}")
	k.apply(t, `
apiVersion: v1
kind: Pod
metadata: {name: waits, namespace: default}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: "kemudi.local/agnhost:1", args: [pause]}]
`)
	wait.Until(t, func() error {
		taints := k.do(t, "get", "node", node, "-o", "jsonpath={.spec.taints[*].key}")
		why := k.do(t, "get", "pod", "waits", "-o", `jsonpath={.status.conditions[?(@.type=="PodScheduled")].message}`)
		if !strings.Contains(taints, "node.cloudprovider.kubernetes.io/uninitialized") || !strings.Contains(why, "untolerated taint") {
			return fmt.Errorf("before the loops run: got taints %q, and of a pod %q", taints, why)
		}
		return nil
	})
	manifest, err := os.ReadFile(filepath.Join("..", "..", "examples", "cloud-controller-manager.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	k.apply(t, strings.ReplaceAll(string(manifest), "node-1", node))
	trace.Proves(t, "CCM-003", "CCM-033/works")
	wait.Until(t, func() error {
		is := k.do(t, "get", "node", node, "-o", `jsonpath={.spec.providerID} {.metadata.labels.topology\.kubernetes\.io/zone} {.spec.taints[*].key}`)
		if strings.TrimSpace(is) != "loopback://"+node+" a" {
			return fmt.Errorf("got node %q; its pod:\n%s", is, k.try(t, "", "describe", "pod", "--namespace=kube-system", "-l", "k8s-app=cloud-controller-manager").all())
		}
		return nil
	})
	k.do(t, "wait", "--for=condition=Ready", patient, "pod/waits")
	// It is a pod like any other, and may have a service.
	system := k.in("kube-system")
	system.do(t, "expose", "deployment/cloud-controller-manager", "--port=443", "--target-port=10258")
	trace.Proves(t, "COMP-027")
	wait.Until(t, func() error {
		o := system.try(t, "", "get", "--raw", "/api/v1/namespaces/kube-system/services/https:cloud-controller-manager:443/proxy/healthz")
		if o.stdout != "ok" {
			return fmt.Errorf("health of the loops by their service: got %s", o.all())
		}
		return nil
	})
	system.do(t, "delete", "service/cloud-controller-manager")
	trace.Proves(t, "CCM-033/denied")
	if refused := refusals(k.do(t, "get", "--raw", "/metrics")); len(refused) > 0 {
		t.Errorf("requests were refused:\n%s", strings.Join(refused, "\n"))
	}
	k.do(t, "delete", "pod", "waits", "--wait=true")
	if o := k.try(t, strings.ReplaceAll(string(manifest), "node-1", node), "delete", "--wait=true", "-f", "-"); o.code != 0 {
		t.Errorf("delete what the manifest has made: %s", o.all())
	}
	wait.Until(t, func() error {
		if left := k.do(t, "get", "pods", "--all-namespaces", "-o", "name"); left != "" {
			return fmt.Errorf("pods are left: %s", left)
		}
		return nil
	})
}

// TestServerLooksAfterItsOwnMachines has a server with the cloud of bare metal: by hooks its node gets a route, and
// a service an address at which a neighbour reaches it.
func TestServerLooksAfterItsOwnMachines(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"inventory.yaml": `
clusterID: test
machines: [{name: metal, id: CZ1, type: r640, zone: rack-1, region: here, addresses: [{type: InternalIP, address: ` + machineIP + `}, {type: ExternalIP, address: ` + machineIP + `}]}]
hooks: {power: DIR/power, routes: DIR/routes, balancer: DIR/announce}
pool: [192.0.2.0/28]
`,
		"power":    "#!/bin/sh\necho on\n",
		"routes":   "#!/bin/sh\ncase $1 in list) cat DIR/table 2>/dev/null; exit 0;; add) echo $2 $3 >> DIR/table; echo $4 > DIR/via;; delete) exit 1;; esac\n",
		"announce": "#!/bin/sh\necho $* >> DIR/announced\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.ReplaceAll(text, "DIR", dir)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	has := func(file, want string) {
		t.Helper()
		wait.Until(t, func() error {
			data, err := os.ReadFile(filepath.Join(dir, file))
			if err == nil && !strings.Contains(string(data), want+"\n") {
				err = fmt.Errorf("got of the hook %s %q, want it to contain %q", file, data, want)
			}
			return err
		})
	}
	c := newCluster(t, "--node-name=metal", "--cloud-provider=bare-metal", "--cloud-config="+filepath.Join(dir, "inventory.yaml"))
	k := c.kubectl()
	k.do(t, "wait", "--for=jsonpath={.spec.providerID}=bare-metal://CZ1", patient, "node/metal")
	k.do(t, "wait", "--for=jsonpath={.status.conditions[?(@.type==\"NetworkUnavailable\")].reason}=RouteCreated", patient, "node/metal")
	trace.Proves(t, "COMP-021")
	has("table", k.do(t, "get", "node", "metal", "-o", "jsonpath={.spec.podCIDR}")+" metal")
	has("via", machineIP)
	k.do(t, "create", "deployment", "web", "--image=kemudi.local/web:1")
	k.do(t, "expose", "deployment/web", "--port=80", "--target-port=8080", "--type=LoadBalancer")
	trace.Proves(t, "COMP-022")
	k.do(t, "wait", "--for=jsonpath={.status.loadBalancer.ingress[0].ip}=192.0.2.0", patient, "service/web")
	has("announced", "ensure 192.0.2.0 default/web metal")
	k.do(t, "rollout", "status", "deployment/web", patient)
	c.neighbour.Route("192.0.2.0/28", machineIP) // what a hook is to see to
	wait.Until(t, func() error {
		got, err := get(c.neighbour, "http://192.0.2.0/")
		if err == nil && !strings.HasPrefix(got, "web-") {
			err = fmt.Errorf("got %q, want the name of a pod", got)
		}
		return err
	})
	k.do(t, "delete", "service", "web", "--wait=true")
	trace.Proves(t, "COMP-022")
	has("announced", "delete 192.0.2.0 default/web")
	k.do(t, "delete", "deployment", "web")

	k = k.in("default")
	secureService(t, c, k)
	trace.Proves(t, "CONN-047")
	if got := k.do(t, "get", "nodes", "-o", "yaml"); !strings.Contains(got, "- address: "+machineIP+"\n      type: ExternalIP\n") {
		t.Errorf("got nodes without an address of type ExternalIP:\n%s", got)
	}
	external := k.do(t, "get", "node", "metal", "-o", `jsonpath={.status.addresses[?(@.type=="ExternalIP")].address}`)
	url := "https://" + net.JoinHostPort(external, k.do(t, "get", "service", "my-nginx", "-o", "jsonpath={.spec.ports[0].nodePort}")) + "/hostname"
	anybody := httpClient(c.neighbour)
	anybody.Transport.(*http.Transport).TLSClientConfig = &tls.Config{InsecureSkipVerify: true} // as curl -k
	wait.Until(t, func() error {
		resp, err := anybody.Get(url)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if got, err := io.ReadAll(resp.Body); string(got) != "server" {
			return fmt.Errorf("got %q, %v of %s, want the name of the pod", got, err, url)
		}
		return nil
	})
	k.do(t, "delete", "pods", "--all")
}

// refusals are the lines of the API server's metrics that count requests which were forbidden.
func refusals(metrics string) (lines []string) {
	for line := range strings.Lines(metrics) {
		if strings.HasPrefix(line, "apiserver_request_total{") && strings.Contains(line, `code="403"`) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}
