package request

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/lru"
)

// many of the same sort are asked about by one wildcard before they are asked about one by one.
const many = 4

// Impersonator decides who may act for whom. There are several ways to be allowed to
// (KEP-5284): all but the old one, the verb impersonate, are also asked whether the request
// itself may be made so, by the verb impersonate-on:WAY:VERB. Its methods may be called concurrently.
type Impersonator struct {
	allowed   func(ctx context.Context, a authorizer.Attributes) error
	forbidden func(a authorizer.Attributes, reason string) error
	last      *lru.Cache // by the sender's name: the way that allowed it last, which is tried first
}

// NewImpersonator asks allowed about each thing that a way needs; forbidden words what no way allows.
func NewImpersonator(allowed func(ctx context.Context, a authorizer.Attributes) error, forbidden func(a authorizer.Attributes, reason string) error) *Impersonator {
	return &Impersonator{allowed: allowed, forbidden: forbidden, last: lru.New(10_000)}
}

// way is one way to be allowed to impersonate.
type way struct {
	verb string // that all is asked about that the other is
	on   string // prefix of the verb that the request is asked about; empty: that is the old way
	fits func(want *user.DefaultInfo, by user.Info) bool
}

// ways are all, in the order in which they are tried.
var ways = []way{
	{ownNode, "impersonate-on:associated-node:", func(want *user.DefaultInfo, by user.Info) bool {
		node := nodeOf(want.Name)
		return node != "" && isBare(want) && isServiceAccount(by.GetName()) && slices.Equal(by.GetExtra()[serviceaccount.NodeNameKey], []string{node})
	}},
	{"impersonate:arbitrary-node", "impersonate-on:arbitrary-node:", func(want *user.DefaultInfo, _ user.Info) bool {
		return isBare(want) && nodeOf(want.Name) != ""
	}},
	{"impersonate:serviceaccount", "impersonate-on:serviceaccount:", func(want *user.DefaultInfo, _ user.Info) bool {
		return isBare(want) && isServiceAccount(want.Name)
	}},
	{"impersonate:user-info", "impersonate-on:user-info:", func(want *user.DefaultInfo, _ user.Info) bool {
		return nodeOf(want.Name) == "" && !isServiceAccount(want.Name)
	}},
	{"impersonate", "", func(*user.DefaultInfo, user.Info) bool { return true }},
}

// ownNode is the way by which a service account acts for the node that its token is of. It is
// asked about all nodes at once, with the names of what its extra says, but not with the values.
const ownNode = "impersonate:associated-node"

func isBare(want *user.DefaultInfo) bool {
	return want.UID == "" && len(want.Groups) == 0 && len(want.Extra) == 0
}

func isServiceAccount(name string) bool {
	_, _, err := serviceaccount.SplitUsername(name)
	return err == nil
}

// nodeOf is the node that has such a user name, "" if none can.
func nodeOf(name string) string {
	node, ok := strings.CutPrefix(name, "system:node:")
	if !ok || len(validation.NameIsDNSSubdomain(node, false)) > 0 {
		return ""
	}
	return node
}

// As is whom the sender of a request acts for, with all groups, and the verb that allowed it, if
// it was not the old one. The refusal is that of the way that was tried first.
func (i *Impersonator) As(ctx context.Context, want *user.DefaultInfo, asked authorizer.Attributes) (as *user.DefaultInfo, constraint string, refused error) {
	name := asked.GetUser().GetName()
	order := []int{0, 1, 2, 3, 4}
	if last, ok := i.last.Get(name); ok {
		at := last.(int)
		order = slices.Insert(slices.Delete(order, at, at+1), 0, at)
	}
	for _, n := range order {
		w := &ways[n]
		if !w.fits(want, asked.GetUser()) {
			continue
		}
		as, err := i.by(ctx, w, want, asked)
		switch {
		case err == nil:
			i.last.Add(name, n)
			if w.on == "" {
				return as, "", nil
			}
			return as, w.verb, nil
		case refused == nil:
			refused = err
		}
	}
	return nil, "", refused
}

// asking is what a way asks about.
type asking struct {
	*Impersonator
	way *way
	by  user.Info
}

// by tries one way.
func (i *Impersonator) by(ctx context.Context, w *way, want *user.DefaultInfo, asked authorizer.Attributes) (*user.DefaultInfo, error) {
	q := asking{i, w, asked.GetUser()}
	if w.verb == ownNode {
		q.by = &user.DefaultInfo{
			Name: q.by.GetName(), UID: q.by.GetUID(), Groups: q.by.GetGroups(),
			Extra: map[string][]string{"authentication.kubernetes.io/associated-node-keys": slices.Sorted(maps.Keys(q.by.GetExtra()))},
		}
	}
	if w.on != "" {
		if err := i.allowed(ctx, onBehalf{asked, w.on + asked.GetVerb(), q.by}); err != nil {
			return nil, err
		}
	}
	for _, ask := range []func(context.Context, *user.DefaultInfo) error{q.name, q.uid, q.groups, q.extra} {
		if err := ask(ctx, want); err != nil {
			return nil, err
		}
	}
	return q.whole(want), nil
}

