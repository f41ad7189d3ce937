package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/cloud/loopback"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/texttest"
	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

// upstreamCloud names the program of test/upstreamcloud: it runs in place of ours then. Make upstream-cloud sets it.
const upstreamCloud = "KEMUDI_UPSTREAM_CLOUD"

// TestCloudComesToTheSameWithUpstreamsLoopsAndOurs goes through the story of the file, and compares what nodes, services,
// their events and the cloud look like after each step. The file has what came of upstream's loops: they are run by
// make upstream-cloud, which fails where they come to something else, and writes it with -update.
func TestCloudComesToTheSameWithUpstreamsLoopsAndOurs(t *testing.T) {
	texttest.Sections(t, "testdata/cloudstory.txt", func(t *testing.T, _ string) func(texttest.Section) (string, bool) {
		b := &storyBed{cloudBed: newCloudBed(t)}
		steps := map[string]func(){
			"nodes come": b.nodesCome, "services come": b.servicesCome, "a machine gets another address": b.machineMoves,
			"a node is taken out of balancers": b.nodeLeavesBalancers, "a service changes": b.serviceChanges,
			"a service needs no balancer": b.serviceNeedsNone, "and needs one again": b.serviceNeedsOne,
			"a service, a node and a machine go": b.allGo,
		}
		return func(s texttest.Section) (string, bool) {
			if s.Name == "cloud.yaml" {
				b.world(s.Text)
				b.begin()
				return "", false
			}
			step := steps[s.Name]
			if step == nil {
				t.Fatalf("line %d: there is no step %q", s.Line, s.Name)
			}
			delete(steps, s.Name)
			step()
			if len(steps) == 0 {
				trace.Proves(t, "CCM-008", "CCM-024")
			}
			return b.state(), true
		}
	})
}

// storyBed is a cluster and its cloud, to which things happen.
type storyBed struct {
	*cloudBed
	nodes    client.Client[*corev1.Node]
	services client.Client[*corev1.Service]
	events   client.Client[*corev1.Event]
	ended    chan struct{} // closed when upstream's program has ended; nil: it does not run
}

// begin runs the loops whose story it is, until the test ends.
func (b *storyBed) begin() {
	b.Helper()
	admin := b.s.plane.Admin()
	b.nodes, b.services, b.events = client.For(admin, core.Nodes), client.For(admin, core.Services), client.For(admin, core.Events)
	often := []string{"--configure-cloud-routes=true", "--route-reconciliation-period=1s", "--node-monitor-period=1s", "--node-status-update-frequency=1s"}
	program := os.Getenv(upstreamCloud)
	if program == "" {
		b.run(often...)
		return
	}
	b.must(os.WriteFile(b.kubeconfig, adminKubeconfig(b.cloudBed), 0o600))
	var said bytes.Buffer
	cmd := exec.CommandContext(b.Context(), program, append(often, "--cloud-provider=loopback", "--cloud-config="+b.file, "--kubeconfig="+b.kubeconfig,
		"--cluster-cidr=10.244.0.0/16", "--leader-elect=false", "--secure-port=0", "--webhook-secure-port=0", "--v=2")...)
	cmd.Stderr, cmd.Stdout, cmd.WaitDelay = &said, &said, 10*time.Second
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	b.must(cmd.Start())
	b.ended = make(chan struct{})
	var err error
	b.g.Go("upstream's program", func(context.Context) error {
		err = cmd.Wait()
		close(b.ended)
		return nil
	})
	b.Cleanup(func() {
		<-b.ended
		if b.Failed() {
			b.Logf("upstream's program: %v\n%s", err, said.String())
		}
	})
}

