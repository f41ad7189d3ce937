package clients

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

// ownScheduler binds the pods of a namespace that name it to one node, as anybody
// can write it on client-go.
func ownScheduler(ctx context.Context, c kubernetes.Interface, namespace, node string) error {
	return follow(ctx, informers.NewSharedInformerFactoryWithOptions(c, 0, informers.WithNamespace(namespace), informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.Set{"spec.schedulerName": "own-scheduler", "spec.nodeName": ""}.String()
	})).Core().V1().Pods().Informer(), func(name string) error {
		err := c.CoreV1().Pods(namespace).Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Target: corev1.ObjectReference{Kind: "Node", Name: node},
		}, metav1.CreateOptions{})
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return nil // it is bound, or gone
		}
		return err
	})
}

// ownController keeps as many pods as a config map says, likewise.
func ownController(ctx context.Context, c kubernetes.Interface, namespace string) error {
	factory := informers.NewSharedInformerFactoryWithOptions(c, 0, informers.WithNamespace(namespace), informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.LabelSelector = "wanted"
	}))
	return follow(ctx, factory.Core().V1().ConfigMaps().Informer(), func(name string) error {
		cm, err := c.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		want, err := strconv.Atoi(cm.Data["pods"])
		if err != nil {
			return err
		}
		for i := range want {
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					Name: fmt.Sprint(name, "-", i), Labels: map[string]string{"of": name},
					OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(cm, corev1.SchemeGroupVersion.WithKind("ConfigMap"))},
				},
				Spec: corev1.PodSpec{SchedulerName: "own-scheduler", Containers: []corev1.Container{{Name: "c", Image: "c"}}},
			}
			if _, err := c.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
				return err
			}
		}
		return nil
	})
}

// follow hands the name of each object to do, whenever it is new or has changed,
// until ctx ends. What fails is tried again.
func follow(ctx context.Context, informer cache.SharedIndexInformer, do func(name string) error) error {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	defer context.AfterFunc(ctx, queue.ShutDown)()
	add := func(obj any) { queue.Add(obj.(metav1.Object).GetName()) }
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: func(_, obj any) { add(obj) }}); err != nil {
		return err
	}
	g := task.NewGroup(ctx)
	g.Go("informer", func(ctx context.Context) error {
		informer.RunWithContext(ctx)
		return nil
	})
	g.Go("worker", func(ctx context.Context) error {
		for {
			name, down := queue.Get()
			if down {
				return nil
			}
			if err := do(name); err != nil {
				queue.AddRateLimited(name)
			} else {
				queue.Forget(name)
			}
			queue.Done(name)
		}
	})
	return g.Wait()
}

func TestOwnControllerAndSchedulerWorkByThePublicAPI(t *testing.T) {
	t.Parallel()
	const namespace = "own"
	theServer.namespace(t, namespace)
	g := task.NewGroup(t.Context())
	g.Go("scheduler", func(ctx context.Context) error { return ownScheduler(ctx, theServer.client, namespace, "node-2") })
	g.Go("controller", func(ctx context.Context) error { return ownController(ctx, theServer.client, namespace) })
	t.Cleanup(func() {
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
	maps := theServer.client.CoreV1().ConfigMaps(namespace)
	if _, err := maps.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{"wanted": ""}}, Data: map[string]string{"pods": "2"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	running := func(want int) {
		t.Helper()
		wait.Until(t, func() error {
			list, err := theServer.client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "of=web"})
			if err != nil {
				return err
			}
			n := 0
			for _, pod := range list.Items {
				if pod.Status.Phase == corev1.PodRunning && pod.Spec.NodeName == "node-2" {
					n++
				}
			}
			if n != want || len(list.Items) != want {
				return fmt.Errorf("%d of %d pods run where the own scheduler puts them, want %d", n, len(list.Items), want)
			}
			return nil
		})
	}
	trace.Proves(t, "API-001/everyone", "CTL-024", "POD-023", "WHAT-006")
	running(2)
	if _, err := maps.Patch(t.Context(), "web", "application/merge-patch+json", []byte(`{"data":{"pods":"4"}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	running(4)
	// The garbage collector looks after what others' controllers make as well.
	if err := maps.Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	running(0)
}
