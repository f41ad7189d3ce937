package baremetal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/kemudi/kemudi/internal/cloud/scale"
)

// bed is an inventory with hooks that write down how they are called.
type bed struct {
	*testing.T
	dir string
	c   *Cloud
}

// newBed has an inventory; DIR in it is the directory of the hooks.
func newBed(t *testing.T, inventory string) *bed {
	t.Helper()
	b := &bed{T: t, dir: t.TempDir()}
	b.write("inventory.yaml", inventory)
	var err error
	if b.c, err = Open(filepath.Join(b.dir, "inventory.yaml")); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bed) write(name, text string) {
	b.Helper()
	if err := os.WriteFile(filepath.Join(b.dir, name), []byte(strings.ReplaceAll(text, "DIR", b.dir)), 0o700); err != nil {
		b.Fatal(err)
	}
}

// calls are the hooks' calls so far, and then forgotten.
func (b *bed) calls() string {
	b.Helper()
	file := filepath.Join(b.dir, "calls")
	data, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		b.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		b.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

func node(name string) *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }

func service(name string, want string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
		Spec:       corev1.ServiceSpec{LoadBalancerIP: want, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}},
	}
}

func TestMachinesAreThoseOfTheInventoryAsTheirPowerIs(t *testing.T) {
	b := newBed(t, "machines: [{name: n1, id: s1, type: big, zone: a}, {name: n2}, {name: n3}, {name: n4}, {name: n5}]\nhooks: {power: DIR/power, timeout: 1s}\n")
	b.write("power", "#!/bin/sh\necho $* >> DIR/calls\ncase $2 in n1) echo on;; n2) echo off;; n3) echo gone;; n4) echo broken >&2; exit 3;; n5) sleep 1000;; esac\n")
	m, _ := b.c.InstancesV2()
	for name, want := range map[string]string{
		"n1": "true false", "n2": "true true", "n3": "false", "n4": "exit status 3: broken", "n5": "it has not ended within 1s", "other": "false",
	} {
		exists, err := m.InstanceExists(t.Context(), node(name))
		got := fmt.Sprint(exists)
		if err == nil && exists {
			var off bool
			off, err = m.InstanceShutdown(t.Context(), node(name))
			got += fmt.Sprint(" ", off)
		}
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
	// Both questions about a machine cost one call.
	b.calls()
	_, err := m.InstanceExists(t.Context(), node("n1"))
	_, err2 := m.InstanceShutdown(t.Context(), node("n1"))
	if got := b.calls(); errors.Join(err, err2) != nil || got != "status n1" {
		t.Errorf("got calls %q, %v and %v, want one", got, err, err2)
	}
	if _, err := m.InstanceShutdown(t.Context(), node("n1")); err != nil || b.calls() != "status n1" {
		t.Errorf("another question: got %v and no call, want one", err)
	}
	meta, err := m.InstanceMetadata(t.Context(), node("n1"))
	if err != nil || meta.ProviderID != "bare-metal://s1" || meta.Zone != "a" || meta.InstanceType != "big" {
		t.Errorf("got %+v, %v", meta, err)
	}
	if _, err := m.InstanceMetadata(t.Context(), node("other")); !errors.Is(err, cloudprovider.InstanceNotFound) || !strings.Contains(err.Error(), "add a machine of the name other to") {
		t.Errorf("got %v of a machine that nobody knows", err)
	}
	moved := node("renamed")
	moved.Spec.ProviderID = "bare-metal://s1"
	if meta, err := m.InstanceMetadata(t.Context(), moved); err != nil || meta.Zone != "a" {
		t.Errorf("got %+v, %v, want the machine of the ID", meta, err)
	}
}

func TestRoutesAreKeptByTheHook(t *testing.T) {
	b := newBed(t, "hooks: {routes: DIR/routes}\nmachines: [{name: new, addresses: [{type: Hostname, address: new}, {type: InternalIP, address: 10.0.0.4}]}, {name: nowhere}]\n")
	b.write("routes", "#!/bin/sh\nif [ $1 = list ]; then printf '10.244.0.0/24 n1\\n\\n10.244.1.0/24 n2\\n'; else echo $* >> DIR/calls; fi\n")
	r, ok := b.c.Routes()
	if !ok {
		t.Fatal("there are no routes")
	}
	list, err := r.ListRoutes(t.Context(), "c")
	if err != nil || len(list) != 2 || list[1].TargetNode != "n2" || list[1].DestinationCIDR != "10.244.1.0/24" {
		t.Errorf("got %v, %v", list, err)
	}
	err = r.CreateRoute(t.Context(), "c", "hint", &cloudprovider.Route{TargetNode: "n3", DestinationCIDR: "10.244.2.0/24", TargetNodeAddresses: []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: "10.0.0.3"}, {Type: corev1.NodeHostName, Address: "n3"},
	}})
	if got := b.calls(); err != nil || got != "add 10.244.2.0/24 n3 10.0.0.3" {
		t.Errorf("got %s, %v", got, err)
	}
	err = r.CreateRoute(t.Context(), "c", "hint", &cloudprovider.Route{TargetNode: "new", DestinationCIDR: "10.244.3.0/24"})
	if got := b.calls(); err != nil || got != "add 10.244.3.0/24 new 10.0.0.4" {
		t.Errorf("a node whose addresses nobody has said yet: got %s, %v, want that of its machine", got, err)
	}
	err = r.CreateRoute(t.Context(), "c", "hint", &cloudprovider.Route{TargetNode: "nowhere", DestinationCIDR: "10.244.4.0/24"})
	if got := b.calls(); err == nil || !strings.Contains(err.Error(), "node nowhere has no address of type InternalIP") || got != "" {
		t.Errorf("a node without an address: got %s, %v", got, err)
	}
	err = r.DeleteRoute(t.Context(), "c", list[0])
	if got := b.calls(); err != nil || got != "delete 10.244.0.0/24 n1" {
		t.Errorf("got %s, %v", got, err)
	}
	b.write("routes", "#!/bin/sh\necho nonsense\n")
	if list, err := r.ListRoutes(t.Context(), "c"); err == nil {
		t.Errorf("got %v of a hook that prints nonsense", list)
	}
	b.write("inventory.yaml", "machines: []\n")
	if _, ok := b.c.Routes(); ok {
		t.Error("there are routes without a hook")
	}
}

