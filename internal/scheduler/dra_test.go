package scheduler

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/dra"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/scheduler/config"
	"github.com/kemudi/kemudi/internal/task"
)

// made creates an object written in YAML and lets everything settle.
func made[T resource.Object](r *rig, of *resource.Resource[T], text string) T {
	r.t.Helper()
	obj := of.New().(T)
	if err := yaml.UnmarshalStrict([]byte(text), obj); err != nil {
		r.t.Fatal(err)
	}
	stored, err := client.For(r.admin, of).Create(r.t.Context(), obj)
	if err != nil {
		r.t.Fatal(err)
	}
	synctest.Wait()
	return stored
}

func (r *rig) class(name, spec string) {
	r.t.Helper()
	made(r, dra.DeviceClasses, "{metadata: {name: "+name+"}, spec: "+spec+"}")
}

// slice publishes devices of a node.
func (r *rig) slice(node, devices string) {
	r.t.Helper()
	made(r, dra.ResourceSlices, fmt.Sprintf("{metadata: {name: %[1]s}, spec: {driver: d.io, nodeName: %[1]s, pool: {name: %[1]s, generation: 1, resourceSliceCount: 1}, devices: %[2]s}}", node, devices))
}

// claims makes claims to a device of the class gpu each.
func (r *rig) claims(names ...string) {
	r.t.Helper()
	for _, name := range names {
		r.claim(name, "{requests: [{name: r, exactly: {deviceClassName: gpu}}]}")
	}
}

func (r *rig) claim(name, devices string) {
	r.t.Helper()
	made(r, dra.ResourceClaims, "{metadata: {name: "+name+", namespace: default}, spec: {devices: "+devices+"}}")
}

func (r *rig) getClaim(name string) *resourcev1.ResourceClaim {
	r.t.Helper()
	c, err := client.For(r.admin, dra.ResourceClaims).Get(r.t.Context(), "default", name)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// setClaim changes the status of a claim.
func (r *rig) setClaim(name string, change func(*resourcev1.ResourceClaimStatus)) {
	r.t.Helper()
	c := r.getClaim(name).DeepCopy()
	change(&c.Status)
	if _, err := client.For(r.admin, dra.ResourceClaims).UpdateStatus(r.t.Context(), c); err != nil {
		r.t.Fatal(err)
	}
	synctest.Wait()
}

// free takes from a claim what it has, as the controller does when nobody uses it.
func (r *rig) free(name string) {
	r.t.Helper()
	r.setClaim(name, func(s *resourcev1.ResourceClaimStatus) { *s = resourcev1.ResourceClaimStatus{} })
}

// has checks which devices a claim has, and who may use them.
func (r *rig) has(name, devices string, users ...string) {
	r.t.Helper()
	c := r.getClaim(name)
	var got, by []string
	if c.Status.Allocation != nil {
		for _, x := range c.Status.Allocation.Devices.Results {
			got = append(got, x.Pool+"/"+x.Device)
		}
	}
	for _, u := range c.Status.ReservedFor {
		by = append(by, u.Name)
	}
	slices.Sort(by)
	if strings.Join(got, " ") != devices || !slices.Equal(by, users) {
		r.t.Errorf("claim %s has %v for %v, want %s for %v", name, got, by, devices, users)
	}
}

const noDevice = "0/1 nodes are available: 1 cannot allocate all claims. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."

func withGPUs(t *testing.T, test func(r *rig)) {
	inCluster(t, func(r *rig) {
		r.node("n1 cpu=4")
		r.class("gpu", `{selectors: [{cel: {expression: 'device.driver == "d.io"'}}]}`)
		r.slice("n1", "[{name: g0}, {name: g1}]")
		test(r)
	})
}

func TestGivesClaimsDevicesBeforeItBindsTheirPods(t *testing.T) {
	withGPUs(t, func(r *rig) {
		r.claims("a", "b", "c")
		r.pod("p cpu=1 uses=a")
		r.where("p", "n1")
		r.has("a", "n1/g0", "p")
		c := r.getClaim("a")
		if !slices.Contains(c.Finalizers, resourcev1.Finalizer) || c.Status.Allocation.AllocationTimestamp == nil {
			t.Errorf("claim has finalizers %v and was allocated at %v", c.Finalizers, c.Status.Allocation.AllocationTimestamp)
		}
		// Others use the same claim.
		r.pod("q cpu=1 uses=a")
		r.where("q", "n1")
		r.has("a", "n1/g0", "p", "q")
		// Devices are given once.
		r.pod("o cpu=1 uses=b")
		r.has("b", "n1/g1", "o")
		r.take()
		r.pod("late cpu=1 uses=c")
		r.said("late", refused(noDevice), "Warning FailedScheduling late: "+noDevice)
		// What is given back, another gets.
		r.delete("o")
		r.where("late", "")
		r.free("b")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		r.where("late", "n1")
		r.has("c", "n1/g1", "late")
	})
}

func TestWaitsForClaimsWithoutAWord(t *testing.T) {
	withGPUs(t, func(r *rig) {
		r.pod("p cpu=1 uses=a")
		r.pod("q cpu=1 uses=made:t")
		r.said("p", corev1.PodCondition{})
		r.claims("a")
		r.where("p", "n1")
		r.take()
		q := r.get("q")
		r.claim("q-t", "{requests: [{name: r, exactly: {deviceClassName: gpu}}]}")
		c := r.getClaim("q-t").DeepCopy()
		r.patch("q", "status", `{"status":{"resourceClaimStatuses":[{"name":"t","resourceClaimName":"q-t"}]}}`)
		r.where("q", "") // it is not the pod's own
		c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "q", UID: q.UID, Controller: ptr.To(true)}}
		if _, err := client.For(r.admin, dra.ResourceClaims).Update(r.t.Context(), c); err != nil {
			r.t.Fatal(err)
		}
		synctest.Wait()
		r.where("q", "n1")
		r.said("q", bound, "Normal Scheduled q: Successfully assigned default/q to n1")
	})
}

