package plugins

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/dra"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/resource"
)

// resourceClaims lets claims have administrative access to devices only in namespaces
// that are labelled for it, and has every part of a claim's status written by those alone
// who may write that part. Upstream does this in the storage of those kinds.
func resourceClaims(o *admission.Options) admission.Plugin {
	c := claimRules{o, admission.Reader(o, core.Namespaces)}
	check := func(ctx context.Context, a *admission.Attributes) error {
		var refused field.ErrorList
		switch {
		case a.Is(dra.ResourceClaims.Def, "", admission.Create):
			refused = c.admin(ctx, a, askedFor(a.Object.(*resourcev1.ResourceClaim).Spec.Devices.Requests))
		case a.Is(dra.ResourceClaimTemplates.Def, "", admission.Create):
			refused = c.admin(ctx, a, askedFor(a.Object.(*resourcev1.ResourceClaimTemplate).Spec.Spec.Devices.Requests))
		case a.Is(dra.ResourceClaims.Def, "status", admission.Update):
			now, was := &a.Object.(*resourcev1.ResourceClaim).Status, &a.Old.(*resourcev1.ResourceClaim).Status
			if granted(was) == "" {
				refused = c.admin(ctx, a, granted(now))
			}
			refused = append(refused, c.binding(ctx, a, now, was)...)
			refused = append(refused, c.devices(ctx, a, now, was)...)
		}
		if len(refused) == 0 {
			return nil
		}
		return apierrors.NewInvalid(a.Def.GVK().GroupKind(), a.Object.(resource.Object).GetName(), refused)
	}
	return admission.Plugin{Name: "ResourceClaimAuthorization", Validate: check, Recheck: check}
}

type claimRules struct {
	o          *admission.Options
	namespaces client.Reader[*corev1.Namespace]
}

// askedFor is the path of the first request for administrative access; empty if there
// is none.
func askedFor(requests []resourcev1.DeviceRequest) string {
	for i := range requests {
		if e := requests[i].Exactly; e != nil && e.AdminAccess != nil && *e.AdminAccess {
			return fmt.Sprintf("spec.devices.requests[%d].adminAccess", i)
		}
	}
	return ""
}

// granted is the same of what is allocated.
func granted(s *resourcev1.ResourceClaimStatus) string {
	if s.Allocation == nil {
		return ""
	}
	for i := range s.Allocation.Devices.Results {
		if admin := s.Allocation.Devices.Results[i].AdminAccess; admin != nil && *admin {
			return fmt.Sprintf("status.allocation.devices.results[%d].adminAccess", i)
		}
	}
	return ""
}

// admin refuses administrative access, which stands at the path, unless the namespace is
// labelled for it.
func (c claimRules) admin(ctx context.Context, a *admission.Attributes, path string) field.ErrorList {
	if path == "" {
		return nil
	}
	ns, ok, err := admission.Find(ctx, c.o, c.namespaces, "", a.Namespace)
	switch {
	case err == nil && !ok:
		err = apierrors.NewNotFound(corev1.Resource("namespaces"), a.Namespace)
		fallthrough
	case err != nil:
		return field.ErrorList{field.InternalError(field.NewPath(path), fmt.Errorf("could not retrieve namespace to verify admin access: %w", err))}
	case ns.Labels[resourcev1.DRAAdminNamespaceLabelKey] != "true":
		return field.ErrorList{field.Forbidden(field.NewPath(path), "admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace")}
	}
	a.Rely(core.Namespaces.Def, ns)
	return nil
}

// binding refuses a change of who has what unless the user may bind claims.
func (c claimRules) binding(ctx context.Context, a *admission.Attributes, now, was *resourcev1.ResourceClaimStatus) field.ErrorList {
	if equality.Semantic.DeepEqual(now.Allocation, was.Allocation) && equality.Semantic.DeepEqual(now.ReservedFor, was.ReservedFor) {
		return nil
	}
	verb := verbOf(a)
	if err := c.may(ctx, a, part{verb: verb, sub: resourcev1.SubresourceBinding}); err != nil {
		return field.ErrorList{field.Forbidden(field.NewPath("status"),
			fmt.Sprintf(`changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", verb="%s" permission: %s`, verb, err))}
	}
	return nil
}

