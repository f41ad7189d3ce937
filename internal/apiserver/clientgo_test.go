package apiserver

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	appsapply "k8s.io/client-go/applyconfigurations/apps/v1"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	"github.com/kemudi/kemudi/internal/apiserver/request"
	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

// eachWire runs a test with a typed client that speaks JSON, and one that speaks protobuf.
func eachWire(t *testing.T, test func(t *testing.T, f *fixture, c *kubernetes.Clientset)) {
	for name, kind := range map[string]string{"json": request.JSON, "protobuf": request.Proto} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			config := f.config()
			config.ContentType = kind
			config.AcceptContentTypes = kind
			c, err := kubernetes.NewForConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			test(t, f, c)
		})
	}
}

func deployment(name string, replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}}},
			},
		},
	}
}

func TestTypedClientWorksInBothMediaTypes(t *testing.T) {
	eachWire(t, func(t *testing.T, _ *fixture, c *kubernetes.Clientset) {
		ctx := t.Context()
		deployments := c.AppsV1().Deployments("default")
		made, err := deployments.Create(ctx, deployment("web", 2), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if made.UID == "" || made.Generation != 1 || made.CreationTimestamp.IsZero() || made.Spec.RevisionHistoryLimit == nil {
			t.Errorf("create: got %+v", made)
		}
		if _, err := deployments.Create(ctx, deployment("web", 2), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) || err.Error() != `deployments.apps "web" already exists` {
			t.Errorf("second create: got %v", err)
		}
		made.Spec.Replicas = new(int32(3))
		changed, err := deployments.Update(ctx, made, metav1.UpdateOptions{})
		if err != nil || changed.Generation != 2 {
			t.Fatalf("update: %v, generation %d", err, changed.Generation)
		}
		if _, err := deployments.Update(ctx, made, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			t.Errorf("update with an old resourceVersion: got %v", err)
		}
		changed.Status.ReadyReplicas = 1
		changed.Status.Replicas = 1
		changed.Spec.Replicas = new(int32(9))
		status, err := deployments.UpdateStatus(ctx, changed, metav1.UpdateOptions{})
		if err != nil || status.Status.ReadyReplicas != 1 || *status.Spec.Replicas != 3 || status.Generation != 2 {
			t.Fatalf("update of status: %v %+v", err, status)
		}
		scale, err := deployments.GetScale(ctx, "web", metav1.GetOptions{})
		if err != nil || scale.Spec.Replicas != 3 {
			t.Fatalf("scale: %v %+v", err, scale)
		}
		scale.Spec.Replicas = 5
		if scale, err = deployments.UpdateScale(ctx, "web", scale, metav1.UpdateOptions{}); err != nil || scale.Spec.Replicas != 5 {
			t.Fatalf("update of scale: %v %+v", err, scale)
		}
		patched, err := deployments.Patch(ctx, "web", types.StrategicMergePatchType,
			[]byte(`{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"side:1"}]}}}}`), metav1.PatchOptions{})
		if err != nil || len(patched.Spec.Template.Spec.Containers) != 2 || *patched.Spec.Replicas != 5 {
			t.Fatalf("strategic patch: %v %+v", err, patched)
		}
		list, err := deployments.List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
		if err != nil || len(list.Items) != 1 || list.ResourceVersion == "" {
			t.Fatalf("list: %v %+v", err, list)
		}
		if list, err = deployments.List(ctx, metav1.ListOptions{LabelSelector: "app!=web"}); err != nil || len(list.Items) != 0 {
			t.Fatalf("list of others: %v %+v", err, list)
		}
		if err := deployments.Delete(ctx, "web", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := deployments.Get(ctx, "web", metav1.GetOptions{}); !apierrors.IsNotFound(err) || err.Error() != `deployments.apps "web" not found` {
			t.Errorf("get after delete: got %v", err)
		}
	})
}

// take reads the next event of a watch.
func take(t *testing.T, w watch.Interface) watch.Event {
	t.Helper()
	select {
	case e, ok := <-w.ResultChan():
		if !ok {
			t.Fatal("the watch has ended")
		}
		return e
	case <-time.After(wait.Patience):
		t.Fatal("there is no event")
		return watch.Event{}
	}
}

func TestWatchTellsOfEveryChange(t *testing.T) {
	eachWire(t, func(t *testing.T, _ *fixture, c *kubernetes.Clientset) {
		ctx := t.Context()
		maps := c.CoreV1().ConfigMaps("default")
		if _, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"x": "1"}}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		w, err := maps.Watch(ctx, metav1.ListOptions{LabelSelector: "x=1"})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		expect := func(w watch.Interface, kind watch.EventType, value string) string {
			t.Helper()
			e := take(t, w)
			m, ok := e.Object.(*corev1.ConfigMap)
			if e.Type != kind || !ok || m.Data["v"] != value {
				t.Fatalf("got %s %+v, want %s with %q", e.Type, e.Object, kind, value)
			}
			return m.ResourceVersion
		}
		expect(w, watch.Added, "")
		set := func(x, v string) {
			t.Helper()
			m, err := maps.Get(ctx, "a", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			m.Labels["x"], m.Data = x, map[string]string{"v": v}
			if _, err := maps.Update(ctx, m, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		set("1", "one")
		rev := expect(w, watch.Modified, "one")
		set("2", "two") // leaves the selection
		if left := expect(w, watch.Deleted, "one"); left == rev {
			t.Errorf("resourceVersion of the event: got that before the change, %s", left)
		}
		set("2", "three") // not seen
		set("1", "four")  // comes back
		expect(w, watch.Added, "four")
		if err := maps.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		expect(w, watch.Deleted, "four")

		again, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: rev})
		if err != nil {
			t.Fatal(err)
		}
		defer again.Stop()
		expect(again, watch.Modified, "two")
		expect(again, watch.Modified, "three")
		expect(again, watch.Modified, "four")
		expect(again, watch.Deleted, "four")
	})
	if !t.Failed() {
		trace.Proves(t, "C-155", "C-156", "C-158", "LBL-041")
	}
}

func TestWatchesAgreeOnTheOrder(t *testing.T) {
	eachWire(t, func(t *testing.T, _ *fixture, c *kubernetes.Clientset) {
		ctx := t.Context()
		maps := c.CoreV1().ConfigMaps("default")
		const writers, writes = 4, 25
		first, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "start"}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for i := range writers {
			wg.Go(func() {
				for n := range writes {
					m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("w%d-%d", i, n)}}
					if _, err := maps.Create(ctx, m, metav1.CreateOptions{}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		follow := func(rev string, n int) (revs []string) {
			w, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: rev})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			for range n {
				revs = append(revs, take(t, w).Object.(*corev1.ConfigMap).ResourceVersion)
			}
			return revs
		}
		all := follow(first.ResourceVersion, writers*writes)
		wg.Wait()
		for _, from := range []int{0, 10, 50, 90} {
			if got := follow(all[from], writers*writes-from-1); !slices.Equal(got, all[from+1:]) {
				t.Errorf("from event %d on: got %v, want %v", from, got, all[from+1:])
			}
		}
	})
	if !t.Failed() {
		trace.Proves(t, "C-159")
	}
}

func TestWatchListSendsStateThenABookmark(t *testing.T) {
	eachWire(t, func(t *testing.T, _ *fixture, c *kubernetes.Clientset) {
		maps := c.CoreV1().ConfigMaps("default")
		for _, name := range []string{"a", "b"} {
			if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		w, err := maps.Watch(t.Context(), metav1.ListOptions{
			SendInitialEvents: new(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		for _, want := range []string{"a", "b"} {
			if e := take(t, w); e.Type != watch.Added || e.Object.(*corev1.ConfigMap).Name != want {
				t.Fatalf("got %v %v, want %s", e.Type, e.Object, want)
			}
		}
		e := take(t, w)
		m := e.Object.(*corev1.ConfigMap)
		if e.Type != watch.Bookmark || m.Annotations[metav1.InitialEventsAnnotationKey] != "true" || m.ResourceVersion == "" {
			t.Errorf("got %v %+v, want a bookmark with the annotation", e.Type, m)
		}
	})
}

func TestListsComeInPages(t *testing.T) {
	eachWire(t, func(t *testing.T, f *fixture, c *kubernetes.Clientset) {
		maps := c.CoreV1().ConfigMaps("default")
		const total = 10
		for i := range total {
			if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("m%d", i)}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		o := metav1.ListOptions{Limit: 3}
		first, err := maps.List(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if err := maps.Delete(t.Context(), "m9", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		seen := len(first.Items)
		for page := first; page.Continue != ""; {
			if left := page.RemainingItemCount; left == nil || int(*left) != total-seen {
				t.Fatalf("remainingItemCount after %d items: got %v", seen, left)
			}
			o.Continue = page.Continue
			if page, err = maps.List(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			if page.ResourceVersion != first.ResourceVersion {
				t.Errorf("resourceVersion: got %s, want that of the first page, %s", page.ResourceVersion, first.ResourceVersion)
			}
			seen += len(page.Items)
		}
		if seen != total {
			t.Errorf("got %d items in all, want %d", seen, total)
		}

		o.Continue = first.Continue
		_, now, err := f.store.Get(t.Context(), "/registry/")
		if err != nil {
			t.Fatal(err)
		}
		if err := f.store.Compact(t.Context(), now); err != nil {
			t.Fatal(err)
		}
		_, err = maps.List(t.Context(), o)
		if !apierrors.IsResourceExpired(err) {
			t.Fatalf("list after compaction: got %v", err)
		}
		o.Continue = err.(*apierrors.StatusError).ErrStatus.Continue
		rest, err := maps.List(t.Context(), o)
		if err != nil || len(rest.Items) != 3 || rest.Items[0].Name != "m3" || rest.ResourceVersion == first.ResourceVersion {
			t.Errorf("list with the token of the 410: %v, %+v", err, rest)
		}
		if left := rest.RemainingItemCount; left == nil || *left != 3 {
			t.Errorf("remainingItemCount: got %v, want 3", left)
		}
	})
	if !t.Failed() {
		trace.Proves(t, "C-148")
	}
}

func TestServerSideApplyMergesByOwner(t *testing.T) {
	eachWire(t, func(t *testing.T, _ *fixture, c *kubernetes.Clientset) {
		ctx := t.Context()
		deployments := c.AppsV1().Deployments("default")
		config := func(replicas int32) *appsapply.DeploymentApplyConfiguration {
			return appsapply.Deployment("web", "default").WithSpec(appsapply.DeploymentSpec().WithReplicas(replicas).
				WithSelector(metaapply.LabelSelector().WithMatchLabels(map[string]string{"a": "b"})).
				WithTemplate(coreapply.PodTemplateSpec().WithLabels(map[string]string{"a": "b"}).
					WithSpec(coreapply.PodSpec().WithContainers(coreapply.Container().WithName("c").WithImage("i")))))
		}
		made, err := deployments.Apply(ctx, config(1), metav1.ApplyOptions{FieldManager: "one"})
		if err != nil {
			t.Fatal(err)
		}
		if len(made.ManagedFields) != 1 || made.ManagedFields[0].Manager != "one" || made.ManagedFields[0].Operation != metav1.ManagedFieldsOperationApply {
			t.Errorf("managedFields: got %+v", made.ManagedFields)
		}
		_, err = deployments.Apply(ctx, config(2), metav1.ApplyOptions{FieldManager: "two"})
		if !apierrors.IsConflict(err) || err.Error() != `Apply failed with 1 conflict: conflict with "one": .spec.replicas` {
			t.Errorf("apply of another's field: got %v", err)
		}
		forced, err := deployments.Apply(ctx, config(2), metav1.ApplyOptions{FieldManager: "two", Force: true})
		if err != nil || *forced.Spec.Replicas != 2 {
			t.Fatalf("forced apply: %v %+v", err, forced)
		}
		again, err := deployments.Apply(ctx, config(2), metav1.ApplyOptions{FieldManager: "two", Force: true})
		if err != nil || again.ResourceVersion != forced.ResourceVersion {
			t.Errorf("apply without a change: %v, resourceVersion %s, want %s", err, again.ResourceVersion, forced.ResourceVersion)
		}
	})
}

func TestDynamicMetadataAndDiscoveryClientsWork(t *testing.T) {
	f := newFixture(t)
	gvr := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	dyn := dynamic.NewForConfigOrDie(f.config())
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "web"},
		"spec": map[string]any{
			"selector": map[string]any{"matchLabels": map[string]any{"a": "b"}},
			"template": map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"a": "b"}},
				"spec":     map[string]any{"containers": []any{map[string]any{"name": "c", "image": "i"}}},
			},
		},
	}}
	if _, err := dyn.Resource(gvr).Namespace("default").Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	meta := metadata.NewForConfigOrDie(f.config())
	part, err := meta.Resource(gvr).Namespace("default").Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil || part.Name != "web" || part.UID == "" {
		t.Errorf("metadata get: %v %+v", err, part)
	}
	parts, err := meta.Resource(gvr).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(parts.Items) != 1 {
		t.Errorf("metadata list: %v %+v", err, parts)
	}
	w, err := meta.Resource(gvr).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if e := take(t, w); e.Type != watch.Added || e.Object.(*metav1.PartialObjectMetadata).Name != "web" {
		t.Errorf("metadata watch: got %v %+v", e.Type, e.Object)
	}
	disco := discovery.NewDiscoveryClientForConfigOrDie(f.config())
	_, lists, err := disco.ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	disco.UseLegacyDiscovery = true
	_, legacy, err := disco.ServerGroupsAndResources()
	if err != nil || len(legacy) != len(lists) {
		t.Errorf("discovery: %v, %d group-versions aggregated, %d classic", err, len(lists), len(legacy))
	}
	if v, err := disco.ServerVersion(); err != nil || v.Major != "1" {
		t.Errorf("version: %v %+v", err, v)
	}
}

func TestInformersFollow(t *testing.T) {
	eachWire(t, func(t *testing.T, _ *fixture, c *kubernetes.Clientset) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		factory := informers.NewSharedInformerFactory(c, 0)
		lister := factory.Core().V1().Pods().Lister()
		factory.Start(ctx.Done())
		factory.WaitForCacheSync(ctx.Done())
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		if _, err := c.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		for ctx.Err() == nil {
			if _, err := lister.Pods("default").Get("p"); err == nil {
				break
			}
		}
		cancel()
		factory.Shutdown()
		if _, err := lister.Pods("default").Get("p"); err != nil {
			t.Error(err)
		}
	})
}

func TestPodsLeaveGracefully(t *testing.T) {
	eachWire(t, func(t *testing.T, _ *fixture, c *kubernetes.Clientset) {
		ctx := t.Context()
		pods := c.CoreV1().Pods("default")
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		made, err := pods.Create(ctx, pod, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if made.Status.Phase != corev1.PodPending {
			t.Errorf("phase: got %q", made.Status.Phase)
		}
		b := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: made.UID}, Target: corev1.ObjectReference{Kind: "Node", Name: "n1"}}
		if err := pods.Bind(ctx, b, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := pods.Bind(ctx, b, metav1.CreateOptions{}); !apierrors.IsConflict(err) {
			t.Errorf("second bind: got %v", err)
		}
		on, err := pods.List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", "n1").String()})
		if err != nil || len(on.Items) != 1 {
			t.Fatalf("pods of the node: %v %+v", err, on)
		}
		if err := pods.Delete(ctx, "p", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		marked, err := pods.Get(ctx, "p", metav1.GetOptions{})
		if err != nil || marked.DeletionTimestamp == nil || *marked.DeletionGracePeriodSeconds != 30 {
			t.Fatalf("get while terminating: %v %+v", err, marked)
		}
		if err := pods.Delete(ctx, "p", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
			t.Fatal(err)
		}
		if _, err := pods.Get(ctx, "p", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("get after the last delete: got %v", err)
		}
	})
}
