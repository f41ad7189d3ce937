package objects

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/api/certificates"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/kubelet/contain"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/task"
)

// reference names a config map, a secret, a claim or a trust bundle that a pod uses, all trust
// bundles of a signer, by its name, or all requests for certificates of a pod, by the pod's.
type reference struct {
	def             *resource.Def
	namespace, name string
}

// scope is the field selector of what r names.
func (r reference) scope() string {
	switch {
	case r.def == certificates.PodCertificateRequests.Def:
		return "metadata.namespace=" + r.namespace + ",spec.podName=" + r.name
	case r.namespace != "":
		return "metadata.namespace=" + r.namespace + ",metadata.name=" + r.name
	case strings.Contains(r.name, "/"): // as every signer's name, and no object's
		return "spec.signerName=" + r.name
	}
	return "metadata.name=" + r.name
}

// Follow has changed called about changes of what the pod refers to, until Unfollow.
// What it starts runs in g.
func (o *Objects) Follow(g *task.Group, pod *v1.Pod, changed func()) {
	for to := range core.References(pod) {
		r := reference{namespace: pod.Namespace, name: to.Name}
		switch to.Kind {
		case core.ToConfigMap:
			r.def = core.ConfigMaps.Def
		case core.ToSecret:
			r.def = core.Secrets.Def
		case core.ToTrustBundle:
			r = reference{def: certificates.ClusterTrustBundles.Def, name: to.Name}
		case core.ToPodCertificate:
			r = requestsOf(pod)
		default:
			continue
		}
		o.use(g, r, pod.UID, changed)
	}
}

// FollowClaim is Follow for one claim of a pod.
func (o *Objects) FollowClaim(g *task.Group, c *v1.PersistentVolumeClaim, pod types.UID, changed func()) {
	o.use(g, reference{def: core.PersistentVolumeClaims.Def, namespace: c.Namespace, name: c.Name}, pod, changed)
}

// followed is an object that pods use.
type followed struct {
	users   map[types.UID]func() // whom to tell of a change, by pod
	release func()               // lets go of the object, and of what follows it
}

// follower tells of the changes of a cache.
type follower struct {
	objects int // that are followed in it
	end     context.CancelCauseFunc
}

// use has a pod told of the changes of an object.
func (o *Objects) use(g *task.Group, r reference, pod types.UID, changed func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f := o.mu.used[r]
	if f == nil {
		c, release := o.t.Hold(r.def, r.scope())
		o.joinLocked(g, c)
		f = &followed{users: map[types.UID]func(){}, release: func() {
			o.leaveLocked(c)
			release()
		}}
		o.mu.used[r] = f
	}
	f.users[pod] = changed
}

// errUnused is why nobody follows a cache any more.
var errUnused = errors.New("no pod uses it any more")

// joinLocked has one more object followed in a cache.
func (o *Objects) joinLocked(g *task.Group, c *cache.Cache) {
	f := o.mu.caches[c]
	if f == nil {
		f = &follower{}
		o.mu.caches[c] = f
		var ctx context.Context
		ctx, f.end = context.WithCancelCause(g.Context())
		part := "follow " + c.Def.Plural
		g.Go(part, contain.Lasting(o.log, part, func(context.Context) error {
			if err := o.followCache(ctx, c); !errors.Is(err, errUnused) {
				return err
			}
			return nil
		}))
	}
	f.objects++
}

// leaveLocked has one object less followed in a cache.
func (o *Objects) leaveLocked(c *cache.Cache) {
	f := o.mu.caches[c]
	if f.objects--; f.objects == 0 {
		delete(o.mu.caches, c)
		f.end(errUnused)
	}
}

// Unfollow ends what Follow began for the pod. What no other pod uses is let go.
func (o *Objects) Unfollow(uid types.UID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for r, f := range o.mu.used {
		delete(f.users, uid)
		if len(f.users) == 0 {
			delete(o.mu.used, r)
			f.release()
		}
	}
}

// followCache tells users about changes in one cache: of what is named from
// a distant server, or of all objects where the server's own cache is at hand.
func (o *Objects) followCache(ctx context.Context, c *cache.Cache) error {
	return c.Each(ctx, cache.FollowOptions{}, func(deltas []cache.Delta) error {
		for _, d := range deltas {
			obj := d.Last().Object
			o.changed(reference{c.Def, obj.GetNamespace(), obj.GetName()})
			switch obj := obj.(type) {
			case *certificatesv1.ClusterTrustBundle:
				o.changed(reference{def: c.Def, name: obj.Spec.SignerName})
			case *certificatesv1.PodCertificateRequest:
				o.changed(reference{c.Def, obj.Namespace, obj.Spec.PodName})
			}
		}
		return nil
	})
}

// changed tells the users of an object that it has changed.
func (o *Objects) changed(r reference) {
	o.mu.Lock()
	var users []func()
	if f := o.mu.used[r]; f != nil {
		users = slices.Collect(maps.Values(f.users))
	}
	o.mu.Unlock()
	for _, tell := range users {
		tell()
	}
}