func TestBalancersHaveAddressesOfThePoolThatNobodyElseHas(t *testing.T) {
	b := newBed(t, "pool: [192.0.2.0/31, '2001:db8::-2001:db8::9']\nhooks: {balancer: DIR/balancer}\n")
	b.write("balancer", "#!/bin/sh\necho $* >> DIR/calls\n")
	l, ok := b.c.LoadBalancer()
	if !ok {
		t.Fatal("there are no balancers")
	}
	ensure := func(svc *corev1.Service, nodes ...*corev1.Node) string {
		t.Helper()
		s, err := l.EnsureLoadBalancer(t.Context(), "c", svc, nodes)
		if err != nil {
			return err.Error()
		}
		var ips []string
		for _, in := range s.Ingress {
			ips = append(ips, in.IP)
		}
		return strings.Join(ips, " ")
	}
	if got := ensure(service("a", ""), node("n1"), node("n2")); got != "192.0.2.0 2001:db8::" {
		t.Errorf("got %s", got)
	}
	if got, want := b.calls(), "ensure 192.0.2.0 default/a n1 n2\nensure 2001:db8:: default/a n1 n2"; got != want {
		t.Errorf("got calls %s, want %s", got, want)
	}
	// Another process over the same files, and the same again.
	again, err := Open(b.c.file)
	if err != nil {
		t.Fatal(err)
	}
	l, _ = again.LoadBalancer()
	if got := ensure(service("a", "")); got != "192.0.2.0 2001:db8::" {
		t.Errorf("got %s, want what it had", got)
	}
	if got := ensure(service("b", "192.0.2.0")); got != "spec.loadBalancerIP 192.0.2.0 is another service's, or not of the pool" {
		t.Errorf("got %s", got)
	}
	if got := ensure(service("b", "192.0.2.1")); got != "192.0.2.1 2001:db8::1" {
		t.Errorf("got %s", got)
	}
	if got := ensure(service("c", "")); got != "no IPv4 address is left in the pool: add some to the inventory" {
		t.Errorf("got %s", got)
	}
	b.calls()
	if err := l.UpdateLoadBalancer(t.Context(), "c", service("b", ""), []*corev1.Node{node("n3")}); err != nil || !strings.HasPrefix(b.calls(), "ensure 192.0.2.1 default/b n3\n") {
		t.Errorf("other nodes: got %v", err)
	}
	b.write("balancer", "#!/bin/sh\nexit 1\n")
	if err := l.EnsureLoadBalancerDeleted(t.Context(), "c", service("a", "")); err == nil {
		t.Error("an address was given back that the hook has not let go")
	}
	if _, exists, err := l.GetLoadBalancer(t.Context(), "c", service("a", "")); err != nil || !exists {
		t.Errorf("got %v, %v", exists, err)
	}
	b.write("balancer", "#!/bin/sh\necho $* >> DIR/calls\n")
	if err := l.EnsureLoadBalancerDeleted(t.Context(), "c", service("a", "")); err != nil || !strings.HasPrefix(b.calls(), "delete 192.0.2.0 default/a\n") {
		t.Errorf("got %v", err)
	}
	if got := ensure(service("c", "")); got != "192.0.2.0 2001:db8::" {
		t.Errorf("got %s, want what was given back", got)
	}
}

