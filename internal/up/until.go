package up

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"

	"github.com/kemudi/kemudi/internal/task"
)

// one is an object, which may not be there yet.
func one(c cache.Getter, resource, namespace, name string) *cache.ListWatch {
	return cache.NewListWatchFromClient(c, resource, namespace, fields.OneTermEqualSelector(metav1.ObjectNameField, name))
}

// until waits until an object is as it should be.
func until[T any, P interface {
	*T
	runtime.Object
}](ctx context.Context, object *cache.ListWatch, isSo func(P) bool) error {
	_, err := toolswatch.UntilWithSync(ctx, object, P(new(T)), nil, func(e watch.Event) (bool, error) {
		obj, ok := e.Object.(P)
		return ok && e.Type != watch.Deleted && isSo(obj), nil
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// AwaitNode waits until the node is ready of a machine that somebody else has started, maybe just
// now, as long as what runs there does.
func AwaitNode(ctx context.Context, a Access, name, runDir string) error {
	process, pid, err := open(runDir)
	if err != nil {
		return err
	}
	if pid == 0 {
		return errEnded
	}
	defer unix.Close(process)
	api, _, err := a.client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startPatience, fmt.Errorf("not ready after %s", startPatience))
	defer cancel()
	g := task.NewGroup(ctx)
	g.Go("process of "+name, func(ctx context.Context) error {
		if err := waitExit(ctx, process, 2*startPatience); err != nil {
			return err
		}
		return errEnded
	})
	err = until(g.Context(), one(api.CoreV1().RESTClient(), "nodes", metav1.NamespaceAll, name), func(n *corev1.Node) bool { return stateOfNode(n).Ready })
	g.Cancel(context.Canceled)
	switch ended := g.Wait(); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("wait for machine %s, which runs already: %w; see its log: kemudi status", name, late(ctx, runDir))
	case ended != nil:
		err = ended
	}
	return fmt.Errorf("wait for machine %s, which runs already: %w", name, err)
}
