package objects

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/kubelet/apitest"
)

// TestPodIsToldOfADeletionAmongManyChanges deletes a secret together with more
// changes than a cache remembers.
func TestPodIsToldOfADeletionAmongManyChanges(t *testing.T) {
	t.Parallel()
	rev := int64(0)
	secret := func(name string) *cache.Item {
		rev++
		return &cache.Item{Key: "default/" + name, Rev: rev, Object: &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, ResourceVersion: fmt.Sprint(rev)}}}
	}
	c := cache.New(core.Secrets.Def, &cache.Progress{})
	c.Replace([]*cache.Item{secret("goes"), secret("noise"), secret("stays")}, 3)
	o := New(apitest.New(t), slog.New(slog.DiscardHandler))
	uses := func(name string) chan struct{} {
		told := make(chan struct{}, 1)
		o.mu.used[reference{core.Secrets.Def, "default", name}] = &followed{users: map[types.UID]func(){types.UID(name): func() {
			select {
			case told <- struct{}{}:
			default: // it has been told
			}
		}}}
		return told
	}
	goes, stays := uses("goes"), uses("stays")
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	wg.Go(func() {
		if err := o.followCache(ctx, c); ctx.Err() == nil {
			t.Errorf("followCache ended: %v", err)
		}
	})
	<-goes
	<-stays
	rev++
	changes := []cache.Change{cache.Gone(c.Get("default/goes"), rev)}
	for range 5000 {
		changes = append(changes, cache.Change{Item: secret("noise")})
	}
	c.Apply(append(changes, cache.Change{Item: secret("stays")}))
	<-stays // it is told last
	if len(goes) == 0 {
		t.Error("the pod that uses the deleted secret was not told")
	}
}