// becomes waits until it is so, and until there are events "kind name reason".
func (b *storyBed) becomes(so func() error, events ...string) {
	b.Helper()
	wait.Until(b.T, func() error {
		select {
		case <-b.ended:
			b.Fatal("upstream's program has ended")
		default:
		}
		if err := so(); err != nil {
			return err
		}
		told := b.told()
		for _, e := range events {
			if !slices.ContainsFunc(told, func(line string) bool { return strings.Contains(line, " "+e+": ") }) {
				return fmt.Errorf("there is no event %s among\n%s", e, strings.Join(told, "\n"))
			}
		}
		return nil
	})
}

// cloud is what the file of the cloud says.
func (b *storyBed) cloud() (w loopback.World) {
	b.Helper()
	data, err := os.ReadFile(b.file)
	b.must(err)
	b.must(yaml.Unmarshal(data, &w))
	return w
}

// changeCloud changes what the file says while nobody else does.
func (b *storyBed) changeCloud(by func(w *loopback.World)) {
	b.Helper()
	w := b.cloud()
	by(&w)
	data, err := yaml.Marshal(w)
	b.must(err)
	b.world(string(data))
}

// change changes an object of that key as people do.
func change[T resource.Object](b *storyBed, c client.Client[T], key, patch string) {
	b.Helper()
	namespace, name, ok := strings.Cut(key, "/")
	if !ok {
		namespace, name = "", key
	}
	_, err := c.Patch(b.Context(), namespace, name, "", client.Patch{Type: types.MergePatchType, Data: []byte(patch)})
	b.must(err)
}

// bedNode is the name of the bed's own node.
const bedNode = "n1"

func (b *storyBed) nodesCome() {
	waiting := []corev1.Taint{{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: corev1.TaintEffectNoSchedule}}
	for i, n := range []struct {
		name   string
		taints []corev1.Taint
	}{{"c1", waiting}, {"c2", waiting}, {"nameless", waiting}, {"dark", nil}, {"gone", nil}} {
		cidr := fmt.Sprintf("10.244.%d.0/24", 100+i) // far from that of the bed's own node
		_, err := b.nodes.Create(b.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name}, Spec: corev1.NodeSpec{PodCIDR: cidr, PodCIDRs: []string{cidr}, Taints: n.taints}})
		b.must(err)
	}
	b.becomes(func() error {
		if _, err := b.nodes.Get(b.Context(), "", "gone"); !apierrors.IsNotFound(err) {
			return errors.Join(errors.New("the node without a machine is there"), err)
		}
		for name, want := range map[string]string{"c1": "192.0.2.1", "c2": "192.0.2.2", "nameless": "", "dark": ""} {
			n, err := b.nodes.Get(b.Context(), "", name)
			switch {
			case err != nil:
				return err
			case core.NodeCondition(&n.Status, corev1.NodeNetworkUnavailable) == nil:
				return fmt.Errorf("nothing is said of the network of node %s", name)
			case want != "" && (len(n.Status.Addresses) == 0 || n.Status.Addresses[0].Address != want):
				return fmt.Errorf("got addresses %v of node %s, want %s", n.Status.Addresses, name, want)
			case name == "dark" && !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == "node.cloudprovider.kubernetes.io/shutdown" }):
				return errors.New("the node that is off has no taint")
			}
		}
		return b.routesLeadTo("c1", "c2", "dark", "n9", "nameless")
	}, "Node c1 Synced", "Node c2 Synced", "Node gone DeletingNode")
}

