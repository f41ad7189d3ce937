package plane

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/store/mem"
	"github.com/kemudi/kemudi/internal/task"
)

// nobody leads.
type nobody struct{}

func (nobody) Lead(ctx context.Context, _ func(context.Context) error) error {
	<-ctx.Done()
	return nil
}

// lagging is a store whose changes are told of late, as they are when it has much to do.
type lagging struct{ store.Store }

func (l lagging) Watch(ctx context.Context, prefix string, after int64, fn func([]store.Change, int64) error) error {
	return l.Store.Watch(ctx, prefix, after, func(changes []store.Change, progress int64) error {
		if err := task.Sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
		return fn(changes, progress)
	})
}

func TestControllersStartWithTheirRolesInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := start(t, Options{Store: lagging{mem.New(mem.Options{})}, Leadership: nobody{}})
		for _, c := range p.Controllers() {
			who := &user.DefaultInfo{Name: "system:serviceaccount:kube-system:" + c.Name, Groups: []string{user.AllAuthenticated}}
			for _, w := range c.Writes {
				asks := authorizer.AttributesRecord{
					User: who, Verb: w.Verb, APIGroup: w.Def.Group, APIVersion: w.Def.Version, Resource: w.Def.Plural, Subresource: w.Sub, ResourceRequest: true,
				}
				if decision, why, err := p.authorizer.Authorize(t.Context(), &asks); decision != authorizer.DecisionAllow {
					t.Errorf("%s may not %s %s/%s: got %v %q %v", c.Name, w.Verb, w.Def, w.Sub, decision, why, err)
				}
			}
		}
	})
}