func TestMachinesOfPoolsAreSwitchedOnAndOffOrMadeByHooks(t *testing.T) {
	b := newBed(t, `
machines:
- {name: n1}
- {name: w1, pool: workers, zone: a}
- {name: w2, pool: workers}
- {name: w3, pool: workers}
- {name: w4, pool: workers}
pools: [{name: workers, max: 9, resources: {cpu: "4", memory: 8Gi}, labels: {class: worker}}]
hooks: {power: DIR/power, machines: DIR/machines, timeout: 20s}
`)
	b.write("power", "#!/bin/sh\n[ $1 = status ] || echo power $* >> DIR/calls\ncase $2 in w1) echo on;; w2) exit 1;; w3) cat DIR/w3 2>/dev/null || echo off;; w4) echo gone;; esac\n")
	b.write("machines", "#!/bin/sh\n[ $1 = list ] || echo machines $* >> DIR/calls\n[ $1 = list ] && echo workers-x workers 10.0.0.9\n[ $1 = list ] || exit 0\n")
	cloud, ok := b.c.Scale()
	if !ok {
		t.Fatal("there are no pools")
	}
	if p, err := cloud.Pools(t.Context()); err != nil || len(p) != 1 || p[0].Resources.Pods().Value() != 110 || p[0].IdleAfter.Duration != 10*time.Minute {
		t.Errorf("got %+v, %v", p, err)
	}
	list, err := cloud.Machines(t.Context())
	want := []scale.Machine{
		{Node: "workers-x", Pool: "workers", State: scale.On}, {Node: "w1", Pool: "workers", State: scale.On, Kept: true},
		{Node: "w2", Pool: "workers", State: scale.Unknown, Kept: true}, {Node: "w3", Pool: "workers", State: scale.Off, Kept: true},
	}
	if err != nil || !slices.Equal(list, want) {
		t.Errorf("got %+v, %v, want %+v", list, err, want)
	}
	m, err := cloud.Start(t.Context(), "workers")
	if got := b.calls(); err != nil || m != (scale.Machine{Node: "w3", Pool: "workers", State: scale.On, Kept: true}) || got != "power on w3" {
		t.Errorf("got %+v, %v after %s, want the machine that is off", m, err, got)
	}
	// It takes its time, and is on its way all the same: it is not started again.
	list, err = cloud.Machines(t.Context())
	want[3].State = scale.On
	if err != nil || !slices.Equal(list, want) {
		t.Errorf("got %+v, %v of one that was told to go on and says that it is off, want %+v", list, err, want)
	}
	made, err := cloud.Start(t.Context(), "workers")
	if got := b.calls(); err != nil || made.Kept || got != "machines create workers "+made.Node || !strings.HasPrefix(made.Node, "workers-") {
		t.Errorf("got %+v, %v after %s, want one that was made", made, err, got)
	}
	if err := errors.Join(cloud.Stop(t.Context(), m), cloud.Stop(t.Context(), made)); err != nil || b.calls() != "power off w3\nmachines delete "+made.Node {
		t.Errorf("stop: got %v", err)
	}
	machines, _ := b.c.InstancesV2()
	meta, err := machines.InstanceMetadata(t.Context(), node("workers-x"))
	if err != nil || meta.ProviderID != "bare-metal://workers-x" || meta.AdditionalLabels["class"] != "worker" || len(meta.NodeAddresses) != 1 || meta.NodeAddresses[0].Address != "10.0.0.9" {
		t.Errorf("got %+v, %v of a machine that was made", meta, err)
	}
	// A hook that fails says nothing: nobody is gone for it.
	b.write("machines", "#!/bin/sh\nexit 3\n")
	if exists, err := machines.InstanceExists(t.Context(), node("workers-x")); err == nil {
		t.Errorf("got %v of a hook that fails, want an error", exists)
	}
	if list, err := cloud.Machines(t.Context()); err == nil {
		t.Errorf("got %v of a hook that fails, want an error", list)
	}
	b.write("machines", "#!/bin/sh\necho lonely\n")
	if _, err := cloud.Machines(t.Context()); err == nil || !strings.Contains(err.Error(), `prints "lonely": want a name, a pool and addresses`) {
		t.Errorf("got %v of a hook that prints nonsense", err)
	}
	b.write("inventory.yaml", "pools: [{name: workers, max: 1, resources: {cpu: 1, memory: 1Gi}}]\n")
	if _, err := cloud.Start(t.Context(), "workers"); !errors.Is(err, scale.ErrNone) {
		t.Errorf("got %v, want that none is left", err)
	}
}