// routesLeadTo says whether the cloud has routes to these nodes and no others, the bed's own aside.
func (b *storyBed) routesLeadTo(want ...string) error {
	b.Helper()
	var got []string
	for _, r := range b.cloud().Routes {
		if r.Node != bedNode {
			got = append(got, r.Node)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		return fmt.Errorf("got routes to %v, want %v", got, want)
	}
	return nil
}

// balancerLeadsTo says whether there is one balancer, and it leads to these nodes; none: there is no balancer.
func (b *storyBed) balancerLeadsTo(want ...string) error {
	b.Helper()
	got := b.cloud().Balancers
	if len(want) == 0 && len(got) == 0 || len(got) == 1 && slices.Equal(got[0].Nodes, want) {
		return nil
	}
	return fmt.Errorf("got balancers %+v, want one that leads to %v", got, want)
}

func (b *storyBed) servicesCome() {
	other := "example.com/other"
	for _, svc := range []*corev1.Service{
		{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{LoadBalancerSourceRanges: []string{"203.0.113.0/24"}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "classed"}, Spec: corev1.ServiceSpec{LoadBalancerClass: &other}},
	} {
		svc.Namespace, svc.Spec.Type, svc.Spec.Selector = "default", corev1.ServiceTypeLoadBalancer, map[string]string{"a": "b"}
		svc.Spec.Ports = []corev1.ServicePort{{Port: 80, NodePort: 30080 + int32(len(svc.Name))}}
		_, err := b.services.Create(b.Context(), svc)
		b.must(err)
	}
	b.becomes(func() error {
		return errors.Join(b.balancerLeadsTo("c1", "c2", "dark", bedNode, "nameless"), b.webHas(1))
	}, "Service web EnsuringLoadBalancer", "Service web EnsuredLoadBalancer")
}

// webHas says whether so many addresses of balancers are written in the service.
func (b *storyBed) webHas(want int) error {
	b.Helper()
	web, err := b.services.Get(b.Context(), "default", "web")
	if err == nil && (len(web.Status.LoadBalancer.Ingress) != want || len(web.Finalizers) != want) {
		err = fmt.Errorf("got finalizers %v and %+v, want %d of each", web.Finalizers, web.Status.LoadBalancer, want)
	}
	return err
}

func (b *storyBed) machineMoves() {
	b.changeCloud(func(w *loopback.World) {
		i := slices.IndexFunc(w.Machines, func(m loopback.Machine) bool { return m.Name == "c1" })
		w.Machines[i].Addresses[0].Address, w.Machines[i].Zone = "192.0.2.11", "elsewhere"
	})
	b.becomes(func() error {
		n, err := b.nodes.Get(b.Context(), "", "c1")
		if err == nil && n.Status.Addresses[0].Address != "192.0.2.11" {
			err = fmt.Errorf("got addresses %v", n.Status.Addresses)
		}
		return err
	})
}

func (b *storyBed) nodeLeavesBalancers() {
	change(b, b.nodes, "c2", `{"metadata":{"labels":{"node.kubernetes.io/exclude-from-external-load-balancers":""}}}`)
	b.becomes(func() error { return b.balancerLeadsTo("c1", "dark", bedNode, "nameless") }, "Service web UpdatedLoadBalancer")
}

func (b *storyBed) serviceChanges() {
	change(b, b.services, "default/web", `{"spec":{"loadBalancerSourceRanges":["198.51.100.0/24"],"ports":[{"port":81,"nodePort":30081}]}}`)
	b.becomes(func() error {
		if have := b.cloud().Balancers; len(have) != 1 || !slices.Equal(have[0].Sources, []string{"198.51.100.0/24"}) {
			return fmt.Errorf("got balancers %+v", have)
		}
		return nil
	})
}

func (b *storyBed) serviceNeedsNone() {
	change(b, b.services, "default/web", `{"spec":{"type":"ClusterIP","loadBalancerSourceRanges":null}}`)
	b.becomes(func() error { return errors.Join(b.balancerLeadsTo(), b.webHas(0)) }, "Service web DeletingLoadBalancer", "Service web DeletedLoadBalancer")
}

func (b *storyBed) serviceNeedsOne() {
	change(b, b.services, "default/web", `{"spec":{"type":"LoadBalancer","ports":[{"port":81,"nodePort":30081}]}}`)
	b.becomes(func() error { return errors.Join(b.balancerLeadsTo("c1", "dark", bedNode, "nameless"), b.webHas(1)) })
}

func (b *storyBed) allGo() {
	b.must(b.services.Delete(b.Context(), "default", "web", metav1.DeleteOptions{}))
	b.must(b.nodes.Delete(b.Context(), "", "c2", metav1.DeleteOptions{}))
	b.becomes(func() error {
		if _, err := b.services.Get(b.Context(), "default", "web"); !apierrors.IsNotFound(err) {
			return errors.Join(errors.New("the service is there"), err)
		}
		return errors.Join(b.balancerLeadsTo(), b.routesLeadTo("c1", "dark", "n9", "nameless"))
	})
	b.changeCloud(func(w *loopback.World) {
		w.Machines = slices.DeleteFunc(w.Machines, func(m loopback.Machine) bool { return m.Name == "dark" })
	})
	b.becomes(func() error {
		if _, err := b.nodes.Get(b.Context(), "", "dark"); !apierrors.IsNotFound(err) {
			return errors.Join(errors.New("the node whose machine is gone is there"), err)
		}
		return b.routesLeadTo("c1", "n9", "nameless")
	}, "Node dark DeletingNode")
}

// state is what of cluster and cloud is to be the same.
func (b *storyBed) state() string {
	b.Helper()
	var out strings.Builder
	nodes, err := b.nodes.List(b.Context(), "", metav1.ListOptions{})
	b.must(err)
	for _, n := range nodes {
		if n.Name == bedNode {
			continue
		}
		fmt.Fprintf(&out, "node %s: %s\n", n.Name, n.Spec.ProviderID)
		for _, t := range n.Spec.Taints {
			if strings.Contains(t.Key, "cloudprovider") {
				fmt.Fprintf(&out, "  taint %s\n", t.ToString())
			}
		}
		for _, key := range slices.Sorted(maps.Keys(n.Labels)) {
			fmt.Fprintf(&out, "  label %s=%s\n", key, n.Labels[key])
		}
		for _, a := range n.Status.Addresses {
			fmt.Fprintf(&out, "  %s %s\n", a.Type, a.Address)
		}
		if c := core.NodeCondition(&n.Status, corev1.NodeNetworkUnavailable); c != nil {
			fmt.Fprintf(&out, "  NetworkUnavailable %s, %s: %s\n", c.Status, c.Reason, c.Message)
		}
	}
	services, err := b.services.List(b.Context(), "default", metav1.ListOptions{})
	b.must(err)
	for _, svc := range services {
		fmt.Fprintf(&out, "service %s: finalizers %v, balancer %s\n", svc.Name, svc.Finalizers, said(svc.Status.LoadBalancer.Ingress))
	}
	w := b.cloud()
	slices.SortFunc(w.Routes, func(x, y loopback.Route) int { return strings.Compare(x.CIDR, y.CIDR) })
	for _, r := range w.Routes {
		if r.Node != bedNode {
			fmt.Fprintf(&out, "route %s to %s: %s\n", r.CIDR, r.Node, r.Name)
		}
	}
	for _, l := range w.Balancers {
		fmt.Fprintf(&out, "balancer of %s: %s, %v, from %v, to %v\n", l.Service, said(l.Ingress), l.Ports, l.Sources, l.Nodes)
	}
	for _, line := range b.told() {
		fmt.Fprintln(&out, line)
	}
	return out.String()
}

// said are addresses of a balancer as the API says them.
func said(ingress []corev1.LoadBalancerIngress) string {
	data, err := json.Marshal(ingress)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// told are the events of the loops so far, each once.
func (b *storyBed) told() (out []string) {
	b.Helper()
	events, err := b.events.List(b.Context(), "default", metav1.ListOptions{})
	b.must(err)
	for _, e := range events {
		if strings.Contains(e.Reason, "LoadBalancer") || e.Reason == "Synced" || strings.HasPrefix(e.Reason, "DeletingNode") {
			out = append(out, fmt.Sprintf("event %s %s %s: %s, %s, by %s", e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason, e.Message, e.Type, e.Source.Component))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
