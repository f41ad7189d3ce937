package write

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/apiserver/call"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/watchcache"
)

// deleteUnread removes an object that cannot be read, as the call's options allow: nobody knows what it says, so
// neither finalizers nor preconditions nor admission are asked. One that can be read is left alone.
func (p *Pipeline) deleteUnread(ctx context.Context, c *call.Call) (call.Result, error) {
	c.Audit.Annotate("apiserver.k8s.io/unsafe-delete-ignore-read-error", "")
	if err := p.o.Authorize(ctx, c.Attributes("unsafe-delete-ignore-read-errors")); err != nil {
		return call.Result{}, err
	}
	for {
		kv, _, err := p.o.Store.Get(ctx, c.Key())
		if err != nil {
			return call.Result{}, err
		}
		if kv.Rev == 0 {
			return call.Result{}, c.NotFound()
		}
		if _, err := watchcache.Read(c.Resource.Def, kv); err == nil {
			return call.Result{}, c.Conflict(fmt.Errorf("StorageError: invalid object, Code: 4, Key: %s, ResourceVersion: 0, "+ //nolint:staticcheck // upstream's text
				"AdditionalErrorMsg: unsafe deletion is not allowed because the object is decodable from storage", c.Key()))
		}
		if !c.DryRun {
			res, err := p.o.Store.Txn(ctx, store.Txn{Conds: []store.Cond{{Key: c.Key(), Rev: kv.Rev}}, Ops: []store.Op{{Key: c.Key()}}})
			switch {
			case err != nil:
				return call.Result{}, apierrors.NewInternalError(fmt.Errorf("delete %s: %w", c.Key(), err))
			case !res.OK:
				continue // somebody has written it: it may be read now
			}
			p.o.Reads.Answered(res.Rev)
			p.o.Logger.WarnContext(ctx, "deleted an object that could not be read, as was asked for", "key", c.Key())
		}
		return call.Result{Body: &metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess,
			Details: &metav1.StatusDetails{Name: c.Name, Group: c.Resource.GVK.Group, Kind: c.Resource.Def.Plural},
		}}, nil
	}
}
