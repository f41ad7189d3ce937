package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kemudi/kemudi/internal/podnet/nettest"
	"github.com/kemudi/kemudi/internal/trace"
)

// siteIP is the address of all that is behind the router of the agents.
const siteIP = "203.0.113.7"

// siteRules hide the agents' network behind one address: what they send comes from that, and of
// what is sent to it, UDP of one port for each agent gets in. Nothing else does.
const siteRules = `
table ip translate {
	chain in {
		type nat hook prerouting priority -100
		ip daddr ` + siteIP + ` udp dport 14791 dnat to 192.168.79.11:4789
		ip daddr ` + siteIP + ` udp dport 14792 dnat to 192.168.79.12:4789
		ip daddr ` + siteIP + ` udp dport 14793 dnat to 192.168.79.13:4789
	}
	chain out { type nat hook postrouting priority 100; ip saddr 192.168.79.0/24 oifname != "eth1" snat to ` + siteIP + `; }
	chain through { type filter hook forward priority 0; oifname "eth1" ct state new ct status & dnat == 0 counter drop; }
}
`

const onePodANode = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: spread}
spec:
  replicas: 6
  selector: {matchLabels: {app: spread}}
  template:
    metadata: {labels: {app: spread}}
    spec:
      terminationGracePeriodSeconds: 0
      tolerations: [{key: node-role.kubernetes.io/control-plane}]
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: spread}}}
      containers: [{name: c, image: "kemudi.local/agnhost:1", args: [netexec], readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}}]
`

// TestServersAndAgentsAroundARouter has three servers with nodes, each in a network of its own, and three
// agents in one network that a router hides behind one address: a Deployment and a DaemonSet run on all of
// them, each server reaches each pod, and pods and services are the same on both sides.
func TestServersAndAgentsAroundARouter(t *testing.T) {
	t.Parallel()
	enter(t, 6)
	c := &cluster{machine: makeMachine(t), args: []string{"--node-name=server-1"}}
	agnhost := c.images[slices.IndexFunc(c.images, func(file string) bool { return filepath.Base(file) == "agnhost-1.tar" })]
	c.neighbour.Router()
	c.neighbour.Addr("lo", siteIP+"/32")
	wire := nettest.New(t, "wire")
	nettest.Link(c.neighbour, "eth1", wire, "up")
	c.neighbour.Addr("eth1", agentRouterIP+"/24")
	var machines []*machine
	ports := []string{"up"}
	for i := range 3 {
		m := &machine{build: c.build, host: nettest.New(t, fmt.Sprintf("agent%d", i+1)), neighbour: c.neighbour}
		port := fmt.Sprintf("p%d", i+1)
		nettest.Link(m.host, "eth0", wire, port)
		m.host.Addr("eth0", fmt.Sprintf("192.168.79.%d/24", 11+i))
		m.host.Route("0.0.0.0/0", agentRouterIP)
		machines, ports = append(machines, m), append(ports, port)
	}
	wire.Bridge("br0", ports...)
	if o := c.run(t.Context(), strings.NewReader(siteRules), "nsenter", "--net="+c.neighbour.Path(), "nft", "-f", "-"); o.code != 0 {
		t.Fatalf("give the router its rules: %s", o.all())
	}

	c.setOutBare(t)
	servers := []*cluster{c, c.newServer(t, "server-2", 80), c.newServer(t, "server-3", 81)}
	for _, s := range servers {
		s.importImages(t, agnhost)
	}
	k := c.kubectl()
	for i, m := range machines {
		name := fmt.Sprintf("agent-%d", i+1)
		c.join(t, m, name, agnhost)
		k.do(t, "annotate", "node", name, fmt.Sprintf("kemudi.io/vxlan-address=%s:%d", siteIP, 14791+i))
	}
	k.do(t, "wait", "--for=condition=Ready", "nodes", "--all", patient)
	if got := len(strings.Fields(k.do(t, "get", "nodes", "-o", "name"))); got != 6 {
		t.Fatalf("got %d nodes, want 6", got)
	}

	k.apply(t, webOnEachNode+"---"+onePodANode)
	k.do(t, "rollout", "status", "daemonset/web", patient)
	k.do(t, "rollout", "status", "deployment/spread", patient)
	on := map[string]bool{}
	for _, pod := range c.pods(t, "default", "app=spread") {
		on[pod.Spec.NodeName] = true
	}
	if len(on) != 6 {
		t.Errorf("the pods of the Deployment are on %v, want one on each of six nodes", on)
	}
	pods := c.pods(t, "default", "app=web")
	c.wantEachOther(t, pods, 6)
	trace.Proves(t, "COMP-024")
	for _, s := range servers {
		k := s.kubectl()
		for i := range pods {
			if got := k.do(t, "exec", pods[i].Name, "--", "/agnhost", "help"); !strings.Contains(got, "netexec") {
				t.Errorf("exec on %s: got %q", pods[i].Spec.NodeName, got)
			}
			k.wants(t, []string{"Started HTTP server on port 8080"}, "logs", pods[i].Name)
			if got := k.do(t, "get", "--raw", "/api/v1/namespaces/default/pods/"+pods[i].Name+":8080/proxy/hostname"); got != pods[i].Name {
				t.Errorf("by the proxy to a pod on %s: got %q", pods[i].Spec.NodeName, got)
			}
		}
	}
	// Agents are neighbours of each other, whatever others call them.
	o := machines[0].run(t.Context(), nil, "ip", "route", "show", "proto", "75")
	if !strings.Contains(o.stdout, "via 192.168.79.12 dev eth0") || !strings.Contains(o.stdout, "via 192.168.79.13 dev eth0") {
		t.Errorf("routes of an agent: got %s\nwant some to the pods of its neighbours", o.all())
	}
	if o := c.run(t.Context(), nil, "nsenter", "--net="+c.neighbour.Path(), "nft", "list", "table", "ip", "translate"); o.code != 0 || strings.Contains(o.stdout, "counter packets 0 ") {
		t.Errorf("nothing was kept out by the router, so that it shows nothing: %s", o.all())
	}
}