// devices refuses a change of what is said of devices unless the user may speak for their
// drivers: on the node that the claim is allocated for, or on any.
func (c claimRules) devices(ctx context.Context, a *admission.Attributes, now, was *resourcev1.ResourceClaimStatus) field.ErrorList {
	var refused field.ErrorList
	verbs := []string{resourcev1.VerbPrefixArbitraryNode + verbOf(a)}
	if node := nodeOf(now.Allocation); node != "" && runsOn(a.User, node) {
		verbs = slices.Insert(verbs, 0, resourcev1.VerbPrefixAssociatedNode+verbOf(a))
	}
	for _, driver := range changedDrivers(now.Devices, was.Devices) {
		var first error
		for _, verb := range verbs {
			err := c.may(ctx, a, part{verb: verb, sub: resourcev1.SubresourceDriver, namespace: a.Namespace, name: driver})
			if err == nil {
				first = nil
				break
			}
			if first == nil {
				first = err
			}
		}
		if first != nil {
			refused = append(refused, field.Forbidden(field.NewPath("status.devices"),
				fmt.Sprintf(`changing status.devices requires resource="resourceclaims/driver", verb="%s" permission: %s`, verbs, first)))
		}
	}
	return refused
}

// changedDrivers are the drivers of devices of which something else is said than before,
// sorted.
func changedDrivers(now, was []resourcev1.AllocatedDeviceStatus) []string {
	type id struct{ driver, pool, device, share string }
	of := func(d *resourcev1.AllocatedDeviceStatus) id {
		i := id{driver: d.Driver, pool: d.Pool, device: d.Device}
		if d.ShareID != nil {
			i.share = *d.ShareID
		}
		return i
	}
	before := map[id]*resourcev1.AllocatedDeviceStatus{}
	for i := range was {
		before[of(&was[i])] = &was[i]
	}
	drivers := map[string]bool{}
	for i := range now {
		k := of(&now[i])
		if old, ok := before[k]; !ok || !equality.Semantic.DeepEqual(old, &now[i]) {
			drivers[now[i].Driver] = true
		}
		delete(before, k)
	}
	for k := range before {
		drivers[k.driver] = true
	}
	return slices.Sorted(maps.Keys(drivers))
}

// nodeOf is the one node that an allocation is for; empty if it is not just one.
func nodeOf(a *resourcev1.AllocationResult) string {
	if a == nil || a.NodeSelector == nil || len(a.NodeSelector.NodeSelectorTerms) != 1 {
		return ""
	}
	t := &a.NodeSelector.NodeSelectorTerms[0]
	if len(t.MatchExpressions) != 0 || len(t.MatchFields) != 1 {
		return ""
	}
	f := &t.MatchFields[0]
	if f.Key != metav1.ObjectNameField || f.Operator != corev1.NodeSelectorOpIn || len(f.Values) != 1 {
		return ""
	}
	return f.Values[0]
}

// runsOn reports whether the user is the service account of a pod on the node.
func runsOn(u user.Info, node string) bool {
	if _, _, err := serviceaccount.SplitUsername(u.GetName()); err != nil {
		return false
	}
	return slices.Equal(u.GetExtra()[serviceaccount.NodeNameKey], []string{node})
}

// verbOf is what the request is called by those who allow it.
func verbOf(a *admission.Attributes) string {
	if _, ok := a.Options.(*metav1.PatchOptions); ok {
		return "patch"
	}
	return "update"
}

// part is a part of claims, as roles name it.
type part struct{ verb, sub, namespace, name string }

// may says why the user may not write a part of claims; nil if it may.
func (c claimRules) may(ctx context.Context, a *admission.Attributes, p part) error {
	ok, why := ask(ctx, c.o, authorizer.AttributesRecord{
		User: a.User, Verb: p.verb, Namespace: p.namespace, Name: p.name,
		APIGroup: resourcev1.GroupName, APIVersion: a.Def.Version, Resource: "resourceclaims", Subresource: p.sub,
	})
	if ok {
		return nil
	}
	where := "at the cluster scope"
	if p.namespace != "" {
		where = fmt.Sprintf("in the namespace %q", p.namespace)
	}
	return apierrors.NewForbidden(dra.ResourceClaims.GroupResource(), p.name, fmt.Errorf(
		"User %q cannot %s resource %q in API group %q %s: %s", a.User.GetName(), p.verb, "resourceclaims/"+p.sub, resourcev1.GroupName, where, why))
}