// whole is who is wanted, with the groups that everybody of such a name is in: those of a node or
// service account if no others were named, and that of all users.
func (q *asking) whole(want *user.DefaultInfo) *user.DefaultInfo {
	as := *want
	as.Groups = slices.Clone(want.Groups)
	if ns, _, err := serviceaccount.SplitUsername(as.Name); err == nil && len(as.Groups) == 0 {
		as.Groups = serviceaccount.MakeGroupNames(ns)
	}
	if q.way.on != "" && nodeOf(as.Name) != "" {
		as.Groups = []string{user.NodesGroup}
	}
	known, unknown := slices.Contains(as.Groups, user.AllAuthenticated), slices.Contains(as.Groups, user.AllUnauthenticated)
	switch {
	case as.Name == user.Anonymous && !unknown:
		as.Groups = append(as.Groups, user.AllUnauthenticated)
	case as.Name != user.Anonymous && !known && !unknown:
		as.Groups = append(as.Groups, user.AllAuthenticated)
	}
	return &as
}

// onBehalf is a request that is asked about by another verb.
type onBehalf struct {
	authorizer.Attributes
	verb string
	by   user.Info
}

// GetVerb is the verb that is asked about.
func (o onBehalf) GetVerb() string { return o.verb }

// GetUser is who asks.
func (o onBehalf) GetUser() user.Info { return o.by }

func (q *asking) about(gv schema.GroupVersion, resource, name string) *authorizer.AttributesRecord {
	return &authorizer.AttributesRecord{
		User: q.by, Verb: q.way.verb, APIGroup: gv.Group, APIVersion: gv.Version, Resource: resource, Name: name, ResourceRequest: true,
	}
}

// core is the group that users and groups are said to be of.
func (q *asking) core() schema.GroupVersion {
	if q.way.on == "" {
		return corev1.SchemeGroupVersion
	}
	return authenticationv1.SchemeGroupVersion
}

func (q *asking) name(ctx context.Context, want *user.DefaultInfo) error {
	a := q.about(q.core(), "users", want.Name)
	if node := nodeOf(want.Name); node != "" && q.way.on != "" {
		a.Resource, a.Name = "nodes", node
		if q.way.verb == ownNode {
			a.Name = "*"
		}
	}
	if ns, name, err := serviceaccount.SplitUsername(want.Name); err == nil {
		a.Resource, a.Namespace, a.Name = "serviceaccounts", ns, name
	}
	return q.allowed(ctx, a)
}

func (q *asking) uid(ctx context.Context, want *user.DefaultInfo) error {
	if want.UID == "" {
		return nil
	}
	return q.allowed(ctx, q.about(authenticationv1.SchemeGroupVersion, "uids", want.UID))
}

func (q *asking) groups(ctx context.Context, want *user.DefaultInfo) error {
	a := q.about(q.core(), "groups", "")
	if q.way.on != "" {
		if slices.Contains(want.Groups, "") {
			return q.forbidden(a, "impersonating the empty string group is not allowed")
		}
		if slices.Contains(want.Groups, user.SystemPrivilegedGroup) {
			a.Name = user.SystemPrivilegedGroup
			return q.forbidden(a, "impersonating the system:masters group is not allowed")
		}
		if a.Name = "*"; len(want.Groups) >= many && q.allowed(ctx, a) == nil {
			return nil
		}
	}
	for _, group := range want.Groups {
		if err := q.allowed(ctx, q.about(q.core(), "groups", group)); err != nil {
			return err
		}
	}
	return nil
}

func (q *asking) extra(ctx context.Context, want *user.DefaultInfo) error {
	a := q.about(authenticationv1.SchemeGroupVersion, "userextras", "")
	if q.way.on != "" {
		if err := validExtra(want.Extra); err != nil {
			return q.forbidden(a, err.Error())
		}
		values := 0
		for _, list := range want.Extra {
			values += len(list)
		}
		if a.Subresource, a.Name = "*", "*"; values >= many && q.allowed(ctx, a) == nil {
			return nil
		}
	}
	for key, values := range want.Extra {
		for _, value := range values {
			a := q.about(authenticationv1.SchemeGroupVersion, "userextras", value)
			a.Subresource = key
			if err := q.allowed(ctx, a); err != nil {
				return err
			}
		}
	}
	return nil
}

// validExtra refuses what only the old way lets pass.
func validExtra(extra map[string][]string) error {
	for key, values := range extra {
		switch {
		case key == "":
			return errors.New("impersonating the empty string key in extra is not allowed")
		case len(values) == 0:
			return errors.New("impersonating empty values in extra is not allowed")
		case slices.Contains(values, ""):
			return errors.New("impersonating the empty string value in extra is not allowed")
		}
		if err := utilvalidation.IsDomainPrefixedPath(field.NewPath("extra", "key"), key).ToAggregate(); err != nil {
			return fmt.Errorf("impersonating an invalid key in extra is not allowed: %w", err)
		}
		if key != strings.ToLower(key) {
			return fmt.Errorf("impersonating a non-lowercase key in extra is not allowed: %q", key)
		}
	}
	return nil
}