func TestHookEndsWithWhoAsks(t *testing.T) {
	b := newBed(t, "machines: [{name: n1}]\nhooks: {power: DIR/power}\n")
	b.write("power", "#!/bin/sh\nsleep 1000 & wait\n")
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	m, _ := b.c.InstancesV2()
	if _, err := m.InstanceExists(ctx, node("n1")); !errors.Is(err, why) {
		t.Errorf("got %v, want %v", err, why)
	}
}

func TestInventoriesThatCannotBeAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		" \n":                              "it is empty",
		"machines: [{zone: a}]":            "machines[0] has no name",
		"machines: [{name: a}, {name: a}]": "machine a (bare-metal://a) stands there twice",
		"machines: [{name: a}, {name: b, id: a}]": "machine b (bare-metal://a) stands there twice",
		"hooks: {power: power}":                   "hook power: want an absolute path",
		"hooks: {timeout: -1s}":                   "hooks.timeout must not be negative",
		"pool: [here]":                            `addresses "here"`,
		"machine: []":                             `unknown field "machine"`,
		"machines: [{name: a, pool: b}]":          `machine a is of pool "b", which is not among pools`,
		"machines: [{name: a, pool: b}]\npools: [{name: b, max: 1, resources: {cpu: 1, memory: 1Gi}}]": "there is no hook of power that could switch it on",
		"pools: [{name: B}]":                                                                                                `pools[0].name: "B": `,
		"pools: [{name: b, min: 2, max: 1}]":                                                                                "pools[0].min: 2 is not between 0 and max, 1",
		"pools: [{name: b, max: 1}]":                                                                                        "pools[0].resources: cpu is missing: say how much a machine has for pods",
		"pools: [{name: b, max: 1, resources: {cpu: 0, memory: 1Gi}}]":                                                      "pools[0].resources[cpu]: 0 is no amount above zero",
		"pools: [{name: b, max: 1, resources: {cpu: 1, memory: 1Gi}, idleAfter: -1s}]":                                      "pools[0].idleAfter: -1s is negative",
		"pools: [{name: b, max: 1, resources: {cpu: 1, memory: 1Gi}, taints: [{key: k}]}]":                                  `pools[0].taints[0].effect: "" is neither`,
		"pools: [{name: b, max: 1, resources: {cpu: 1, memory: 1Gi}, labels: {'a b': c}}]":                                  "pools[0].labels: a b=c: ",
		"pools: [{name: b, max: 1, resources: {cpu: 1, memory: 1Gi}}, {name: b, max: 1, resources: {cpu: 1, memory: 1Gi}}]": `pools[1].name: there is another pool "b"`,
	} {
		file := filepath.Join(t.TempDir(), "inventory.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
	if _, err := Open(""); err == nil {
		t.Error("no file at all: want an error")
	}
}