func TestSaysWhatIsWrongWithClaims(t *testing.T) {
	withGPUs(t, func(r *rig) {
		r.claim("a", "{requests: [{name: r, exactly: {deviceClassName: none}}]}")
		r.pod("p cpu=1 uses=a")
		why := "0/1 nodes are available: request r: device class none does not exist. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
		r.said("p", refused(why), "Warning FailedScheduling p: "+why)
		r.class("none", `{selectors: [{cel: {expression: 'device.attributes["d.io"].none'}}]}`)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		r.erred("p", `running "DynamicResources" filter plugin: class none: selector #0 on device d.io/n1/g0: CEL runtime error: no such key: none. `+
			"consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() for optional fields")
		r.claim("many", "{requests: [{name: few, exactly: {deviceClassName: gpu}}, {name: r, exactly: {deviceClassName: gpu, count: 32}}]}")
		r.pod("q cpu=1 uses=many")
		r.erred("q", `running "DynamicResources" filter plugin: claim default/many, request r: adding 32 devices exceeds the claim limit of 32, with 1 already accounted for`)
	})
}

// erred checks that an attempt to schedule a pod failed for no fault of its own.
func (r *rig) erred(name, why string) {
	r.t.Helper()
	c := core.PodCondition(&r.get(name).Status, corev1.PodScheduled)
	if c == nil || c.Status != corev1.ConditionFalse || c.Reason != corev1.PodReasonSchedulerError || c.Message != why {
		r.t.Errorf("condition of %s: got %+v, want %s", name, c, why)
	}
}

