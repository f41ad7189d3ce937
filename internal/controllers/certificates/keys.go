package certificates

import (
	"context"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	api "github.com/kemudi/kemudi/internal/api/certificates"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/auth/authn"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/resource"
)

// Keys notes on Nodes by which keys they are known, and on the requests for them that
// they have led to a Node: the access of a node ends with it. Its keys are those of Nodes.
var Keys = controller.NewKeyed(controller.Keyed{
	Name: "node-keys-controller",
	Watches: []controller.Watch{
		controller.Mapped(api.CertificateSigningRequests, func(_ *controller.Kit, r *certificatesv1.CertificateSigningRequest) []string {
			if node, _, ok := unregistered(r); ok {
				return []string{node}
			}
			return nil
		}),
		{
			Def:  core.Nodes.Def,
			Keys: func(_ *controller.Kit, obj resource.Object) []string { return []string{obj.GetName()} },
			Same: func(before, after resource.Object) bool { return before.GetUID() == after.GetUID() },
		},
	},
	Writes: []controller.Permission{
		controller.Patch(core.Nodes.Def, ""),
		controller.Patch(api.CertificateSigningRequests.Def, ""),
	},
	Workers: 1, // there is little to do
	Setup: func(k *controller.Kit) func(ctx context.Context, key string) (controller.Next, error) {
		keeper := &keyKeeper{nodes: controller.For(k, core.Nodes), requests: controller.For(k, api.CertificateSigningRequests)}
		return func(ctx context.Context, key string) (controller.Next, error) {
			return controller.Done, keeper.note(ctx, key)
		}
	},
})

type keyKeeper struct {
	nodes    controller.Client[*corev1.Node]
	requests controller.Client[*certificatesv1.CertificateSigningRequest]
}

// unregistered is admitted of requests that have led to no Node yet. What is cheap is asked
// first: there may be thousands.
func unregistered(r *certificatesv1.CertificateSigningRequest) (node, pin string, ok bool) {
	if r.Annotations[authn.AnnotationRegistered] != "" {
		return "", "", false
	}
	return admitted(r)
}

// note notes the keys of a Node that is there: first on the Node, so that no key is
// forgotten by a crash in between.
func (c *keyKeeper) note(ctx context.Context, name string) error {
	node, ok := c.nodes.Get("", name)
	if !ok {
		return nil
	}
	var due []*certificatesv1.CertificateSigningRequest
	for _, r := range c.requests.List("", nil) {
		if of, _, ok := unregistered(r); ok && of == name {
			due = append(due, r)
		}
	}
	slices.SortFunc(due, func(a, b *certificatesv1.CertificateSigningRequest) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	keys := authn.NodeKeys(node)
	for _, r := range due {
		keys = keysAfter(keys, r)
	}
	if !slices.Equal(keys, authn.NodeKeys(node)) {
		if _, err := c.nodes.MergePatch(ctx, node, "", annotated(authn.AnnotationNodeKeys, strings.Join(keys, ","))); err != nil {
			return err
		}
	}
	for _, r := range due {
		if _, err := c.requests.MergePatch(ctx, r, "", annotated(authn.AnnotationRegistered, string(node.UID))); err != nil {
			return err
		}
	}
	return nil
}

// keysAfter are the keys of a node once a request of it was signed. A node that asks for
// another key itself is known by the one before too, until it has taken the new one
// into use; a machine that joins in its place takes all.
func keysAfter(keys []string, r *certificatesv1.CertificateSigningRequest) []string {
	node, pin, _ := admitted(r)
	switch {
	case slices.Contains(keys, pin):
		return keys
	case r.Spec.Username == nodeUser+node && len(keys) > 0:
		return []string{pin, keys[0]}
	}
	return []string{pin}
}

func annotated(key, value string) map[string]any {
	return map[string]any{"metadata": map[string]any{"annotations": map[string]string{key: value}}}
}
