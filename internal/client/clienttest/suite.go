package clienttest

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
)

// Agent is the name under which the transport under test must make its requests.
const Agent = "suite"

// Run runs the suite. open returns a transport, of an administrator called
// [Agent], to an API of its own that lives until t ends.
func Run(t *testing.T, open func(t *testing.T) client.Transport) {
	for _, c := range []struct {
		name string
		run  func(b *bed)
	}{
		{"Objects are created, read, changed and deleted", objects},
		{"Errors are those of the API", apiErrors},
		{"A name that is missing is an object that is not there", emptyNames},
		{"Subresources have their own bodies", subresources},
		{"Questions are answered", questions},
		{"Paths are answered that no kind describes", paths},
		{"Patches of every kind are applied, by the agent's name", patches},
		{"A dry run changes nothing", dryRuns},
		{"A deletion tells what went and when", deletions},
		{"Collections are deleted by selector", collections},
		{"Lists are narrowed, and come in pages of one revision", lists},
		{"A cache shows what is there and what happens", caches},
		{"A cache of a scope holds at least what is in it", scopes},
		{"A scope that is held is fed until it is released", holds},
		{"A cache shows a write when its revision has come", barrier},
		{"Followers see every change once, in order", followers},
		{"Concurrent counters lose no step", counters},
		{"A request ends with its context", contexts},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeoutCause(t.Context(), timeout, errors.New("the suite's time is over"))
			t.Cleanup(cancel)
			b := &bed{T: t, ctx: ctx, Transport: open(t)}
			b.makeNamespace("default")
			c.run(b)
		})
	}
}

// timeout bounds every wait of a test.
const timeout = time.Minute

// bed is a transport under test.
type bed struct {
	*testing.T
	client.Transport
	ctx context.Context
}

func (b *bed) makeNamespace(name string) {
	b.Helper()
	_, err := client.For(b, core.Namespaces).Create(b.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	b.must(err)
}

func (b *bed) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bed) maps() client.Client[*corev1.ConfigMap] { return client.For(b, core.ConfigMaps) }

// put creates a ConfigMap in the namespace default.
func (b *bed) put(name string, labels ...string) *corev1.ConfigMap {
	b.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	for i := 0; i+1 < len(labels); i += 2 {
		metav1.SetMetaDataLabel(&cm.ObjectMeta, labels[i], labels[i+1])
	}
	cm, err := b.maps().Create(b.ctx, cm)
	b.must(err)
	return cm
}

// pod creates a pod in the namespace default.
func (b *bed) pod(name, node string) *corev1.Pod {
	b.Helper()
	pod, err := client.For(b, core.Pods).Create(b.ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": name}},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	})
	b.must(err)
	return pod
}

// synced waits for a cache's first state.
func (b *bed) synced(c *cache.Cache) *cache.Cache {
	b.Helper()
	select {
	case <-c.Synced():
	case <-b.ctx.Done():
		b.Fatalf("cache of %s: %v", c.Def, context.Cause(b.ctx))
	}
	return c
}
