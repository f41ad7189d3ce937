package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

const metalInventory = `
clusterID: test
machines:
- {name: n1}
- {name: w1, id: CZ1, zone: rack-1, pool: workers, addresses: [{type: InternalIP, address: 192.0.2.11}]}
pools: [{name: workers, max: 2, resources: {cpu: "16", memory: 64Gi}, labels: {class: worker}, idleAfter: 1s}]
hooks: {power: DIR/power, machines: DIR/machines}
`

// What the hooks do: power is a file for each machine, machines that are made are lines of another.
// A call stands in calls once it is done: who reads it there may look at what it did.
const (
	metalPower    = "#!/bin/sh\n[ $1 = status ] && { cat DIR/power-$2 2>/dev/null || echo off; exit; }\necho $1 > DIR/power-$2\necho power $* >> DIR/calls\n"
	metalMachines = "#!/bin/sh\n[ $1 = list ] && { cat DIR/made 2>/dev/null; exit 0; }\n" +
		"if [ $1 = create ]; then echo $3 $2 192.0.2.12 > DIR/made; else rm DIR/made; fi\necho machines $1 >> DIR/calls\n"
)

// joins is what a machine does when it runs: it has a node that is ready.
func (b *cloudBed) joins(name string) {
	b.Helper()
	nodes := client.For(b.s.plane.Admin(), core.Nodes)
	_, err := nodes.Create(b.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{
		Taints: []corev1.Taint{{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: corev1.TaintEffectNoSchedule}},
	}})
	b.must(err)
	has := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("16"), corev1.ResourceMemory: resource.MustParse("64Gi"), corev1.ResourcePods: resource.MustParse("110")}
	wait.Until(b.T, func() error { // beside the loops, which write it too
		n, err := nodes.Get(b.Context(), "", name)
		if err != nil {
			return err
		}
		n = n.DeepCopy()
		n.Status.Conditions = slices.DeleteFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"})
		n.Status.Allocatable, n.Status.Capacity = has, has
		_, err = nodes.UpdateStatus(b.Context(), n)
		return err
	})
}

// TestMachinesOfBareMetalComeAndGoByHooks has pods that fit nowhere bring a machine of the inventory and one that is made, and both go
// when there are no pods any more.
func TestMachinesOfBareMetalComeAndGoByHooks(t *testing.T) {
	b := newCloudBed(t)
	dir := t.TempDir()
	for name, text := range map[string]string{"inventory.yaml": metalInventory, "power": metalPower, "machines": metalMachines} {
		b.must(os.WriteFile(filepath.Join(dir, name), []byte(strings.ReplaceAll(text, "DIR", dir)), 0o700))
	}
	calls := func() string {
		data, err := os.ReadFile(filepath.Join(dir, "calls"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return strings.ReplaceAll(strings.TrimSpace(string(data)), "\n", ", ")
	}
	b.must(os.WriteFile(b.kubeconfig, adminKubeconfig(b), 0o600)) // the manifest's account may not read pods
	b.run("--cloud-provider=bare-metal", "--cloud-config="+filepath.Join(dir, "inventory.yaml"))
	admin := b.s.plane.Admin()
	nodes, pods := client.For(admin, core.Nodes), client.For(admin, core.Pods)
	work := func(name string) {
		_, err := pods.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("12")}},
		}}}})
		b.must(err)
	}
	runsOn := func(pod, node string) {
		t.Helper()
		wait.Until(t, func() error {
			p, err := pods.Get(t.Context(), "default", pod)
			if err == nil && p.Spec.NodeName != node {
				err = fmt.Errorf("got pod %s on node %q, want %s", pod, p.Spec.NodeName, node)
			}
			return err
		})
	}
	became := func(want string) {
		t.Helper()
		wait.Until(t, func() error {
			if got := calls(); got != want {
				return fmt.Errorf("got calls %s, want %s", got, want)
			}
			return nil
		})
	}
	work("first")
	trace.Proves(t, "CTL-013", "CTL-015")
	became("power on w1")
	b.joins("w1")
	runsOn("first", "w1")
	w1, err := nodes.Get(t.Context(), "", "w1")
	b.must(err)
	if w1.Spec.ProviderID != "bare-metal://CZ1" || w1.Labels[corev1.LabelTopologyZone] != "rack-1" || w1.Labels["class"] != "worker" {
		t.Errorf("got node %+v with labels %v", w1.Spec, w1.Labels)
	}
	work("second")
	trace.Proves(t, "CTL-013", "CTL-015")
	became("power on w1, machines create")
	data, err := os.ReadFile(filepath.Join(dir, "made"))
	b.must(err)
	made := strings.Fields(string(data))[0]
	b.joins(made)
	runsOn("second", made)
	for _, name := range []string{"first", "second"} {
		b.must(pods.Delete(t.Context(), "default", name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	}
	trace.Proves(t, "CTL-014", "CTL-015")
	wait.Until(t, func() error {
		got := strings.Split(calls(), ", ")
		slices.Sort(got)
		if want := []string{"machines create", "machines delete", "power off w1", "power on w1"}; !slices.Equal(got, want) {
			return fmt.Errorf("got calls %v, want %v", got, want)
		}
		return nil
	})
	if _, err := nodes.Get(t.Context(), "", made); !apierrors.IsNotFound(err) {
		t.Errorf("got %v of the node of a machine that was removed", err)
	}
	if _, err := nodes.Get(t.Context(), "", "w1"); err != nil {
		t.Errorf("the node of a machine that is switched off: %v", err)
	}
}