// TestASearchThatTakesTooLongIsAnError: whether the claim can be served is not known, so it is tried again without any event.
func TestASearchThatTakesTooLongIsAnError(t *testing.T) {
	file, err := config.Parse([]byte(`{apiVersion: kubescheduler.config.k8s.io/v1, kind: KubeSchedulerConfiguration,
profiles: [{pluginConfig: [{name: DynamicResources, args: {filterTimeout: 1us}}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	inClusterOf(t, file, nil, func(r *rig) {
		r.node("n1 cpu=4")
		r.class("gpu", `{selectors: [{cel: {expression: 'device.driver == "d.io"'}}]}`)
		var devices []string
		for i := range 20 {
			devices = append(devices, fmt.Sprintf("{name: g%d}", i))
		}
		r.slice("n1", "["+strings.Join(devices, ", ")+"]")
		r.claim("a", "{requests: [{name: r, exactly: {deviceClassName: gpu, count: 12}}]}")
		r.pod("p cpu=1 uses=a")
		r.erred("p", `running "DynamicResources" filter plugin: node n1: timed out trying to allocate devices`)
		before := r.attempts("error")
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if now := r.attempts("error"); now == before {
			t.Errorf("%d attempts, as before: want more", now)
		}
	})
}

func TestHasIdleClaimsGiveDevicesBack(t *testing.T) {
	withGPUs(t, func(r *rig) {
		r.claims("a")
		r.pod("p cpu=1 uses=a")
		r.delete("p")
		r.setClaim("a", func(s *resourcev1.ResourceClaimStatus) { s.ReservedFor = nil })
		r.node("n2 cpu=4")
		r.slice("n2", "[{name: g0}]")
		r.take()
		r.pod("q cpu=1 uses=a select=host=n2")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		r.where("q", "n2")
		r.has("a", "n2/g0", "q")
	})
}

func TestHeedsTaintsOfDevices(t *testing.T) {
	withGPUs(t, func(r *rig) {
		made(r, dra.DeviceTaintRules, "{metadata: {name: broken}, spec: {deviceSelector: {pool: n1}, taint: {key: broken, effect: NoSchedule}}}")
		r.claims("a")
		r.claim("b", "{requests: [{name: r, exactly: {deviceClassName: gpu, tolerations: [{key: broken, operator: Exists}]}}]}")
		r.pod("p cpu=1 uses=a")
		r.said("p", refused(noDevice), "Warning FailedScheduling p: "+noDevice)
		r.pod("q cpu=1 uses=b")
		r.where("q", "n1")
		if err := client.For(r.admin, dra.DeviceTaintRules).Delete(r.t.Context(), "", "broken", metav1.DeleteOptions{}); err != nil {
			r.t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		r.where("p", "n1")
	})
}

func TestPrefersNodesWithWhatIsAskedForFirst(t *testing.T) {
	withGPUs(t, func(r *rig) {
		r.class("best", `{selectors: [{cel: {expression: 'device.attributes["d.io"].?kind.orValue("") == "best"'}}]}`)
		for i := range 5 {
			name := fmt.Sprintf("m%d", i)
			r.node(name + " cpu=4")
			r.slice(name, "[{name: g0}]")
		}
		r.node("n2 cpu=4")
		r.slice("n2", "[{name: g0, attributes: {kind: {string: best}}}]")
		r.claim("a", "{requests: [{name: r, firstAvailable: [{name: best, deviceClassName: best}, {name: any, deviceClassName: gpu}]}]}")
		r.pod("p cpu=1 uses=a")
		r.has("a", "n2/g0", "p")
		if got := r.getClaim("a").Status.Allocation.Devices.Results[0].Request; got != "r/best" {
			t.Errorf("got request %s, want r/best", got)
		}
	})
}

func TestServesExtendedResourcesByDevices(t *testing.T) {
	withGPUs(t, func(r *rig) {
		r.pod("p cpu=1 res:example.com/gpu=2")
		why := "0/1 nodes are available: 1 Insufficient example.com/gpu. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
		r.said("p", refused(why), "Warning FailedScheduling p: "+why)
		r.class("served", `{selectors: [{cel: {expression: 'device.driver == "d.io"'}}], extendedResourceName: example.com/gpu}`)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		r.where("p", "n1")
		s := r.get("p").Status.ExtendedResourceClaimStatus
		if s == nil || len(s.RequestMappings) != 1 || s.RequestMappings[0] != (corev1.ContainerExtendedResourceRequest{ContainerName: "c", ResourceName: "example.com/gpu", RequestName: "container-0-request-1"}) {
			t.Fatalf("got %+v", s)
		}
		if !strings.HasPrefix(s.ResourceClaimName, "p-extended-resources-") {
			t.Errorf("claim is called %s", s.ResourceClaimName)
		}
		r.has(s.ResourceClaimName, "n1/g0 n1/g1", "p")
		c := r.getClaim(s.ResourceClaimName)
		if c.Annotations[resourcev1.ExtendedResourceClaimAnnotation] != "true" || !metav1.IsControlledBy(c, r.get("p")) {
			t.Errorf("claim has annotations %v and owners %v", c.Annotations, c.OwnerReferences)
		}
		// By the name of the class, and on nodes that have the resource themselves without devices.
		r.take()
		r.pod("q cpu=1 res:deviceclass.resource.kubernetes.io/served=1")
		r.said("q", refused(noDevice), "Warning FailedScheduling q: "+noDevice)
		r.node("n2 cpu=4 res:example.com/gpu=1")
		r.pod("o cpu=1 res:example.com/gpu=1")
		r.where("o", "n2")
		if s := r.get("o").Status.ExtendedResourceClaimStatus; s != nil {
			t.Errorf("got claim %+v where the node has the resource", s)
		}
	})
}

// waitsForDevice puts pod p where it waits for a device to be prepared.
func waitsForDevice(t *testing.T, test func(r *rig)) {
	inCluster(t, func(r *rig) {
		r.node("n1 cpu=4")
		r.class("gpu", "{}")
		r.slice("n1", "[{name: g0, bindingConditions: [Ready], bindingFailureConditions: [Broken]}]")
		r.claims("a")
		r.pod("p cpu=1 uses=a")
		r.where("p", "")
		r.has("a", "n1/g0", "p")
		r.said("p", corev1.PodCondition{}, "Normal BindingConditionsPending p: waiting for binding conditions for device on node n1")
		r.expected("p", "n1")
		test(r)
	})
}

// expected holds where a pod's status says that it will be bound against what it should say.
func (r *rig) expected(name, node string) {
	r.t.Helper()
	if got := r.get(name).Status.NominatedNodeName; got != node {
		r.t.Errorf("pod %s: got nominatedNodeName %q, want %q", name, got, node)
	}
}

func (r *rig) deviceSays(claim, condition string) {
	r.t.Helper()
	r.setClaim(claim, func(s *resourcev1.ResourceClaimStatus) {
		x := s.Allocation.Devices.Results[0]
		s.Devices = []resourcev1.AllocatedDeviceStatus{{Driver: x.Driver, Pool: x.Pool, Device: x.Device, Conditions: []metav1.Condition{
			{Type: condition, Status: metav1.ConditionTrue, Reason: "Test", Message: "so it is", LastTransitionTime: metav1.Now()},
		}}}
	})
}

func TestWaitsUntilDevicesArePrepared(t *testing.T) {
	waitsForDevice(t, func(r *rig) {
		r.deviceSays("a", "Ready")
		r.where("p", "n1")
		r.expected("p", "")
	})
}

func TestTakesDevicesBackThatCannotBePrepared(t *testing.T) {
	waitsForDevice(t, func(r *rig) {
		r.deviceSays("a", "Broken")
		c := r.get("p").Status.Conditions[0]
		if want := `running PreBind plugin "DynamicResources": claim a binding failed: reason=Test, message="so it is"`; c.Message != want {
			t.Errorf("got %s, want %s", c.Message, want)
		}
		r.expected("p", "")
		time.Sleep(30 * time.Second)
		synctest.Wait()
		r.deviceSays("a", "Ready") // of the second try
		r.where("p", "n1")
	})
}

func TestDoesNotWaitForDevicesForEver(t *testing.T) {
	waitsForDevice(t, func(r *rig) {
		time.Sleep(9 * time.Minute)
		synctest.Wait()
		r.said("p", corev1.PodCondition{})
		time.Sleep(61 * time.Second)
		synctest.Wait()
		why := `running PreBind plugin "DynamicResources": device binding timeout`
		if got := r.take(); len(got) == 0 || got[0] != "Warning FailedScheduling p: "+why {
			t.Errorf("got %v, want %s", got, why)
		}
	})
}

// TestNeverGivesADeviceTwice has pods race for fewer devices than they want, while requests fail, and
// schedulers die and others go on.
func TestNeverGivesADeviceTwice(t *testing.T) {
	for seed := range uint64(25) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				raceForDevices(t, seed, Options{}, func(r *rig) int {
					for i := range 24 {
						name := fmt.Sprintf("c%d", i/2) // two pods a claim
						if i%2 == 0 {
							r.claims(name)
						}
						r.create(fmt.Sprintf("p%d cpu=1 uses=%s", i, name))
					}
					return 24
				})
			})
		})
	}
}

// raceForDevices has the pods that fill makes, of which it returns the number, race for devices
// that are enough for twelve claims: six devices, and three with three parts.
func raceForDevices(t *testing.T, seed uint64, o Options, fill func(r *rig) int) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	r := newRig(t)
	r.class("gpu", "{}")
	for i := range 3 {
		name := fmt.Sprintf("n%d", i)
		r.node(name + " cpu=100")
		r.slice(name, "[{name: g0}, {name: g1}, {name: s0, allowMultipleAllocations: true, capacity: {n: {value: '3', requestPolicy: {default: '1'}}}}]")
	}
	failures := 40
	r.mu.all = func(q *client.Request) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		switch roll := rnd.IntN(10); {
		case failures == 0 || roll > 2 || q.Verb == "list" || q.Verb == "watch":
			return nil
		case roll == 0:
			failures--
			return apierrors.NewConflict(dra.ResourceClaims.Def.GroupResource(), q.Name, errors.New("test"))
		}
		failures--
		return apierrors.NewInternalError(errors.New("test"))
	}
	run := func(d time.Duration) {
		g := task.NewGroup(t.Context())
		o.Transport, o.Events = r.transport, r.reports
		g.Go("scheduler", New(o).Run)
		time.Sleep(d)
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
		synctest.Wait() // whoever takes over has caches that show all that was written
	}
	pods := fill(r)
	for range 3 {
		run(time.Duration(rnd.IntN(3000)) * time.Millisecond)
	}
	run(20 * time.Minute)
	checkDevices(t, r)
	if n := r.boundPods(); n != pods {
		t.Errorf("%d of %d pods are bound", n, pods)
	}
}

// checkDevices checks that no device has been given twice, that pods that are bound may use
// their claims, and that claims with devices have the finalizer.
func checkDevices(t *testing.T, r *rig) {
	t.Helper()
	all, err := client.For(r.admin, dra.ResourceClaims).List(t.Context(), "", metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	given, users := map[string]int{}, map[string][]string{}
	for _, c := range all {
		for _, u := range c.Status.ReservedFor {
			users[u.Name] = append(users[u.Name], c.Name)
		}
		if c.Status.Allocation == nil {
			continue
		}
		if !slices.Contains(c.Finalizers, resourcev1.Finalizer) {
			t.Errorf("claim %s has devices and no finalizer", c.Name)
		}
		for _, x := range c.Status.Allocation.Devices.Results {
			id := x.Pool + "/" + x.Device
			given[id]++
			if most := map[bool]int{true: 3, false: 1}[x.ShareID != nil]; given[id] > most {
				t.Errorf("%s was given %d times", id, given[id])
			}
		}
	}
	pods, err := r.pods.List(t.Context(), "default", metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods {
		for _, c := range p.Spec.ResourceClaims {
			if p.Spec.NodeName != "" && !slices.Contains(users[p.Name], *c.ResourceClaimName) {
				t.Errorf("pod %s is bound and may not use claim %s", p.Name, *c.ResourceClaimName)
			}
		}
	}
}

func (r *rig) boundPods() (n int) {
	pods, err := r.pods.List(r.t.Context(), "default", metav1.ListOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, p := range pods {
		if p.Spec.NodeName != "" {
			n++
		}
	}
	return n
}

// TestGoesOnWhereASchedulerDied kills the scheduler before each of its writes in turn, and has another
// one finish the job.
func TestGoesOnWhereASchedulerDied(t *testing.T) {
	for _, pod := range []string{"p cpu=1 uses=a,b", "p cpu=1 res:example.com/gpu=2"} {
		for at := range 8 {
			t.Run(fmt.Sprint(pod, " ", at), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t)
					r.class("gpu", "{extendedResourceName: example.com/gpu}")
					r.node("n1 cpu=4")
					r.slice("n1", "[{name: g0}, {name: g1}]")
					r.claims("a", "b")
					r.create(pod)
					r.dyingAt(at, Options{})
					r.where("p", "n1")
					checkDevices(t, r)
				})
			})
		}
	}
}

// dyingAt runs a scheduler that dies before one of its writes, and then another one.
func (r *rig) dyingAt(write int, o Options) {
	r.t.Helper()
	writes := 0
	r.mu.all = func(*client.Request) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if writes++; writes > write {
			return context.Canceled
		}
		return nil
	}
	for _, d := range []time.Duration{time.Millisecond, time.Hour} {
		g := task.NewGroup(r.t.Context())
		o.Transport, o.Events = r.transport, r.reports
		g.Go("scheduler", New(o).Run)
		time.Sleep(d)
		synctest.Wait()
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			r.t.Error(err)
		}
		r.mu.Lock()
		r.mu.all = nil
		r.mu.Unlock()
	}
}
